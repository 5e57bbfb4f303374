// v3_split_storage.cuh -- data between v3's kernels; shared memory of the first kernel.
// Book: chapter T, "Two kernels".
#pragma once
#include "cuda/tile/registers.cuh"
#include "cuda/tile/warp_scan.cuh"

enum { LC = CHUNK + PAD }; // row stride of a [64,64] matrix

// Results of the first kernel, without the factors of the gate: P = dO h^T, W = v_new
// dS^T, Q = -dvb h^T [T,HV,K]; dL [T,HV,C]; h_dS = sum_v h dS [NC,HV,K]. The field
// `sums` [T,H,K] holds dq and dk summed over a group of heads.
struct intermediates {
    bf16 *P, *W, *Q, *dL;
    float *h_dS;
    float2 *sums;
};

// The first kernel for K = 256 (v3_split_wide_sm90.cu, only in builds for sm_90a).
int launch_solve_wide(const struct kcp_wy_backward *a, const struct intermediates *b);

// Memory is reused: v replaces h, v_new replaces dO, dvb replaces dU.
template <int K, int V>
struct solve_storage {
    union { bf16 h[K][V + PAD], v[CHUNK][V + PAD]; };
    union { bf16 dO[CHUNK][V + PAD], v_new[CHUNK][V + PAD]; };
    union { bf16 dU[CHUNK][V + PAD], dvb[CHUNK][V + PAD]; };
    bf16 dS[K][V + PAD], A[CHUNK][LC];
    float beta[CHUNK];
};

// Returns whether dbeta is computed as dvb v_new / beta. Otherwise dbeta is the sum
// over all paths of the chain rule, also valid at beta = 0. But this sum adds the
// rounding errors of all earlier v_new, which matter with equal keys and beta near 1.
static __device__ __forceinline__ bool is_divisor(float beta)
{
    return fabsf(beta) >= 0.5f;
}

// Copies rows of a tensor, `stride` elements apart, to shared memory [rows,width+PAD].
// Rows `len` and later become 0.
template <int rows, int width, int threads>
static __device__ __forceinline__ void load_block(bf16 *to, const void *from,
                                                  int stride, int len)
{
    enum { lanes = width / 8, step = threads / lanes };
    const int i0 = threadIdx.x / lanes, d = threadIdx.x % lanes * 8;
    const bf16 *x = (const bf16 *)from + d;
    #pragma unroll
    for (int r = 0; r < rows / step; r++) {
        const int i = i0 + r * step, there = i < len;
        cp_async_16(to + i * (width + PAD) + d, row_at(x, there ? i : 0, 2 * stride),
                    there);
    }
}

// A warp's [64,16] result as D fragments, indexed [row / 16][column / 8][element].
typedef float slab[4][2][4];

static __device__ __forceinline__ int row_in(int t, int j)
{
    return 16 * t + threadIdx.x % 32 / 4 + j / 2 * 8;
}
static __device__ __forceinline__ int column_in(int c, int j)
{
    return 8 * c + threadIdx.x % 4 * 2 + j % 2;
}

// Computes x += X H^T and, if `two` is set, y += Y H^T, with X and Y [64,depth], H
// [16,depth], and row stride depth + PAD.
template <int depth, int two>
static __device__ __forceinline__ void rows_by_rows(slab &x, slab &y, const bf16 *X,
                                                    const bf16 *Y, const bf16 *H)
{
    const int lane = threadIdx.x % 32, ld = depth + PAD;
    const int down = ldmatrix_offset_a(lane, ld), across = ldmatrix_offset_b(lane, ld);
    #pragma unroll
    for (int p = 0; p < depth; p += 16) {
        uint32_t a[4], b[4];
        ldmatrix_x4(b, H + p + across);
        #pragma unroll
        for (int t = 0; t < 4; t++) {
            ldmatrix_x4(a, X + t * 16 * ld + p + down);
            mma_m16n16k16(x[t], a, b);
            if (!two) continue;
            ldmatrix_x4(a, Y + t * 16 * ld + p + down);
            mma_m16n16k16(y[t], a, b);
        }
    }
}

// Computes d += A^T X. A [64,64] is lower triangular. X [64,16] has row stride ld.
static __device__ __forceinline__ void transposed_by_columns(slab &d, const bf16 *A,
                                                             const bf16 *X, int ld)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t a[4], b[4];
        ldmatrix_x4_trans(b, X + i * 16 * ld + ldmatrix_offset_a(lane, ld));
        #pragma unroll
        for (int t = 0; t <= i; t++) {
            ldmatrix_x4_trans(a,
                              A + i * 16 * LC + t * 16 + ldmatrix_offset_b(lane, LC));
            mma_m16n16k16(d[t], a, b);
        }
    }
}

// Stores the first `len` rows of a warp's [64,16] result as bf16. Two lanes exchange
// halves, so each lane stores four columns, and a row's 16 columns fill one 32-byte
// sector.
static __device__ __forceinline__ void store_slab(bf16 *to, int stride, int len,
                                                  const slab &x)
{
    const bool odd = threadIdx.x % 2;
    bf16 *first = to + threadIdx.x % 4 / 2 * 4 + odd * 8;
    #pragma unroll
    for (int h = 0; h < 8; h++) {
        const int i = row_in(h / 2, h % 2 * 2);
        const float *y = x[h / 2][0] + h % 2 * 2, *z = x[h / 2][1] + h % 2 * 2;
        const uint32_t p = pack_bf16x2(y[0], y[1]), q = pack_bf16x2(z[0], z[1]);
        const uint32_t other = __shfl_xor_sync(~0u, odd ? p : q, 1);
        if (i >= len) continue;
        *(uint2 *)row_at(first, i, 2 * stride) =
            odd ? make_uint2(other, q) : make_uint2(p, other);
    }
}

// A task, 0 to 9, is a 16 x 16 tile on or below the diagonal. Warps share the tasks.
// Returns the tile's row index, in units of tiles.
static __device__ __forceinline__ int tile_row(int task)
{
    const int late = task < 6 ? 2 : 3;
    const int I = task < 3 ? 1 : late;
    return task < 1 ? 0 : I;
}

// Computes d += X Y^T, X and Y [16,depth].
template <int depth>
static __device__ __forceinline__ void tile_product(float (*d)[4], const bf16 *X,
                                                    const bf16 *Y)
{
    const int lane = threadIdx.x % 32, ld = depth + PAD;
    uint32_t a[4], b[4];
    #pragma unroll 4
    for (int p = 0; p < depth; p += 16) {
        ldmatrix_x4(a, X + p + ldmatrix_offset_a(lane, ld));
        ldmatrix_x4(b, Y + p + ldmatrix_offset_b(lane, ld));
        mma_m16n16k16(d, a, b);
    }
}
