// launch_shared.cuh -- host code: checks of alignment, launches with shared memory.
// Book: chapter 04, "Code: kernels".
#pragma once

#include "device.cuh"

// Returns 1 if all addresses are multiples of 16, as 16-byte copies require.
template <int n>
static inline int all_aligned_16(const void *const (&p)[n])
{
    for (const void *x : p)
        if ((uintptr_t)x & 15) return 0;
    return 1;
}

// Launches kernel(args...) with `bytes` of dynamic shared memory, also above 48 KiB.
template <class... Params, class... Args>
static int launch_shared(void (*kernel)(Params...), dim3 blocks, int threads,
                         size_t bytes, struct CUstream_st *stream, const Args &...args)
{
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<blocks, threads, bytes, stream>>>(args...);
    return launched();
}
