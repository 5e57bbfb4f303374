// wgmma.cuh -- warpgroup-level tensor-core products, sm_90a.
// Book: chapter 17, "A warpgroup"; chapter 18.
//
// A warpgroup is four warps. Operand A is 64 x 16 and D is 64 x N. Warp i holds rows 16
// i to 16 i + 15 of A and D, as fragments (mma.cuh). Operand B is in shared memory
// (swizzle.cuh, smem_desc.cuh). Each function of this file is called by the whole
// warpgroup. First, the threads that wrote B call fence_proxy_async and a barrier. Then
// the warpgroup calls wgmma_fence, the products, wgmma_commit, wgmma_wait, and
// fence_operand on the accumulators that are read next.
#ifndef KCP_TILE_WGMMA_CUH
#define KCP_TILE_WGMMA_CUH

#include "mma.cuh"
#include "smem_desc.cuh"

// wgmma.fence: makes earlier register writes visible to the following products.
static __device__ __forceinline__ void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// wgmma.commit_group: makes one group of the products issued since the previous commit.
static __device__ __forceinline__ void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// wgmma.wait_group: waits until at most `left` groups are in flight.
template <int left>
static __device__ __forceinline__ void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(left) : "memory");
}

// Prevents the compiler from moving accesses to d across this call (no instruction).
// Call this after wgmma_wait, because the compiler does not know that wgmma writes d
// asynchronously.
template <int tiles>
static __device__ __forceinline__ void fence_operand(float (*d)[4])
{
    #pragma unroll
    for (int i = 0; i < tiles; i++)
        asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
                     :: "memory");
}

#define D4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define D16(i) D4(i), D4(i + 1), D4(i + 2), D4(i + 3)

// wgmma.m64n64k16, A in registers: d [64,64] = a b, or d += a b if `add` is set. The
// descriptor of b is MN-major if `trans_b` is set, otherwise K-major.
template <int trans_b>
static __device__ __forceinline__ void wgmma_m64n64k16_rs(float (*d)[4],
                                                          const uint32_t *a, uint64_t b,
                                                          int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "{%32,%33,%34,%35}, %36, p, 1, 1, %38; }"
        : D16(0), D16(4) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add),
          "n"(trans_b));
}

// Computes d [64,64] = X Y^T over 16 columns of X and Y, or d += X Y^T if `add` is set.
// X and Y are in shared memory, with K-major descriptors.
static __device__ __forceinline__ void wgmma_m64n64k16_ss(float (*d)[4], uint64_t X,
                                                          uint64_t Y, int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "%32, %33, p, 1, 1, 0, 0; }"
        : D16(0), D16(4) : "l"(X), "l"(Y), "r"(add));
}

// Computes d [64,64] += A B, both operands in shared memory. If `trans_a` is set, A's
// descriptor is MN-major, so rows of the tile are columns of A. If `trans_b` is set,
// B's descriptor is MN-major, so rows of the tile are rows of B.
template <int trans_a, int trans_b>
static __device__ __forceinline__ void wgmma_m64n64k16_ss_trans(float (*d)[4],
                                                                uint64_t A, uint64_t B)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "%32, %33, 1, 1, 1, %34, %35;"
        : D16(0), D16(4) : "l"(A), "l"(B), "n"(trans_a), "n"(trans_b));
}

// wgmma.m64n128k16, A in registers: d [64,128] += a b.
template <int trans_b>
static __device__ __forceinline__ void wgmma_m64n128k16_rs(float (*d)[4],
                                                           const uint32_t *a,
                                                           uint64_t b)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
        "{%64,%65,%66,%67}, %68, 1, 1, 1, %69;"
        : D16(0), D16(4), D16(8), D16(12)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(trans_b));
}

// Issues d [64,64] = X Y^T without waiting. X and Y [64,K] are swizzle128 tiles.
template <int K>
static __device__ __forceinline__ void wgmma_tiles_begin(
    float (*d)[4], const unsigned char (*X)[TILE_BYTES],
    const unsigned char (*Y)[TILE_BYTES])
{
    wgmma_fence();
    #pragma unroll
    for (int p = 0; p < K / 16; p++)
        wgmma_m64n64k16_ss(
            d, smem_desc_k_major((const bf16 *)X[p / 4]) + p % 4 * DESC_STEP_K_MAJOR,
            smem_desc_k_major((const bf16 *)Y[p / 4]) + p % 4 * DESC_STEP_K_MAJOR, p);
    wgmma_commit();
}

static __device__ __forceinline__ void wgmma_tiles_wait(float (*d)[4])
{
    wgmma_wait<0>();
    fence_operand<8>(d);
}

#ifdef KCP_OMIT
// After a wait the four warps are equally far, so they must sleep again.
template <int left> static __device__ __forceinline__ void omit_wgmma_wait(void)
{
    wgmma_wait<left>();
    jitter();
}
#define wgmma_wait omit_wgmma_wait
#endif

#endif
