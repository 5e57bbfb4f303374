// setmaxnreg.cuh -- registers that warpgroups hand to one another.
// Book: chapter 17, "Warps with roles"; chapter 18.
// Checked by: every variant that includes it.
// Next: launch.cuh.
#ifndef KCP_TILE_SETMAXNREG_CUH
#define KCP_TILE_SETMAXNREG_CUH

// setmaxnreg.dec, by all warps of a warpgroup: n registers a thread from here on, a
// multiple of 8, fewer than before. The kernel needs __launch_bounds__.
template <int n>
static __device__ __forceinline__ void setmaxnreg_dec(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}

// setmaxnreg.inc, likewise: n registers a thread, more than before. It waits until
// other warpgroups of the block have given that many.
template <int n>
static __device__ __forceinline__ void setmaxnreg_inc(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

#endif
