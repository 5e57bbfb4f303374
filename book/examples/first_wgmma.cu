/* first_wgmma.cu -- from an empty file: products of a warpgroup, both ways to read B.
 *     nvcc -O2 -gencode arch=compute_90a,code=sm_90a first_wgmma.cu && ./a.out
 * D = A B^T and E = A B for A, B [64,64] in bf16. Threads copy A and B by cp.async to
 * swizzle128 tiles, and arrive at a barrier when the copies are complete. For D the
 * rows of B's tile are columns of the factor (K-major), for E they are rows (MN-major).
 * Book: "From an empty file", chapter T. */
#include <cuda_bf16.h>
#include <stdint.h>
#include <stdio.h>

typedef __nv_bfloat16 bf16;
enum { N = 64, THREADS = 128 };
struct data { bf16 A[N][N], B[N][N]; float D[N][N], E[N][N]; };
#define AT(p) ((uint32_t)__cvta_generic_to_shared(p))

/* Row r of a tile begins at byte 128 r. Its piece p of 16 bytes is at position
 * p ^ (r % 8). Each thread copies 4 of the 512 pieces. */
static __device__ void copy_tile(bf16 *tile, const bf16 (*from)[N])
{
    for (int e = threadIdx.x; e < N * 8; e += THREADS) {
        const int r = e / 8, p = e % 8;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     ::"r"(AT(tile) + r * 128 + ((p ^ r % 8) << 4)),
                     "l"(&from[r][p * 8]) : "memory");
    }
}

/* In units of 16 bytes: the address (bits 0-13), the distance of two blocks of 64
 * columns (16-29, not read here), and that of two groups of eight rows, 1024 bytes
 * (32-45). Bits 62-63: 1 is swizzle128. The tile begins at a multiple of 1024. */
static __device__ uint64_t descriptor(const bf16 *tile)
{
    return (uint64_t)1 << 62 | (uint64_t)(1024 / 16) << 32 | (uint64_t)1 << 16 |
           (AT(tile) >> 4 & 0x3fff);
}

/* d += A B over 16 of the 64 summed columns. TRANS 1: B's descriptor is MN-major. */
template <int TRANS>
static __device__ void wgmma(float d[32], uint64_t A, uint64_t B)
{
    #define D(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,"
                 "%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
                 " %32, %33, 1, 1, 1, 0, %34;"
                 : D(0), D(4), D(8), D(12), D(16), D(20), D(24), D(28)
                 : "l"(A), "l"(B), "n"(TRANS));
}

/* Warp i has rows 16 i to 16 i + 15. A lane has, in each block of eight columns, two
 * neighbours of row lane / 4 and two of row lane / 4 + 8. */
static __device__ void store(float (*D)[N], const float d[32])
{
    const int w = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = 0; i < 32; i++)
        D[16 * w + lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}

/* The compiler must not move accesses to d and e across this call. */
static __device__ void pin(float d[32], float e[32])
{
    for (int i = 0; i < 32; i++) asm volatile("" : "+f"(d[i]), "+f"(e[i]) :: "memory");
}

static __global__ void products(data *io)
{
    __shared__ __align__(1024) bf16 a[N * N], b[N * N];
    __shared__ uint64_t bar;
    float d[32] = {}, e[32] = {};
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 128;" ::"r"(AT(&bar)));
    __syncthreads();                     /* the barrier exists */
    copy_tile(a, io->A);
    copy_tile(b, io->B);
    /* One arrival per thread, when its copies are complete. With .noinc these are the
     * 128 arrivals of the barrier's count; without it, each would be an extra one. */
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(AT(&bar))
                 : "memory");
    for (int done = 0; !done;)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0;\n"
                     "selp.b32 %0, 1, 0, p; }" : "=r"(done) : "r"(AT(&bar)) : "memory");
    /* wgmma is another proxy than cp.async, which wrote the tiles. */
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    const uint64_t x = descriptor(a), y = descriptor(b);
    pin(d, e);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < N / 16; k++) {
        wgmma<0>(d, x + k * (32 >> 4), y + k * (32 >> 4));        /* 16 columns on */
        wgmma<1>(e, x + k * (32 >> 4), y + k * (16 * 128 >> 4));  /* 16 rows on */
    }
    asm volatile("wgmma.commit_group.sync.aligned;\n"
                 "wgmma.wait_group.sync.aligned 0;" ::: "memory");
    pin(d, e);
    store(io->D, d);
    store(io->E, e);
}

int main(void)
{
    data *x;
    if (cudaMallocManaged(&x, sizeof *x)) return 2;
    for (int e = 0; e < N * N; e++) {    /* small integers, so every sum is exact */
        x->A[e / N][e % N] = __float2bfloat16((float)(e * 7 % 11 - 5));
        x->B[e / N][e % N] = __float2bfloat16((float)(e * 5 % 13 - 6));
    }
    products<<<1, THREADS>>>(x);
    const int failed = cudaDeviceSynchronize();
    int wrong = 0;
    for (int e = 0; e < N * N && !failed; e++) {
        float ABt = 0, AB = 0;
        for (int p = 0, i = e / N, j = e % N; p < N; p++) {
            ABt += __bfloat162float(x->A[i][p]) * __bfloat162float(x->B[j][p]);
            AB += __bfloat162float(x->A[i][p]) * __bfloat162float(x->B[p][j]);
        }
        wrong += (x->D[e / N][e % N] != ABt) + (x->E[e / N][e % N] != AB);
    }
    printf("first_wgmma: error %d, %d of %d numbers wrong\n", failed, wrong, 2 * N * N);
    return failed || wrong;
}
