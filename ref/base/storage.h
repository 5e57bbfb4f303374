/* storage.h -- doubles to and from bf16, float and double arrays.
 *
 * Book: chapter 00.  Checked by: tests/judge/self_trials.c.  Next: storage.c.
 */
#ifndef KCP_BASE_STORAGE_H
#define KCP_BASE_STORAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* n numbers of 8 (double), 4 (float) or 2 (bf16) bytes each. bf16 takes the upper half
 * of the float, because callers pass values that are already bf16. An element with all
 * bits set means "never written" in every storage. */
void encode(void *to, const double *from, int64_t n, size_t bytes);
void decode(double *to, const void *from, int64_t n, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
