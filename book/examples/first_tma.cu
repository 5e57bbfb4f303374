/* first_tma.cu -- from an empty file: a ring of tiles that TMA fills for two blocks.
 *     nvcc -O2 -gencode arch=compute_90a,code=sm_90a first_tma.cu && ./a.out [hang]
 * y[b] = X w[b] for X [T,K], w [2,K]. Each block of a cluster loads half of a tile of X
 * and multicasts it to both. Warp 4 of a block is the producer, warps 0 to 3 consume;
 * with "hang", warp 3 does not release its stages, and the waits that hang are printed.
 * Book: "From an empty file", chapter T. */
#include <cudaTypedefs.h>
#include <stdint.h>
#include <stdio.h>

enum { T = 4001, K = 64, WARPS = 4, ROWS = 128, HALF = 64, STAGES = 4, TILES = 32 };
struct data { float X[T][K], w[2][K], y[2][T]; int hang; };
struct ring { float tile[STAGES][ROWS][K]; uint64_t full[STAGES], empty[STAGES]; };
#define AT(p) ((uint32_t)__cvta_generic_to_shared(p))
static __device__ void cluster_sync(void)
{
    __syncwarp();                           /* .aligned: all lanes together */
    asm volatile("barrier.cluster.arrive.aligned;\n"
                 "barrier.cluster.wait.aligned;" ::: "memory");
}
/* Waits for phase number `phase` of a barrier. After two seconds, prints which wait it
 * is and stops the kernel: without this, a missing arrival makes the kernel hang. */
static __device__ void wait(uint64_t *bar, const char *name, int stage, int phase)
{
    const long long from = clock64();
    for (int done = 0; !done;) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2;"
                     "selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(AT(bar)), "r"(phase & 1) : "memory");
        if (done || clock64() - from < 4000000000 || threadIdx.x % 32) continue;
        printf("block %d, warp %d waits for %s[%d], phase %d\n", blockIdx.x,
               threadIdx.x / 32, name, stage, phase);
        while (clock64() - from < 6000000000) continue;    /* other waits print, too */
        __trap();
    }
}

static __device__ void produce(ring &s, const CUtensorMap &map, int rank)
{
    for (int i = 0; i < TILES; i++) {
        const int stage = i % STAGES, turn = i / STAGES;
        if (turn) wait(&s.empty[stage], "empty", stage, turn - 1);
        /* The bytes of both halves: this block's and the other block's. */
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     ::"r"(AT(&s.full[stage])), "n"(ROWS * K * 4) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                     ".mbarrier::complete_tx::bytes.multicast::cluster"
                     " [%0], [%1, {0, %2}], [%3], %4;" ::"r"(
                         AT(s.tile[stage][rank * HALF])), "l"(&map),
                     "r"(i * ROWS + rank * HALF), "r"(AT(&s.full[stage])),
                     "h"((uint16_t)3) : "memory");     /* 3: one bit per block */
    }
}

static __device__ void consume(ring &s, const float *w, float *y, int forgets)
{
    for (int i = 0; i < TILES; i++) {
        const int stage = i % STAGES, row = threadIdx.x, lane = row % 32;
        float sum = 0;
        wait(&s.full[stage], "full", stage, i / STAGES);
        for (int p = lane; p < lane + K; p++)          /* lanes in different banks */
            sum += s.tile[stage][row][p % K] * w[p % K];
        if (i * ROWS + row < T) y[i * ROWS + row] = sum;
        __syncwarp();                                  /* all lanes have read */
        if (lane < 2 && !forgets)                      /* lane b releases to block b */
            asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
                         "mbarrier.arrive.shared::cluster.b64 _, [there]; }"
                         ::"r"(AT(&s.empty[stage])), "r"(lane) : "memory");
    }
}

static __global__ void product(const __grid_constant__ CUtensorMap map, data *x)
{
    extern __shared__ __align__(128) ring s[];
    const int rank = blockIdx.x % 2, warp = threadIdx.x / 32;
    for (int i = 0; i < STAGES && threadIdx.x == 0; i++)
        asm volatile("mbarrier.init.shared.b64 [%0], 1;\n"    /* full: the producer */
                     "mbarrier.init.shared.b64 [%1], %2;\n"   /* empty: warps of both */
                     "fence.mbarrier_init.release.cluster;\nfence.proxy.async;"
                     ::"r"(AT(&s->full[i])), "r"(AT(&s->empty[i])), "n"(2 * WARPS)
                     : "memory");
    cluster_sync();                     /* both blocks' barriers exist */
    if (warp < WARPS) consume(*s, x->w[rank], x->y[rank], x->hang && warp == 3);
    else if (threadIdx.x % 32 == 0) produce(*s, map, rank);
    cluster_sync();                     /* the other block may write to this one */
}

int main(int argc, char **)
{
    data *x = NULL;
    void *entry = NULL;
    if (cudaMallocManaged(&x, sizeof *x) || cudaGetDriverEntryPointByVersion(
            "cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault)) return 2;
    for (int e = 0; e < T * K; e++) x->X[e / K][e % K] = e * 7 % 11 - 5;
    for (int e = 0; e < 2 * K; e++) x->w[e / K][e % K] = e * 5 % 7 - 3;
    x->hang = argc > 1;
    CUtensorMap map;                    /* the innermost dimension is first */
    const cuuint64_t size[2] = { K, T }, step[1] = { K * 4 };
    const cuuint32_t box[2] = { K, HALF }, every[2] = { 1, 1 };
    int failed = ((PFN_cuTensorMapEncodeTiled_v12000)entry)(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, x->X, size, step, box, every,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    cudaLaunchAttribute cluster = { cudaLaunchAttributeClusterDimension };
    cluster.val.clusterDim.x = 2;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t launch = { 2, 32 * (WARPS + 1), sizeof(ring), 0, &cluster, 1 };
    failed |= cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   sizeof(ring));          /* more than 48 KiB */
    failed |= cudaLaunchKernelEx(&launch, product, map, x);
    failed |= cudaDeviceSynchronize();
    int wrong = 0;
    for (int e = 0; e < 2 * T && !failed; e++) {
        float sum = 0;                                     /* of integers: exact */
        for (int p = 0; p < K; p++) sum += x->X[e % T][p] * x->w[e / T][p];
        wrong += x->y[e / T][e % T] != sum;
    }
    printf("first_tma: error %d, %d of %d numbers wrong\n", failed, wrong, 2 * T);
    return failed || wrong;
}
