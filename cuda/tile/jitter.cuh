// jitter.cuh -- random sleeps for a build that exposes races (no code in other builds).
// Book: users.md, "Find a race".
//
// With KCP_JITTER defined, most waits, arrivals, copies and barriers of cuda/tile/
// sleep at random, each warp separately. A warp that lacks a wait then reads data that
// has not arrived, so the judge finds wrong values. To build that judge:
// make KCP_JITTER=1 B=build/jitter build/jitter/kcp-check.
#pragma once

#ifdef KCP_JITTER
// On average one of 2^few calls sleeps, for up to 2^bits ns. All lanes of a warp read
// the same clock and therefore sleep together.
static __device__ __forceinline__ void jitter(int few = 3, int bits = 12)
{
    unsigned x;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(x));
    x = (x + threadIdx.x / 32 * 0x9e3779b9u + blockIdx.x * 0x7f4a7c15u) * 0x85ebca6bu;
    x = (x ^ x >> 15) * 0xc2b2ae35u;
    if (x << (32 - few) == 0) __nanosleep(x >> (32 - bits));
}
#define __syncthreads() (jitter(), __syncthreads())
#else
static __device__ __forceinline__ void jitter(int few = 3, int bits = 12)
{
    (void)few, (void)bits;
}
#endif
#include "omit.cuh"
