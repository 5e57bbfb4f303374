// launch.cuh -- what a kernel asks of the chip before it is launched.
// Book: chapter 18.
// Checked by: every variant that includes it.
// Next: ../18_hopper/v3_records.cuh.
#ifndef KCP_TILE_LAUNCH_CUH
#define KCP_TILE_LAUNCH_CUH

#include <cuda_runtime.h>

// Kernels for sm_90a are for no other chip.
static inline int device_is_sm90(void)
{
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == 9;
}

#endif
