/* lengths_try.c -- lists of lengths as kcp-bench reads them, for a test without a GPU.
 *
 * Book: chapter 18.  Checked by: tests/cli/bench_cli.sh, which builds and runs it.
 * Next: bench/bench/lengths.c.
 *
 *   lengths_try WORDS    sequences, tokens and the words again; 1: it is no list
 */
#include "bench/bench/lengths.h"
#include <stdio.h>

int main(int argc, char **argv)
{
    static int64_t cu[LENGTHS_MOST + 1];
    char again[LENGTHS_TEXT];
    const int N = argc == 2 ? lengths_read(argv[1], cu) : 0;
    if (!N || lengths_read(argv[1], NULL) != N) return 1;
    if (lengths_write(again, sizeof again, cu, N)) return 2;
    printf("%d %lld %s\n", N, (long long)cu[N], again);
    return 0;
}
