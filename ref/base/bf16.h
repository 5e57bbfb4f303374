/* bf16.h -- converts numbers to and from the bits of a bfloat16 or a float16.
 * Book: chapter 19. */
#pragma once

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
    if (isnan(x)) return 0x7fff;
    if (fabs((double)f) > fabs(x))
        u--;                                   /* toward zero */
    memcpy(&f, &u, sizeof f);
    if ((double)f != x) u |= 1;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline double bf16_value(uint16_t bits)
{
    const uint32_t u = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Rounds x to float16, to nearest, ties to even. The last place of x is 2^(e-11), with
 * 2^(e-1) <= |x| < 2^e, or 2^-24 for numbers below 2^-14. */
static inline uint16_t f16_of(double x)
{
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const double size = fabs(x);
    int e;
    if (isnan(x)) return 0x7fff;
    if (size >= 65520) return sign | 0x7c00;
    frexp(size, &e);
    if (size < 0x1p-14) e = -13;
    return (uint16_t)(sign | ((e + 13) * 1024 + (int)nearbyint(ldexp(size, 11 - e))));
}

/* Exponent 31 means infinity or NaN. If the exponent is 0, x is fraction * 2^-24. */
static inline double f16_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double x = ldexp(1024 + fraction, exponent - 25);
    if (exponent == 0) x = ldexp(fraction, -24);
    if (exponent == 31) x = fraction ? NAN : INFINITY;
    return bits >> 15 ? -x : x;
}
