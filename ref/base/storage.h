/* storage.h -- converts doubles to and from arrays of bf16, float or double.
 *
 * Book: chapter 00.  Checked by: tests/judge/self_trials.c.  Next: storage.c. */
#ifndef KCP_BASE_STORAGE_H
#define KCP_BASE_STORAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Convert n numbers; `bytes` per number: 8 (double), 4 (float) or 2 (bf16). To bf16,
 * encode copies the upper half of the float, because callers pass values that bf16
 * represents exactly. In all types an element with all bits set was never written. */
void encode(void *to, const double *from, int64_t n, size_t bytes);
void decode(double *to, const void *from, int64_t n, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
