// setmaxnreg.cuh -- registers that warpgroups hand to one another.
// Book: chapter 18.
// Checked by: every variant that includes it.
// Next: launch.cuh.
#ifndef KCP_TILE_SETMAXNREG_CUH
#define KCP_TILE_SETMAXNREG_CUH

// A warpgroup gives registers away, or takes them: n a thread from here on.
template <int n>
static __device__ __forceinline__ void setmaxnreg_dec(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}

template <int n>
static __device__ __forceinline__ void setmaxnreg_inc(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

#endif
