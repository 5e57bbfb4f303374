// setmaxnreg.cuh -- register reallocation between warpgroups.
// Book: chapter 17, "Warps with roles"; chapter 18.
#ifndef KCP_TILE_SETMAXNREG_CUH
#define KCP_TILE_SETMAXNREG_CUH

// setmaxnreg.dec, called by a whole warpgroup: reduces the registers per thread to n, a
// multiple of 8. ptxas ignores setmaxnreg without __launch_bounds__(threads, blocks).
template <int n>
static __device__ __forceinline__ void setmaxnreg_dec(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}

// setmaxnreg.inc, called by a whole warpgroup: raises the registers per thread to n.
// Waits until other warpgroups of the block have released enough registers.
template <int n>
static __device__ __forceinline__ void setmaxnreg_inc(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

#endif
