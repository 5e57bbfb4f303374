// scan.cuh -- a state in registers: what the tensor-core scans of 04, 05, 09, 11 share.
// Book: chapter 04, "Tensor cores".
// Checked by: every variant that includes it.
// Next: 04_chunk/v2_warp.cu.
//
// A warp holds 16 columns of a state S [K,V], transposed: D tiles of S^T, rows v,
// columns i. S^T is then the A of S^T X^T (rows of X are the chunk's), the result,
// packed, is the A of the update, and no warp ever needs another warp's columns. All
// warps of a block read the same X from shared memory.
#ifndef KCP_SCAN_CUH
#define KCP_SCAN_CUH

#include "mma.cuh"

enum { CHUNK = 64, PAD = 8 };            // PAD spreads rows over the banks

// y^T [16,rows] += S^T [16,K] X^T, X [rows,K] in shared memory. The state enters in
// bf16 pieces: 1 rounds it, 3 keep all of an fp32, for X is exact already.
template <int K, int pieces, int rows = CHUNK>
static __device__ __forceinline__ void times_rows(float (*y)[4], const float (*S)[4],
                                                  const bf16 *X)
{
    const bf16 *row = X + ldmatrix_offset_b(threadIdx.x % 32, K + PAD);
    #pragma unroll
    for (int i = 0; i < K / 16; i++) {
        float rest[8] = { S[2 * i][0], S[2 * i][1], S[2 * i][2], S[2 * i][3],
                          S[2 * i + 1][0], S[2 * i + 1][1], S[2 * i + 1][2],
                          S[2 * i + 1][3] };
        uint32_t a[pieces][4];
        #pragma unroll
        for (int p = 0; p < pieces; p++)
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                a[p][j] = pack_bf16x2(rest[2 * j], rest[2 * j + 1]);
                unpack_residual(a[p][j], rest[2 * j], rest[2 * j + 1]);
            }
        #pragma unroll
        for (int c = 0; c < rows / 16; c++) {
            uint32_t b[4];
            ldmatrix_x4(b, row + c * 16 * (K + PAD) + i * 16);
            #pragma unroll
            for (int p = 0; p < pieces; p++) {
                mma_m16n8k16(y[2 * c], a[p], b[0], b[1]);
                mma_m16n8k16(y[2 * c + 1], a[p], b[2], b[3]);
            }
        }
    }
}

// S^T [16,K] += y^T [16,rows] X, in as many pieces of y.
template <int K, int pieces, int rows = CHUNK>
static __device__ __forceinline__ void add_rows_to(float (*S)[4], const float (*y)[4],
                                                   const bf16 *X)
{
    const bf16 *row = X + ldmatrix_offset_a(threadIdx.x % 32, K + PAD);
    #pragma unroll
    for (int c = 0; c < rows / 16; c++) {
        float rest[8] = { y[2 * c][0], y[2 * c][1], y[2 * c][2], y[2 * c][3],
                          y[2 * c + 1][0], y[2 * c + 1][1], y[2 * c + 1][2],
                          y[2 * c + 1][3] };
        uint32_t a[pieces][4];
        #pragma unroll
        for (int p = 0; p < pieces; p++)
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                a[p][j] = pack_bf16x2(rest[2 * j], rest[2 * j + 1]);
                unpack_residual(a[p][j], rest[2 * j], rest[2 * j + 1]);
            }
        #pragma unroll
        for (int i = 0; i < K / 16; i++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, row + c * 16 * (K + PAD) + i * 16);
            #pragma unroll
            for (int p = 0; p < pieces; p++) {
                mma_m16n8k16(S[2 * i], a[p], b[0], b[1]);
                mma_m16n8k16(S[2 * i + 1], a[p], b[2], b[3]);
            }
        }
    }
}

// Rows t .. t+len-1 of a tensor, `stride` apart, to shared memory [rows,width+PAD];
// rows from len on become 0.
template <int width, int rows = CHUNK>
static __device__ __forceinline__ void cp_async_rows(bf16 *to, const bf16 *from,
                                                     int64_t stride, int len)
{
    for (int at = threadIdx.x; at < rows * width / 8; at += blockDim.x) {
        const int i = at / (width / 8), d = at % (width / 8) * 8;
        cp_async_16(to + i * (width + PAD) + d, from + (i < len ? i : 0) * stride + d,
                    i < len);
    }
}

// y^T [16,rows] from X [rows,ld] in shared memory, columns v .. v+15 of it.
template <int rows = CHUNK>
static __device__ __forceinline__ void from_rows(float (*y)[4], const bf16 *X, int ld)
{
    const bf16 *row = X + ldmatrix_offset_b(threadIdx.x % 32, ld);
    #pragma unroll
    for (int c = 0; c < rows / 16; c++) {
        uint32_t r[4];
        ldmatrix_x4_trans(r, row + c * 16 * ld);
        #pragma unroll
        for (int j = 0; j < 8; j++)
            y[2 * c + j / 4][j % 4] =
                __uint_as_float(j % 2 ? r[j / 2] & 0xffff0000u : r[j / 2] << 16);
    }
}

// D tiles of y^T, rows v, columns i, to rows i of a tensor, `stride` apart; i < len.
// The tiles are turned in registers, so that a row's 16 columns leave together.
template <int tiles>
static __device__ __forceinline__ void store_rows(bf16 *to, int64_t stride, int len,
                                                  const float (*y)[4])
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < tiles; i++) {
        const uint32_t low = movmatrix_trans(pack_bf16x2(y[i][0], y[i][1]));
        const uint32_t high = movmatrix_trans(pack_bf16x2(y[i][2], y[i][3]));
        if (i * 8 + g >= len) continue;
        *(uint32_t *)(to + (i * 8 + g) * stride + e) = low;
        *(uint32_t *)(to + (i * 8 + g) * stride + 8 + e) = high;
    }
}

// Which columns of D tiles a lane holds, and a factor for each of them.
template <int tiles>
static __device__ __forceinline__ void scale_columns(float (*y)[4], const float *factor)
{
    const int e = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < tiles; i++) {
        const float low = factor[i * 8 + e], high = factor[i * 8 + e + 1];
        y[i][0] *= low, y[i][1] *= high, y[i][2] *= low, y[i][3] *= high;
    }
}

// S^T between registers and an fp32 state: element (v, i) at S[v * dv + i * di].
template <int K>
static __device__ __forceinline__ void load_state(float (*S)[4], const float *x,
                                                  int64_t dv, int64_t di)
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < K / 8; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++)
            S[i][j] = x ? x[(g + j / 2 * 8) * dv + (i * 8 + e + j % 2) * di] : 0.0f;
}

// Columns first .. first+15 of the identity.
template <int K>
static __device__ __forceinline__ void set_identity(float (*S)[4], int first)
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < K / 8; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++)
            S[i][j] = first + g + j / 2 * 8 == i * 8 + e + j % 2;
}

template <int K>
static __device__ __forceinline__ void store_state(float *x, int64_t dv, int64_t di,
                                                   const float (*S)[4])
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < K / 8; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++)
            x[(g + j / 2 * 8) * dv + (i * 8 + e + j % 2) * di] = S[i][j];
}

// The gate of a chunk: thread i's share of it, read early and turned into factors late.
struct gate_share { float last, row; };

template <class Args>
static __device__ __forceinline__ struct gate_share read_gate(const Args &a,
                                                              struct token_range z,
                                                              int n, int K)
{
    const int i = threadIdx.x, row = i < z.len ? i : z.len - 1;
    const int64_t last = z.t + z.len - 1;
    return { i < K ? gate(a, last, n, i) : 0.0f,
             a.KG == 1 && i < CHUNK ? gate(a, z.t + row, n, 0) : 0.0f };
}

// decay [K] = exp2(G_last). GDN's rows of q have the factor exp2(G), those of k
// exp2(G_last - G); KDA's are gated already.
template <class Args>
static __device__ __forceinline__ void write_gate(const Args &a, struct gate_share g,
                                                  int K, float *decay, float *eq,
                                                  float *ek)
{
    const int i = threadIdx.x, kda = a.KG > 1;
    if (i < K) decay[i] = exp2f(g.last);
    if (i >= CHUNK) return;
    eq[i] = (float)a.scale * (kda ? 1.0f : exp2f(g.row));
    ek[i] = kda ? 1.0f : exp2f(g.last - g.row);
}

// Rows of qg, kg (KDA) or of the query/key head (GDN): the first, and their distance.
struct rows { const bf16 *x; int64_t ld; };

template <class Args>
static __device__ __forceinline__ struct rows rows_of(const Args &a, int64_t t, int n,
                                                      const void *gated,
                                                      const void *raw)
{
    if (a.KG > 1) return { in<bf16>(gated, t, a.HV, n, a.K), (int64_t)a.HV * a.K };
    return { in<bf16>(raw, t, a.H, n / (a.HV / a.H), a.K), (int64_t)a.H * a.K };
}

// Pointers for the copies must be aligned to 16 bytes.
static inline int is_aligned_16(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

#endif
