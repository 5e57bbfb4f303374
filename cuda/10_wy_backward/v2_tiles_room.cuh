// v2_tiles_room.cuh -- shared memory of chapter 10's tensor-core kernel, and products.
// Book: chapter 10, "One kernel, and what it spends".
// Checked by: tests/10_wy_backward/checks.c.
// Next: v2_tiles_pairs.cuh.
#include "cuda/tile/warp_scan.cuh"

enum { LC = CHUNK + PAD };               // a row of a [64,64] matrix

// h and dS give way to q, k, k~ and v; dO and v_new to dG; dA to dL.
template <int K, int V>
struct room {
    union {
        struct { bf16 h[K][V + PAD], dS[K][V + PAD]; };
        struct {
            bf16 q[CHUNK][K + PAD], k[CHUNK][K + PAD], kE[CHUNK][K + PAD];
            bf16 v[CHUNK][V + PAD];
        };
    };
    union {
        struct { bf16 dO[CHUNK][V + PAD], v_new[CHUNK][V + PAD]; };
        float dG[CHUNK][K + PAD];
    };
    bf16 dU[CHUNK][V + PAD], dw[CHUNK][K + PAD];
    bf16 A[CHUNK][LC], dAqk[CHUNK][LC], dA[CHUNK][LC], X[CHUNK][LC];
    float G[CHUNK][K + PAD];
    float beta[CHUNK], diagonal[CHUNK], h_dS[K], k_dks[K];
    float of_beta[K / 16][CHUNK], of_gate[K / 16][CHUNK];
};

// A warp's share of a [64,16] result: D tiles, [16 rows][8 columns][4].
typedef float slab[4][2][4];

#define EACH(t, c, j)                                                                 \
    _Pragma("unroll") for (int t = 0; t < 4; t++)                                     \
    _Pragma("unroll") for (int c = 0; c < 2; c++)                                     \
    _Pragma("unroll") for (int j = 0; j < 4; j++)

static __device__ __forceinline__ int row_in(int t, int j)
{
    return 16 * t + threadIdx.x % 32 / 4 + j / 2 * 8;
}
static __device__ __forceinline__ int column_in(int c, int j)
{
    return 8 * c + threadIdx.x % 4 * 2 + j % 2;
}

// d += X Y^T, X [64,depth], Y [16,depth].
template <int depth>
static __device__ __forceinline__ void rows_by_rows(slab &d, const bf16 *X, int ldx,
                                                    const bf16 *Y, int ldy)
{
    const int lane = threadIdx.x % 32;
    for (int p = 0; p < depth; p += 16) {
        uint32_t a[4], b[4];
        ldmatrix_x4(b, Y + p + ldmatrix_offset_b(lane, ldy));
        #pragma unroll
        for (int t = 0; t < 4; t++) {
            ldmatrix_x4(a, X + t * 16 * ldx + p + ldmatrix_offset_a(lane, ldx));
            mma_m16n8k16(d[t][0], a, b[0], b[1]), mma_m16n8k16(d[t][1], a, b[2], b[3]);
        }
    }
}

// d += A^T X, A [64,64] lower triangular, X 16 columns of [64,ld].
static __device__ __forceinline__ void turned_by_columns(slab &d, const bf16 *A,
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
            mma_m16n8k16(d[t][0], a, b[0], b[1]), mma_m16n8k16(d[t][1], a, b[2], b[3]);
        }
    }
}

// The ten 16 x 16 tiles on and below the diagonal, one a warp after another.
static __device__ __forceinline__ int tile_row(int task)
{
    return task < 1 ? 0 : task < 3 ? 1 : task < 6 ? 2 : 3;
}

// Where a lane's pair j of half c of tile (I, J) stands; x [64,64] in shared memory.
static __device__ __forceinline__ uint32_t *pair_at(bf16 *x, int I, int J, int c, int j)
{
    return (uint32_t *)(x + row_in(I, 2 * j) * LC + 16 * J + column_in(c, 0));
}

// dA = tril((dU v^T + dw k~^T) diag(beta), -1).
template <int K, int V>
static __device__ void make_dA(struct room<K, V> &s)
{
    const int lane = threadIdx.x % 32;
    for (int task = threadIdx.x / 32; task < 10; task += K / 16) {
        const int I = tile_row(task), J = task - I * (I + 1) / 2;
        float d[2][4] = {};
        uint32_t a[4], b[4];
        for (int p = 0; p < V; p += 16) {
            ldmatrix_x4(a, &s.dU[16 * I][p] + ldmatrix_offset_a(lane, V + PAD));
            ldmatrix_x4(b, &s.v[16 * J][p] + ldmatrix_offset_b(lane, V + PAD));
            mma_m16n8k16(d[0], a, b[0], b[1]), mma_m16n8k16(d[1], a, b[2], b[3]);
        }
        for (int p = 0; p < K; p += 16) {
            ldmatrix_x4(a, &s.dw[16 * I][p] + ldmatrix_offset_a(lane, K + PAD));
            ldmatrix_x4(b, &s.kE[16 * J][p] + ldmatrix_offset_b(lane, K + PAD));
            mma_m16n8k16(d[0], a, b[0], b[1]), mma_m16n8k16(d[1], a, b[2], b[3]);
        }
        #pragma unroll
        for (int h = 0; h < 4; h++) {
            const int i = row_in(I, h % 2 * 2), j = 16 * J + column_in(h / 2, 0);
            const float *x = d[h / 2] + h % 2 * 2;
            *pair_at(s.dA[0], I, J, h / 2, h % 2) =
                pack_bf16x2(j < i ? x[0] * s.beta[j] : 0.0f,
                            j + 1 < i ? x[1] * s.beta[j + 1] : 0.0f);
        }
    }
}

// X = dA A^T.
template <int K, int V>
static __device__ void make_X(struct room<K, V> &s)
{
    const int lane = threadIdx.x % 32;
    for (int task = threadIdx.x / 32; task < 10; task += K / 16) {
        const int I = tile_row(task), J = task - I * (I + 1) / 2;
        float d[2][4] = {};
        for (int p = 0; p <= 16 * J; p += 16) {
            uint32_t a[4], b[4];
            ldmatrix_x4(a, &s.dA[16 * I][p] + ldmatrix_offset_a(lane, LC));
            ldmatrix_x4(b, &s.A[16 * J][p] + ldmatrix_offset_b(lane, LC));
            mma_m16n8k16(d[0], a, b[0], b[1]), mma_m16n8k16(d[1], a, b[2], b[3]);
        }
        for (int h = 0; h < 4; h++)
            *pair_at(s.X[0], I, J, h / 2, h % 2) =
                pack_bf16x2(d[h / 2][h % 2 * 2], d[h / 2][h % 2 * 2 + 1]);
    }
}

// dL = -tril(A^T X, -1), in dA's place. GDN's D_ij = exp2(G_i - G_j) is one number: dL
// and dAqk take it in, and lose their diagonals.
template <int K, int V>
static __device__ void make_dL(struct room<K, V> &s, int gdn)
{
    const int lane = threadIdx.x % 32;
    for (int task = threadIdx.x / 32; task < 10; task += K / 16) {
        const int I = tile_row(task), J = task - I * (I + 1) / 2;
        float d[2][4] = {};
        for (int p = 16 * I; p < CHUNK; p += 16) {
            uint32_t a[4], b[4];
            ldmatrix_x4_trans(a, &s.A[p][16 * I] + ldmatrix_offset_b(lane, LC));
            ldmatrix_x4_trans(b, &s.X[p][16 * J] + ldmatrix_offset_a(lane, LC));
            mma_m16n8k16(d[0], a, b[0], b[1]), mma_m16n8k16(d[1], a, b[2], b[3]);
        }
        #pragma unroll
        for (int h = 0; h < 4; h++) {
            const int i = row_in(I, h % 2 * 2), j = 16 * J + column_in(h / 2, 0);
            const float *x = d[h / 2] + h % 2 * 2;
            const float D0 = !gdn ? 1.0f : j < i ? exp2f(s.G[i][0] - s.G[j][0]) : 0.0f;
            const float D1 = !gdn ? 1.0f
                           : j + 1 < i ? exp2f(s.G[i][0] - s.G[j + 1][0]) : 0.0f;
            *pair_at(s.dA[0], I, J, h / 2, h % 2) =
                pack_bf16x2(j < i ? -x[0] * D0 : 0.0f, j + 1 < i ? -x[1] * D1 : 0.0f);
            uint32_t *q = pair_at(s.dAqk[0], I, J, h / 2, h % 2);
            if (gdn)
                *q = pack_bf16x2(__uint_as_float(*q << 16) * D0,
                                 __uint_as_float(*q & 0xffff0000u) * D1);
        }
    }
}
