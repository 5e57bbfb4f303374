// chunk_prepare.cuh -- the gate and a chunk's inverse, code shared by KDA and GDN.
// Book: chapter 18.
#pragma once

#include "cuda/18_hopper/chunk_factors.cuh"
#include "cuda/tile/softplus.cuh"
#include "cuda/tile/typed.cuh"

// Returns the index of the 16x16 block (I, J) among the ten on and below the diagonal.
static __device__ __forceinline__ int block16_index(int I, int J)
{
    return I * (I + 1) / 2 + J;
}

// Returns the tokens of this rank's chunk c, without a table lookup if NS = 1.
static __device__ __forceinline__ struct token_range tokens_of_chunk(
    const struct kcp_forward &a, int c)
{
    int t = c * CHUNK, end = (int)a.T;
    if (a.NS != 1) {
        const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
        t = (int)z.t;
        end = t + z.len;
    }
    return { (uint32_t)t, min(end - t, (int)CHUNK) }; // t has 32 bits
}

// Returns beta of a token, at least 2^-40 in magnitude, because backward divides by
// beta. Using 2^-40 in place of 0 does not change the results of forward.
static __device__ __forceinline__ float beta_from_raw(const struct forward_params &x,
                                                      float raw)
{
    const float top = x.a.beta_form == KCP_BETA_SIGMOID2 ? 2.0f : 1.0f;
    const float b =
        x.a.beta_form == KCP_BETA_RAW ? raw : __fdividef(top, 1.0f + __expf(-raw));
    return copysignf(max_or_nan(fabsf(b), 0x1p-40f), b);
}

// Constants of one form of the gate, from which log2_decay computes the decay of a
// token and channel. With u = times x + plus the log2 decay is top / (1 + 2^u) for a
// bounded gate, top log2(1 + 2^u) for softplus, and `times` x for a raw gate. It is at
// least -1000, because 2^-1000 is 0 and differences of sums must stay finite.
struct gate_constants { float times, plus, top; };

template <int form>
static __device__ __forceinline__ struct gate_constants gate_constants_from(
    const struct kcp_forward &a, float e, float dt)
{
    const float base_2 = 1.44269504088896341f;
    if (form == KCP_GATE_BOUNDED)
        return { -e * base_2, -e * base_2 * dt, (float)a.lower_bound * base_2 };
    return { base_2, base_2 * dt, -e };
}

template <int form>
static __device__ __forceinline__ struct gate_constants gate_constants_of(
    const struct kcp_forward &a, int n, int i)
{
    const float dt = a.dt_bias ? ((const float *)a.dt_bias)[n * a.KG + i] : 0.0f;
    const float e = a.A_log ? expf(((const float *)a.A_log)[n]) : 1.0f;
    return gate_constants_from<form>(a, e, dt);
}

template <int form>
static __device__ __forceinline__ float log2_decay(struct gate_constants f, float x)
{
    if (form == KCP_GATE_RAW) return max_or_nan(f.times * x, -1000.0f);
    const float u = fmaf(f.times, x, f.plus);
    if (form == KCP_GATE_BOUNDED) return __fdividef(f.top, 1.0f + ex2_approx(u));
    return max_or_nan(f.top * softplus_log2(u), -1000.0f);
}

// GDN: computes the log2 decays of two rows. Each log2 decay is at least -200, because
// 2^-200 is 0 in fp32, and sums of such numbers stay accurate.
template <int form>
static __device__ __forceinline__ void log2_decays(const struct forward_params &x,
                                                   int n, float *g)
{
    const struct gate_constants f = gate_constants_of<form>(x.a, n, 0);
    #pragma unroll
    for (int h = 0; h < 2; h++) g[h] = max_or_nan(log2_decay<form>(f, g[h]), -200.0f);
}

// One warp computes G (sums of log2 decays) and beta of a value head. A lane has rows
// `lane` and `lane` + 32. Rows past the chunk's end do not decay, and have beta 0.
static __device__ __forceinline__ void cumulative_decay(
    const struct forward_params &x, struct token_range z, int n, float *G, float *beta)
{
    const int lane = threadIdx.x % 32;
    uint32_t g_bits[2], beta_bits[2];
    float g[2], before = 0.0f;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int64_t at = (z.t + min(lane + 32 * h, z.len - 1)) * x.a.HV + n;
        g_bits[h] = load_bits(x.a.g_raw, at, x.a.g_type);
        beta_bits[h] = load_bits(x.a.beta_raw, at, x.a.beta_type);
    }
    #pragma unroll
    for (int h = 0; h < 2; h++) g[h] = float_of_bits(g_bits[h], x.a.g_type);
    if (x.a.gate == KCP_GATE_BOUNDED) log2_decays<KCP_GATE_BOUNDED>(x, n, g);
    else if (x.a.gate == KCP_GATE_RAW) log2_decays<KCP_GATE_RAW>(x, n, g);
    else log2_decays<KCP_GATE_SOFTPLUS>(x, n, g);
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = lane + 32 * h, there = i < z.len;
        float sum = there ? g[h] : 0.0f;
        for (int d = 1; d < 32; d *= 2) {
            const float y = __shfl_up_sync(~0u, sum, d, 32);
            if (lane >= d) sum += y;
        }
        sum += before;
        G[i] = sum;
        before = __shfl_sync(~0u, sum, 31);
        const float b = float_of_bits(beta_bits[h], x.a.beta_type);
        beta[i] = there ? beta_from_raw(x, b) : 0.0f;
    }
}

// ---- A = (I + L)^-1 of a chunk (chunk_factors.cuh), from 16x16 blocks
//
// Each element of an operand is split into a sum of two bf16 numbers, `top` and `rest`,
// which together keep 16 significant bits.
struct split_operand { uint32_t top[4], rest[4]; };

// Converts a 16x16 block in an accumulator d[2][4] to operand A. If used as operand B,
// these registers represent the block's transpose.
static __device__ __forceinline__ struct split_operand split_accumulator(
    const float (*d)[4])
{
    struct split_operand p;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        float low = d[i / 2][i % 2 * 2], high = d[i / 2][i % 2 * 2 + 1];
        p.top[i] = pack_bf16x2(low, high);
        unpack_residual(p.top[i], low, high);
        p.rest[i] = pack_bf16x2(low, high);
    }
    return p;
}

// Stores the fragments of an operand in shared memory, lane by lane. A lane stores
// mma's registers b0 and b1 for rows 0 to 7, then b0 and b1 for rows 8 to 15.
static __device__ __forceinline__ void store_fragments(uint4 (*at)[32],
                                                       const struct split_operand &p)
{
    const int lane = threadIdx.x % 32;
    at[0][lane] = make_uint4(p.top[0], p.top[2], p.top[1], p.top[3]);
    at[1][lane] = make_uint4(p.rest[0], p.rest[2], p.rest[1], p.rest[3]);
}

// Adds x y^T to d [16,16]. Of the products of the bf16 parts `top` and `rest`, omits
// rest * rest, which is below the rounding error.
static __device__ __forceinline__ void mma_split(
    float (*d)[4], const struct split_operand &x, const uint4 (*y)[32])
{
    const uint4 top = y[0][threadIdx.x % 32], rest = y[1][threadIdx.x % 32];
    mma_m16n8k16(d[0], x.top, top.x, top.y);
    mma_m16n8k16(d[1], x.top, top.z, top.w);
    mma_m16n8k16(d[0], x.top, rest.x, rest.y);
    mma_m16n8k16(d[1], x.top, rest.z, rest.w);
    mma_m16n8k16(d[0], x.rest, top.x, top.y);
    mma_m16n8k16(d[1], x.rest, top.z, top.w);
}

// Loads a 16x16 fp32 block from shared memory as operand A.
static __device__ __forceinline__ struct split_operand block16_as_a(
    const float (*x)[SUBCHUNK + 4])
{
    const int g = threadIdx.x % 32 / 4, e = threadIdx.x % 4 * 2;
    float d[2][4];
    #pragma unroll
    for (int h = 0; h < 4; h++) {
        const float2 y = *(const float2 *)&x[g + h % 2 * 8][h / 2 * 8 + e];
        d[h / 2][h % 2 * 2] = y.x;
        d[h / 2][h % 2 * 2 + 1] = y.y;
    }
    return split_accumulator(d);
}

// Overwrites a diagonal block of L with (I + L)^-1, by forward substitution in fp32. A
// lane computes column j. The two halves of a warp invert two different blocks, or both
// halves invert the same block.
static __device__ __forceinline__ void invert_block16(float (*L)[SUBCHUNK + 4], int j)
{
    float x[SUBCHUNK];
    #pragma unroll
    for (int i = 0; i < SUBCHUNK; i++) x[i] = i == j;
    #pragma unroll
    for (int p = 0; p < SUBCHUNK; p += 4)
        #pragma unroll
        for (int i = p + 1; i < SUBCHUNK; i++) {
            const float4 l = *(const float4 *)&L[i][p];
            x[i] -= l.x * x[p];
            if (i > p + 1) x[i] -= l.y * x[p + 1];
            if (i > p + 2) x[i] -= l.z * x[p + 2];
            if (i > p + 3) x[i] -= l.w * x[p + 3];
        }
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < SUBCHUNK; i++) L[i][j] = x[i];
    __syncwarp();
}

// Returns the byte offset, in a triangle, of a lane's four elements in the first eight
// rows of a block. The next eight rows are 256 bytes further. The next block of the
// block column is 512 bytes further.
static __device__ __forceinline__ int block16_offset(void)
{
    const int lane = opaque_thread_id() % 32;
    return triangle_offset(lane / 4, lane % 2) + lane % 4 / 2 * 8;
}

// Stores block (I, J) of A beta. `d` holds A_IJ^T in an accumulator, and `to` is this
// lane's address in the factors.
static __device__ __forceinline__ void store_inverse_block16(
    int J, const float (*d)[4], const float *beta, unsigned char *to)
{
    const int g = lane_id() / 4;         // lane_id() is read again to free registers
    const float b[2] = { beta[J * SUBCHUNK + g], beta[J * SUBCHUNK + 8 + g] };
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const float *l = d[h], *r = d[h] + 2;
        *(uint2 *)(to + h * 256) =
            exchange_halves(movmatrix_trans(pack_bf16x2(b[0] * l[0], b[0] * l[1])),
                            movmatrix_trans(pack_bf16x2(b[1] * r[0], b[1] * r[1])));
    }
}

// Loads A_JJ^T from shared memory into an accumulator.
template <class Storage>
static __device__ __forceinline__ void load_diagonal_block16(float (*d)[4], int J,
                                                             const Storage &smem)
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    #pragma unroll
    for (int h = 0; h < 8; h++)
        d[h / 4][h % 4] = smem.block16[J][h / 4 * 8 + e + h % 2][g + h % 4 / 2 * 8];
}

// One warp computes block column J of A from the diagonal down:
//     A_IJ^T = -(sum_M A_MJ^T L_IM^T) A_II^T,  J <= M < I.
// The accumulator of each product is split in registers and becomes an operand of the
// next product. Does not store the diagonal block A_JJ.
template <class Storage>
static __device__ __forceinline__ void invert_block_column(int J, const Storage &smem,
                                                           unsigned char *Ab)
{
    unsigned char *to = Ab + block16_offset() + triangle_column(J);
    struct split_operand A[SUBCHUNKS - 1];
    float d[2][4];
    load_diagonal_block16(d, J, smem);
    A[0] = split_accumulator(d);
    #pragma unroll
    for (int below = 1; below < SUBCHUNKS; below++) {
        const int I = J + below;
        if (I >= SUBCHUNKS) return;
        float y[2][4] = {}, w[2][4] = {};
        #pragma unroll
        for (int m = 0; m < below; m++)
            mma_split(y, A[m], smem.L[block16_index(I, J + m)]);
        mma_split(w, split_accumulator(y), smem.A[I]);
        #pragma unroll
        for (int h = 0; h < 8; h++) w[h / 4][h % 4] = -w[h / 4][h % 4];
        store_inverse_block16(J, w, smem.beta, to + below * 512);
        if (below < SUBCHUNKS - 1) A[below] = split_accumulator(w);
    }
}
