// poison.cu -- what kcp-check-omit has on the GPU: NaN in shared memory, late copies.
// Book: users.md, "Find a race".
//
// Shared memory keeps its bytes when a block ends. If a kernel runs again with the same
// inputs, a block without a wait would find the right bytes of the previous run.
#include "cuda/tile/tma.cuh"

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

#ifdef KCP_OMIT
template <class X>
static int take(X **p, size_t count)
{
    return cudaMalloc(p, count * sizeof **p) || cudaMemset(*p, 0, count * sizeof **p);
}

// In six of sixteen rows one warp is slow, in three one warpgroup, and others sleep as
// usual. In two rows only a slow warp sleeps. Four rows are by role. In one no warp
// sleeps.
static __global__ void fill_paces(unsigned char *pace)
{
    const int row = blockIdx.x, way = row % 16;
    for (int i = threadIdx.x; i < OMIT_WARPS; i += blockDim.x) {
        const int warps = i / 32 ? i / 32 : 32, by = way > 5 && way < 9 ? 4 : 1;
        const int parts = (warps + by - 1) / by, slow = row * 7 % parts == i % 32 / by;
        pace[row * OMIT_WARPS + i] =
            way == 15 ? OMIT_AWAKE : way > 10 ? OMIT_BY_ROLE :
            slow ? OMIT_SLOW : way > 8 ? OMIT_AWAKE : OMIT_USUAL;
    }
}

// Returns the value of the variable `omission`, or NULL if the GPU has no memory.
// Copies by cp.async are late if a wait for copies or a barrier is left out.
extern "C" const void *kcp_omission_of(unsigned place, unsigned kind,
                                       unsigned *hung, unsigned char *marks,
                                       size_t *bytes)
{
    static struct omission x;
    const int has_copies = kind == OMIT_COPY_WAIT || kind == OMIT_BARRIERS;
    x.place = place;
    x.kind = kind;
    x.hung = hung;
    x.reached = marks;
    *bytes = sizeof x;
    x.accesses = kind == OMIT_FULL_WAIT || kind == OMIT_LATE_LOADS || has_copies;
    if (take(&x.role, OMIT_WARPS) || take(&x.pace, OMIT_PACES * OMIT_WARPS) ||
        take(&x.bar, OMIT_BARS) || take(&x.thread, OMIT_THREADS) ||
        take(&x.stores, OMIT_STORERS) || take(&x.sink, OMIT_SINK) ||
        take(&x.loads, OMIT_BLOCKS * OMIT_LOADS) ||
        (has_copies &&
         cudaMalloc(&x.copies, (size_t)OMIT_QUEUE * OMIT_THREADS * sizeof *x.copies)))
        return NULL;
    // Without a place, a kernel that has all its waits must be right.
    if (!place && cudaMemset(x.bar, 1, OMIT_BARS)) return NULL;
    fill_paces<<<OMIT_PACES, 1024>>>(x.pace);
    return cudaDeviceSynchronize() ? NULL : &x;
}
#endif
