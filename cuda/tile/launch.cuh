// launch.cuh -- what a kernel asks of the chip, and of the kernel before it.
// Book: chapter 18.
// Checked by: every variant that includes it.
// Next: ../18_hopper/chunk_factors.cuh.
#ifndef KCP_TILE_LAUNCH_CUH
#define KCP_TILE_LAUNCH_CUH

#include "jitter.cuh"

#include <cuda_runtime.h>

// On the host. Kernels for sm_90a are for no other chip.
static inline int device_is_sm90(void)
{
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == 9;
}

// Programmatic dependent launch: a kernel launched with the attribute of programmatic
// stream serialization may begin before the kernel ahead of it in the stream has ended.

// griddepcontrol.launch_dependents, by any thread: once every block of this kernel has
// called it or has ended, the next kernel's blocks may begin. It promises nothing of
// what this kernel has written.
static __device__ __forceinline__ void griddepcontrol_launch_dependents(void)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    jitter();
}

// griddepcontrol.wait, by each thread that reads what came before: until the kernel
// ahead in the stream has ended and its writes are visible; and so with all before
// that.
static __device__ __forceinline__ void griddepcontrol_wait(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

#endif
