// jitter.cuh -- in the build that looks for races, sleeps of random length; else none.
// Book: chapter 18, "Real world".
// Checked by: tests/18_hopper/primitives_sm90.cu, what each primitive is without.
// Next: cp_async.cuh.
//
// With KCP_JITTER the waits, arrivals, copies and barriers of this room sleep now and
// then, a warp at a time, so that who should have waited meets what is not there yet.
// make KCP_JITTER=1 B=build/jitter build/jitter/kcp-check is such a judge.
#ifndef KCP_TILE_JITTER_CUH
#define KCP_TILE_JITTER_CUH

#ifdef KCP_JITTER
// One call of 2^few sleeps, for up to 4 us; a warp has one clock, so all of it does.
static __device__ __forceinline__ void jitter(int few = 3)
{
    unsigned x;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(x));
    x = (x + threadIdx.x / 32 * 0x9e3779b9u + blockIdx.x * 0x7f4a7c15u) * 0x85ebca6bu;
    x = (x ^ x >> 15) * 0xc2b2ae35u;
    if (x << (32 - few) == 0) __nanosleep(x >> 20);
}
#define __syncthreads() (jitter(), __syncthreads())
#else
static __device__ __forceinline__ void jitter(int few = 3) { (void)few; }
#endif

#endif
