// poison.cu -- fills the shared memory of every SM with NaN.
// Book: users.md, "Find a race".
//
// Shared memory keeps its bytes when a block ends. If a kernel runs again with the same
// inputs, a block without a wait would find the right bytes of the previous run.
#include <cuda_runtime_api.h>

static __global__ void poison(void)
{
    extern __shared__ volatile unsigned words[];
    unsigned bytes;
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    for (unsigned i = threadIdx.x; i < bytes / 4; i += blockDim.x) words[i] = ~0u;
}

// A block takes all shared memory of an SM, so `sms` blocks run on different SMs.
extern "C" int kcp_poison(int sms, struct CUstream_st *stream)
{
    const size_t bytes = 227 * 1024;
    cudaFuncSetAttribute(poison, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    poison<<<sms, 512, bytes, stream>>>();
    return cudaPeekAtLastError() != cudaSuccess;
}
