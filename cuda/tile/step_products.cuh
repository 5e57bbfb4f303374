// step_products.cuh -- wgmma for steps of 32 tokens, loads from 32-bit addresses.
// Book: chapter 18b.
#pragma once

#include "mbarrier.cuh"
#include "wgmma.cuh"

// If `trans_a` is set, operand a is contiguous along M. If `trans_b` is set, operand b
// is contiguous along N. If `minus` is set, d -= a b. If `add` (a compile-time
// constant) is 0, d = a b.
#define A4(a) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define D16_LIST "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
#define D32_LIST                                                                      \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                         \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "

// Computes d [64,32] (+)= a b with a in registers.
template <int trans_b, int minus>
static __device__ __forceinline__ void wgmma_step_rs(float (*d)[4], const uint32_t *a,
                                                     uint64_t b, int add)
{
    if (add)
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " D16_LIST
                     "{%16,%17,%18,%19}, %20, 1, %22, 1, %21;"
                     : D16(0) : A4(a), "l"(b), "n"(trans_b), "n"(minus ? -1 : 1));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " D16_LIST
                     "{%16,%17,%18,%19}, %20, 0, %22, 1, %21;"
                     : D16(0) : A4(a), "l"(b), "n"(trans_b), "n"(minus ? -1 : 1));
}

// Computes d [64,32] (+)= a b, both operands in shared memory.
template <int trans_a, int trans_b>
static __device__ __forceinline__ void wgmma_step_ss(float (*d)[4], uint64_t a,
                                                     uint64_t b, int add)
{
    if (add)
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " D16_LIST
                     "%16, %17, 1, 1, 1, %18, %19;"
                     : D16(0) : "l"(a), "l"(b), "n"(trans_a), "n"(trans_b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " D16_LIST
                     "%16, %17, 0, 1, 1, %18, %19;"
                     : D16(0) : "l"(a), "l"(b), "n"(trans_a), "n"(trans_b));
}

// Computes d [64,16] (+)= a b, both operands in shared memory.
template <int trans_a, int trans_b>
static __device__ __forceinline__ void wgmma_half_step_ss(float (*d)[4], uint64_t a,
                                                          uint64_t b, int add)
{
    if (add)
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
                     "{%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 1, 1, 1, %10, %11;"
                     : D4(0), D4(1) : "l"(a), "l"(b), "n"(trans_a), "n"(trans_b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
                     "{%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 0, 1, 1, %10, %11;"
                     : D4(0), D4(1) : "l"(a), "l"(b), "n"(trans_a), "n"(trans_b));
}

// Computes d [64,64] (+)= a b, where b is two adjacent tiles, each for 32 columns of d.
template <int trans_a, int trans_b>
static __device__ __forceinline__ void wgmma_two_steps_ss(float (*d)[4], uint64_t a,
                                                          uint64_t b, int add)
{
    if (add)
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " D32_LIST
                     "%32, %33, 1, 1, 1, %34, %35;"
                     : D16(0), D16(4) : "l"(a), "l"(b), "n"(trans_a), "n"(trans_b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " D32_LIST
                     "%32, %33, 0, 1, 1, %34, %35;"
                     : D16(0), D16(4) : "l"(a), "l"(b), "n"(trans_a), "n"(trans_b));
}

static __device__ __forceinline__ void wgmma_two_steps_rs(float (*d)[4],
                                                          const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " D32_LIST
                 "{%32,%33,%34,%35}, %36, 1, 1, 1, 0;"
                 : D16(0), D16(4) : A4(a), "l"(b));
}

// Computes d [64,128] += a b, or d -= a b if `minus` is set. Operand b is MN-major.
template <int minus>
static __device__ __forceinline__ void wgmma_state_rs(float (*d)[4], const uint32_t *a,
                                                      uint64_t b)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
        "{%64,%65,%66,%67}, %68, 1, %69, 1, 1;"
        : D16(0), D16(4), D16(8), D16(12)
        : A4(a), "l"(b), "n"(minus ? -1 : 1));
}
#undef A4
#undef D16_LIST
#undef D32_LIST

// Returns the descriptor of the operand that starts at byte 16 * base + at. `high` has
// the swizzle mode and the distance between groups of eight rows, and `lead` is the
// leading offset. Distance and offset are in units of 16 bytes.
enum {
    DESC_HIGH_128 = 1u << 30 | 1024 >> 4,
    DESC_HIGH_64 = 2u << 30 | 512 >> 4,
    DESC_HIGH_CORES = 2048 >> 4,         // core_offset(i + 8, v) - core_offset(i, v)
    DESC_LEAD_CORES = 128 >> 4           // core_offset(i, v + 8) - core_offset(i, v)
};

static __device__ __forceinline__ uint64_t smem_desc_at(uint32_t base, uint32_t high,
                                                        uint32_t lead, int at)
{
    return (uint64_t)high << 32 | (base + (lead << 16) + (at >> 4));
}

// Loads four bytes of shared memory. The 32-bit address takes only one register.
static __device__ __forceinline__ uint32_t word_at(uint32_t at)
{
    uint32_t y;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(y) : "r"(at) : "memory");
    return y;
}

static __device__ __forceinline__ void put_word(uint32_t at, uint32_t x)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}

// Executes ldmatrix (fragment.cuh) with a 32-bit shared address.
static __device__ __forceinline__ void ldmatrix_at(uint32_t *r, uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

static __device__ __forceinline__ void ldmatrix_trans_at(uint32_t *r, uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// Multiplies two pairs of bf16 element by element and rounds to bf16.
static __device__ __forceinline__ uint32_t times_bf16x2(uint32_t x, uint32_t y)
{
    uint32_t z;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
