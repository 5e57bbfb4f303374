/* lengths.h -- a list of lengths of sequences as text.
 *
 * Book: chapter 18.  Checked by: tests/cli/cases.tsv.  Next: lengths.c.
 */
#ifndef KCP_BENCH_LENGTHS_H
#define KCP_BENCH_LENGTHS_H

#include <stddef.h>
#include <stdint.h>

enum { LENGTHS_MOST = 4096, LENGTHS_TOKENS = 1 << 24, LENGTHS_TEXT = 256 };

/* "4x8192,1024" is four sequences of 8192 tokens and one of 1024. Returns the number of
 * sequences, and their boundaries in cu [LENGTHS_MOST + 1] unless it is NULL. 0: not a
 * list of lengths, or beyond a limit above. */
int lengths_read(const char *text, int64_t *cu);
/* The list in one spelling: equal neighbours joined. Not 0: longer than `bytes`. */
int lengths_write(char *to, size_t bytes, const int64_t *cu, int N);

#endif
