/* first_tma.cu -- from an empty file: a ring of tiles that TMA fills for two blocks.
 *     nvcc -O2 -gencode arch=compute_90a,code=sm_90a first_tma.cu
 *     ./a.out && ./a.out hang
 * y[b] = X w[b] for X [T,K] and two vectors w. A cluster of two blocks works on the
 * same tiles of X, block b with w[b]. Each block loads half of the rows of a tile and
 * multicasts them to both blocks. One warp of a block is the producer, four consume.
 * With "hang", one warp does not release its stages: the wait that hangs is printed.
 * Book: "From an empty file", chapter T. */
#include <cudaTypedefs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 4001, K = 64, ROWS = 32, STAGES = 8, WARPS = 4, CLUSTERS = 5 };
enum { TILES = (T + ROWS - 1) / ROWS, HALF = ROWS / 2 };
struct ring { float tile[STAGES][ROWS][K]; uint64_t full[STAGES], empty[STAGES]; };
#define CHECK(call) check((int)(call), #call)
static void check(int failed, const char *call)
{
    if (failed) printf("%s: %s\n", call, cudaGetErrorString((cudaError_t)failed));
    if (failed) exit(1);
}

static __device__ uint32_t at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
static __device__ void cluster_sync(void)
{
    __syncwarp();                           /* .aligned: all lanes together */
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
                 ::: "memory");
}
/* Waits for phase number `phase` of a barrier. After two seconds, prints which wait it
 * is and stops the kernel: without this, a missing arrival makes the kernel hang. */
static __device__ void wait(uint64_t *bar, const char *name, int stage, int phase)
{
    const long long from = clock64();
    for (int done = 0; !done;) {
        asm volatile("{ .reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
                     "selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(at(bar)), "r"(phase & 1) : "memory");
        if (done || clock64() - from < 4000000000 || threadIdx.x % 32) continue;
        printf("block %d, warp %d waits for %s[%d], phase %d\n", blockIdx.x,
               threadIdx.x / 32, name, stage, phase);
        __trap();
    }
}

static __global__ void fill(float *X, float *w)
{
    asm volatile("griddepcontrol.launch_dependents;");   /* `product` may start */
    for (int e = threadIdx.x; e < T * K; e += blockDim.x) X[e] = e * 7 % 11 - 5;
    for (int e = threadIdx.x; e < 2 * K; e += blockDim.x) w[e] = e * 5 % 7 - 3;
}

static __device__ void produce(ring &s, const CUtensorMap &map, int rank)
{
    const uint16_t both = 3;                           /* one bit per block */
    for (int tile = blockIdx.x / 2, i = 0; tile < TILES; tile += CLUSTERS, i++) {
        const int stage = i % STAGES, turn = i / STAGES;
        if (turn) wait(&s.empty[stage], "empty", stage, turn - 1);
        /* The bytes of both halves: this block's and the other block's. */
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     ::"r"(at(&s.full[stage])), "r"(ROWS * K * 4) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                     ".mbarrier::complete_tx::bytes.multicast::cluster"
                     " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(
                         at(s.tile[stage][rank * HALF])),
                     "l"(&map), "r"(0), "r"(tile * ROWS + rank * HALF),
                     "r"(at(&s.full[stage])), "h"(both) : "memory");
    }
}

static __device__ void consume(ring &s, const float *w, float *y, int warp, int forgets)
{
    const int lane = threadIdx.x % 32;
    for (int tile = blockIdx.x / 2, i = 0; tile < TILES; tile += CLUSTERS, i++) {
        const int stage = i % STAGES;
        wait(&s.full[stage], "full", stage, i / STAGES);
        for (int r = warp; r < ROWS; r += WARPS) {
            const float *x = s.tile[stage][r];
            float sum = x[lane] * w[lane] + x[lane + 32] * w[lane + 32];
            for (int b = 16; b; b /= 2) sum += __shfl_xor_sync(~0u, sum, b);
            if (lane == 0 && tile * ROWS + r < T) y[tile * ROWS + r] = sum;
        }
        __syncwarp();                                  /* all lanes have read */
        if (lane < 2 && !forgets)                      /* lane b releases to block b */
            asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
                         "mbarrier.arrive.shared::cluster.b64 _, [there]; }"
                         ::"r"(at(&s.empty[stage])), "r"(lane) : "memory");
    }
}

static __global__ void product(const __grid_constant__ CUtensorMap map, const float *w,
                               float *y, int hang)
{
    extern __shared__ __align__(128) unsigned char memory[];
    ring &s = *(ring *)memory;
    const int rank = blockIdx.x % 2, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {             /* full: the producer arrives; */
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at(&s.full[i])));
            asm volatile("mbarrier.init.shared.b64 [%0], %1;"    /* empty: all warps */
                         ::"r"(at(&s.empty[i])), "n"(2 * WARPS));       /* of both */
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n"
                     "fence.proxy.async;" ::: "memory");
    }
    cluster_sync();                     /* both blocks' barriers exist */
    asm volatile("griddepcontrol.wait;" ::: "memory");       /* X and w are written */
    if (warp < WARPS) consume(s, w + rank * K, y + rank * T, warp, hang && warp == 3);
    else if (threadIdx.x % 32 == 0) produce(s, map, rank);
    cluster_sync();                     /* the other block may write to this one */
}

int main(int argc, char **argv)
{
    float *X, *w, *y;
    CHECK(cudaMallocManaged(&X, sizeof *X * T * K));
    CHECK(cudaMallocManaged(&w, sizeof *w * 2 * K));
    CHECK(cudaMallocManaged(&y, sizeof *y * 2 * T));
    void *entry = NULL;
    cudaDriverEntryPointQueryResult how;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                           cudaEnableDefault, &how));
    CUtensorMap map;                    /* the innermost dimension is first */
    const cuuint64_t size[2] = { K, T }, step[1] = { K * 4 };
    const cuuint32_t box[2] = { K, HALF }, every[2] = { 1, 1 };
    CHECK(((PFN_cuTensorMapEncodeTiled_v12000)entry)(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, X, size, step, box, every,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));

    cudaLaunchAttribute with[2] = {};
    with[0].id = cudaLaunchAttributeClusterDimension;
    with[0].val.clusterDim.x = 2;
    with[0].val.clusterDim.y = with[0].val.clusterDim.z = 1;
    with[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    with[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3(2 * CLUSTERS);
    launch.blockDim = dim3(32 * (WARPS + 1));
    launch.dynamicSmemBytes = sizeof(ring);            /* above 48 KiB: ask for it */
    launch.attrs = with;
    launch.numAttrs = 2;
    CHECK(cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               sizeof(ring)));
    const int hang = argc > 1 && !strcmp(argv[1], "hang");
    fill<<<1, 256>>>(X, w);
    CHECK(cudaLaunchKernelEx(&launch, product, map, (const float *)w, y, hang));
    const cudaError_t end = cudaDeviceSynchronize();
    if (hang) return printf("hang: %s\n", cudaGetErrorString(end)) < 0 || !end;
    CHECK(end);
    int wrong = 0;
    for (int b = 0; b < 2; b++)
        for (int t = 0; t < T; t++) {
            float sum = 0;                             /* of integers, so it is exact */
            for (int i = 0; i < K; i++) sum += X[t * K + i] * w[b * K + i];
            wrong += y[b * T + t] != sum;
        }
    printf("first_tma: %d of %d numbers are wrong\n", wrong, 2 * T);
    return wrong > 0;
}
