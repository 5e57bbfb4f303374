/* storage.c -- converts doubles to and from arrays of bf16, float or double.
 *
 * Book: chapter 00.  Checked by: tests/judge/self_trials.c.  Next: tensor_set.c. */
#include "storage.h"
#include <string.h>

/* Returns 1 if all bits of x are set: the initial value of outputs, so x was not
 * written. */
static int untouched(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    return u == UINT64_MAX;
}

void encode(void *to, const double *from, int64_t n, size_t bytes)
{
    for (int64_t i = 0; i < n; i++) {
        float f = (float)from[i];
        uint32_t u;
        memcpy(&u, &f, 4);
        uint16_t hi = (uint16_t)(u >> 16);
        if (bytes == 8) ((double *)to)[i] = from[i];
        else if (bytes == 4) ((float *)to)[i] = f;
        else ((uint16_t *)to)[i] = hi;
        if (untouched(from[i])) memset((char *)to + i * bytes, 0xff, bytes);
    }
}

void decode(double *to, const void *from, int64_t n, size_t bytes)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        float f;
        if (bytes == 8) { to[i] = ((const double *)from)[i]; continue; }
        if (bytes == 4) memcpy(&u, (const char *)from + 4 * i, 4);
        else {
            const uint32_t hi = ((const uint16_t *)from)[i];
            u = hi << 16 | (hi == 0xffff ? 0xffff : 0);
        }
        memcpy(&f, &u, 4);
        to[i] = f;
        if (u == 0xffffffffu) memset(&to[i], 0xff, 8);
    }
}
