// launch.cuh -- device check and programmatic dependent launch.
// Book: chapter 18.
// Checked by: every variant that includes it.
// Next: ../18_hopper/chunk_factors.cuh.
#ifndef KCP_TILE_LAUNCH_CUH
#define KCP_TILE_LAUNCH_CUH

#include "jitter.cuh"

#include <cuda_runtime.h>

// Host. Code compiled for sm_90a runs on compute capability 9.0 only.
static inline int device_is_sm90(void)
{
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == 9;
}

// Programmatic dependent launch: a kernel launched with the attribute "programmatic
// stream serialization" may start before the previous kernel in the stream has
// finished.

// griddepcontrol.launch_dependents, called by any thread: the next kernel's blocks may
// start once every block of this kernel has called it or has exited. It does not make
// this kernel's writes visible.
static __device__ __forceinline__ void griddepcontrol_launch_dependents(void)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    jitter();
}

// griddepcontrol.wait, called by each thread that reads results of earlier kernels:
// waits until the previous kernel in the stream has finished and its writes are
// visible. By induction this covers all earlier kernels.
static __device__ __forceinline__ void griddepcontrol_wait(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

#endif
