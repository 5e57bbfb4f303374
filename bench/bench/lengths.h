/* lengths.h -- a packed batch in words: the lengths of its sequences.
 *
 * Book: chapter 18.  Checked by: tests/cli/bench_cli.sh, with lengths_try.c.
 * Next: lengths.c.
 */
#ifndef KCP_BENCH_LENGTHS_H
#define KCP_BENCH_LENGTHS_H

#include <stddef.h>
#include <stdint.h>

enum { LENGTHS_MOST = 4096, LENGTHS_TOKENS = 1 << 24, LENGTHS_TEXT = 256 };

/* "4x8192,1024" is four sequences of 8192 tokens and one of 1024. The number of
 * sequences, and where each begins: cu [LENGTHS_MOST + 1], or NULL. 0: the text is not
 * such a list, or has more sequences or tokens than the limits above. */
int lengths_read(const char *text, int64_t *cu);
/* The same batch in the same words, however it was written: neighbours of one length
 * together. 0, or not: it takes more than `bytes`. */
int lengths_write(char *to, size_t bytes, const int64_t *cu, int N);

#endif
