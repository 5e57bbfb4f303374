/* record_file_try.c -- a record of so many rows, and how its run ended.
 *
 * Book: chapter 18.  Checked by: tests/cli/bench_cli.sh, which builds and runs it.
 * Next: bench/record_file.c.
 *
 * record_file_try PATH ROWS ends|fails|killed */
#include "bench/bench/record_file.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct record_file r;
    if (argc != 4 || record_file_open(&r, argv[1])) return 2;
    for (r.rows = 0; r.rows < atoi(argv[2]); r.rows++) {
        fprintf(r.at, "row %d\n", r.rows);
        fflush(r.at);
    }
    if (!strcmp(argv[3], "killed")) raise(SIGKILL);
    return record_file_close(&r, !strcmp(argv[3], "ends")) ? 1 : 0;
}
