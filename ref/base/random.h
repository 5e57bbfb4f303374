/* random.h -- random numbers for tests, kcp-text and the book's programs.
 * Book: field notes "Inputs are part of the proof".
 *
 * The generator is splitmix64, which hashes a counter. A seed gives the same numbers on
 * every machine, except for the last bits of log and cos. */
#pragma once

#include <math.h>
#include <stdint.h>

static inline uint64_t random_mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t random_bits(uint64_t *seed)
{
    const uint64_t z = random_mix(*seed);
    *seed += 0x9e3779b97f4a7c15u;
    return z;
}

/* Returns a number in (0, 1]: never 0, because random_normal uses its logarithm. */
static inline double random_uniform(uint64_t *seed)
{
    return ((double)(random_bits(seed) >> 11) + 0.5) * 0x1p-53;
}

static inline double random_normal(uint64_t *seed)
{
    const double r = sqrt(-2 * log(random_uniform(seed)));
    return r * cos(6.283185307179586 * random_uniform(seed));
}
