// narrow.cuh -- steps of 32 rows: a narrow wgmma, a test of a barrier, words on chip.
// Book: chapter 18, "Code: kernels".  Checked by: every variant that includes it.
// Next: ../18_hopper/forward_one/storage.cuh.
#ifndef KCP_TILE_NARROW_CUH
#define KCP_TILE_NARROW_CUH

#include "mbarrier.cuh"
#include "wgmma.cuh"

// wgmma.m64n32k16, A in registers: d [64,32] = a b, or += with add; b is K-major.
static __device__ __forceinline__ void wgmma_m64n32k16_rs(float (*d)[4],
                                                          const uint32_t *a, uint64_t b,
                                                          int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
        "{%16,%17,%18,%19}, %20, p, 1, 1, 0; }"
        : D16(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

// mbarrier.test_wait.parity, by a whole warp: 1 in all lanes if phase number `phase` is
// over, else 0. It does not wait.
static __device__ __forceinline__ int mbarrier_test(uint64_t *bar, int phase)
{
    int y;
    asm volatile("{ .reg .pred p;\n"
                 "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
                 "selp.b32 %0, 1, 0, p; }"
                 : "=r"(y) : "r"(smem_addr(bar)), "r"(phase & 1) : "memory");
    jitter();
    return __any_sync(~0u, y);
}

// elect.sync: 1 in one lane of the warp, 0 in the others.
static __device__ __forceinline__ int elect_sync(void)
{
    int y;
    asm volatile("{ .reg .pred p;\n elect.sync _|p, 0xffffffff;\n"
                 "selp.b32 %0, 1, 0, p; }" : "=r"(y));
    return y;
}

// Four bytes of shared memory by their 32-bit address: one register per pointer.
static __device__ __forceinline__ uint32_t ld_shared_b32(uint32_t at)
{
    uint32_t y;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(y) : "r"(at) : "memory");
    return y;
}

static __device__ __forceinline__ void st_shared_b32(uint32_t at, uint32_t x)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}

#endif
