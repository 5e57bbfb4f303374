/* bf16.h -- converts numbers to and from the bits of a bfloat16.
 *
 * Book: chapter 19.  Checked by: tests/19_precision/checks.c, tests/fuzz/npy.c.
 * Next: npy_write.c. */
#ifndef KCP_BASE_BF16_H
#define KCP_BASE_BF16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Rounds x to bf16, to nearest, ties to even. The double is first rounded to a float by
 * round-to-odd, because rounding to nearest twice could give a wrong result. */
static inline uint16_t bf16_of(double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (isnan(x))
        return 0x7fff;
    if (fabs((double)f) > fabs(x))
        u--;                                   /* toward zero */
    memcpy(&f, &u, sizeof f);
    if ((double)f != x)
        u |= 1;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline double bf16_value(uint16_t bits)
{
    const uint32_t u = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

#endif
