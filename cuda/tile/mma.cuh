// mma.cuh -- the tensor core as a few small functions, for sm_80 and up.
// Book: chapter 04, "Tensor cores".
// Checked by: every variant that includes it.
// Next: 04_chunk/v2_warp.cu.
//
// A fragment is a warp's share of a small matrix, in registers. With g = lane / 4 and
// e = 2 (lane % 4), an 8 x 8 tile of bf16 gives a lane the pair [g][e], [g][e+1]:
//   A  16 x 16   a[0] rows g, a[1] rows g+8, columns e;  a[2], a[3] columns e+8
//   B  16 x 8    b[0] rows e, e+1 of column g;  b[1] rows e+8, e+9
//   D  16 x 8    d[0], d[1] = [g][e], [g][e+1];  d[2], d[3] = [g+8][e], [g+8][e+1]
// so two tiles of D, packed to bf16, are an A: a product can feed the next one without
// leaving the registers.
#ifndef KCP_MMA_CUH
#define KCP_MMA_CUH

#include "device.cuh"

static __device__ __forceinline__ uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

// d += a b.
static __device__ __forceinline__ void mma(float *d, const uint32_t *a, uint32_t b0,
                                           uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 tiles from shared memory; lane 8 j + i points at row i of tile j.
static __device__ __forceinline__ void load_tiles(uint32_t *r, const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_at(row))
                 : "memory");
}

// The same, each tile transposed on its way.
static __device__ __forceinline__ void load_tiles_t(uint32_t *r, const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_at(row))
                 : "memory");
}

// An 8 x 8 tile of bf16, transposed between the lanes of a warp.
static __device__ __forceinline__ uint32_t transpose_tile(uint32_t x)
{
    uint32_t y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// 16 bytes from global to shared memory without registers; zeros when !there.
static __device__ __forceinline__ void copy_async(void *to, const void *from, int there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(shared_at(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}

static __device__ __forceinline__ void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until at most `left` of the newest groups are still under way.
template <int left>
static __device__ __forceinline__ void copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" :: "n"(left) : "memory");
}

// ---- plain helpers
// 2^x by the special function unit alone: 2 ulp; below 2^-126 it is 0.
static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1/x likewise: 1 ulp; of what is above 2^126 it is 0.
static __device__ __forceinline__ float reciprocal_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ uint32_t pack(float low, float high)
{
    const __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&x;
}

// What is left of a pair after it was packed: x - bf16(x), exact.
static __device__ __forceinline__ void unpack_rest(uint32_t p, float &low, float &high)
{
    low -= __uint_as_float(p << 16), high -= __uint_as_float(p & 0xffff0000u);
}

// Where lane's row pointer goes for four tiles of a row-major matrix, `pitch` apart:
// tiles (0,0), (8,0), (0,8), (8,8) as (row, column), or with the middle two swapped.
static __device__ __forceinline__ int tiles_down(int lane, int pitch)
{
    return (lane % 16) * pitch + lane / 16 * 8;
}

static __device__ __forceinline__ int tiles_across(int lane, int pitch)
{
    return (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
}

#endif
