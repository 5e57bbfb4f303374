// ladder_trace.cu -- records when warps of chapter 17's last kernel wait and compute.
// Book: chapter 17, "Warps with roles".
//
//   nvcc -gencode arch=compute_90a,code=sm_90a -Iref -I. book/figures/ladder_trace.cu
//   ./a.out > book/data/ladder-trace.tsv              needs one GPU with sm_90a
//
// The kernel runs the functions of v8_tma_sm90.cu. In block 0, barrier calls and
// waits also record the cycle counter. An additional thread records each copy's end.
#include "cuda/17_ladder/ladder.cuh"
#include "cuda/tile/setmaxnreg.cuh"
#include "cuda/tile/tma.cuh"
#include "cuda/tile/warpgroup_store.cuh"
#include <stdio.h>
#include <vector>

enum { GROUP_0, GROUP_1, PRODUCER, COPIES, ROLES, MOST = 2048 };

static __device__ long long at[ROLES][MOST];

// In block 0, appends the cycle counter to the events of a role. -1 clears all events.
static __device__ __forceinline__ void event(int role)
{
    static __shared__ int n[ROLES];
    if (role < 0) {
        for (int &x : n) x = 0;
    } else if (blockIdx.x + blockIdx.y == 0 && n[role] < MOST) {
        at[role][n[role]++] = clock64();
    }
}

static __device__ __forceinline__ void event_of_thread(void)
{
    if (threadIdx.x % 128 == 0) event(threadIdx.x / 128);
}

static __device__ __forceinline__ void traced_wait(uint64_t *bar, int phase)
{
    event_of_thread();
    mbarrier_wait(bar, phase);
    event_of_thread();
}

static __device__ __forceinline__ void traced_arrive(uint64_t *bar)
{
    mbarrier_arrive(bar);
    event_of_thread();
}

static __device__ __forceinline__ void traced_announce(uint64_t *bar, uint32_t bytes)
{
    event_of_thread();
    mbarrier_arrive_expect_tx(bar, bytes);
}

template <int N> static __device__ __forceinline__ void traced_wgmma_wait(void)
{
    wgmma_wait<N>();
    event_of_thread();
}

#define mbarrier_wait traced_wait
#define mbarrier_arrive traced_arrive
#define mbarrier_arrive_expect_tx traced_announce
#define wgmma_wait traced_wgmma_wait
#undef KCP_VARIANT                   // this program has no table of variants
#define KCP_VARIANT(name) const struct kcp_variant name
#include "cuda/17_ladder/v8_tma_sm90.cu"
#undef mbarrier_wait

// The kernel `ladder`, with an additional thread that waits for each copy.
static __global__ __launch_bounds__(CONSUMERS + 128, 1) void traced_ladder(
    const struct kcp_ladder a, const __grid_constant__ struct maps map, int chunks)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct stages *m = (struct stages *)shared;

    if (threadIdx.x == 0) {
        event(-1);
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(&m->full[i], 1);
            mbarrier_init(&m->empty[i], CONSUMERS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS) {
        setmaxnreg_dec<40>();
        if (threadIdx.x == CONSUMERS) producer_warp(a, map, 0, blockIdx.y, m);
        for (int c = 0; threadIdx.x == CONSUMERS + 32 && c < chunks; c++) {
            mbarrier_wait(&m->full[c % STAGES], c / STAGES);
            event(COPIES);
        }
    } else {
        setmaxnreg_inc<232>();
        consumer_warpgroup(a, 0, blockIdx.y, m);
    }
}

static void *bytes(size_t n, int value)
{
    void *p = NULL;
    if (cudaMalloc(&p, n) || cudaMemset(p, value, n)) exit(1);
    return p;
}

int main(void)
{
    const int heads = 96, chunks = 128, from = 64, shown = 6, tokens = chunks * CHUNK;
    const size_t n = (size_t)tokens * heads * DIM;
    const int cu[] = { 0, tokens }, cn[] = { 0, chunks };
    const int shared = sizeof(struct stages);
    struct kcp_ladder a = {};
    struct maps map;
    a.T = tokens, a.H = a.HV = heads, a.K = a.V = DIM, a.C = CHUNK, a.NS = 1;
    a.u = bytes(2 * n, 0x3c), a.w = bytes(2 * n, 0), a.kg = bytes(2 * n, 0x38);
    a.decay = bytes(4 * (size_t)chunks * heads * DIM, 0x3f), a.v_new = bytes(2 * n, 0);
    a.h_out = bytes(4 * (size_t)heads * DIM * DIM, 0);
    a.cu = (const int *)bytes(sizeof cu, 0), a.cn = (const int *)bytes(sizeof cn, 0);
    cudaMemcpy((void *)a.cu, cu, sizeof cu, cudaMemcpyHostToDevice);
    cudaMemcpy((void *)a.cn, cn, sizeof cn, cudaMemcpyHostToDevice);
    if (!tensor_map_of_heads(&map.w, a.w, tokens, heads, DIM, CHUNK)
        || !tensor_map_of_heads(&map.kg, a.kg, tokens, heads, DIM, CHUNK)
        || !tensor_map_of_heads(&map.u, a.u, tokens, heads, DIM, CHUNK)) return 1;
    cudaFuncSetAttribute(traced_ladder, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         shared);
    for (int i = 0; i < 3; i++)
        traced_ladder<<<dim3(1, heads), CONSUMERS + 128, shared>>>(a, map, chunks);
    std::vector<long long> t(ROLES * MOST);
    if (cudaMemcpyFromSymbol(t.data(), at, sizeof at)) return 1;
    cudaDeviceProp gpu;
    cudaGetDeviceProperties(&gpu, 0);
    printf("# %s, %d heads, %d chunks per head: cycles of chunks %d to %d\n", gpu.name,
           heads, chunks, from, from + shown - 1);
    printf("chunk\tannounced\tfull\twait0\tstart0\tdone0\trest0\tempty0");
    printf("\twait1\tstart1\tdone1\trest1\tempty1\n");
    const long long zero = t[GROUP_0 * MOST + 5 * from];
    for (int c = from; c < from + shown; c++) {
        const int announced = c < STAGES ? c : STAGES + 3 * (c - STAGES) + 2;
        printf("%d\t%lld\t%lld", c, t[PRODUCER * MOST + announced] - zero,
               t[COPIES * MOST + c] - zero);
        for (int g = 0; g < 2; g++)
            for (int e = 0; e < 5; e++)
                printf("\t%lld", t[g * MOST + 5 * c + e] - zero);
        printf("\n");
    }
    return cudaGetLastError() != cudaSuccess;
}
