// v3_records_squares.cuh -- prepare for a gate a channel: pairs of rows from the tiles.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_kda.cuh.
#ifndef KCP_V3_RECORDS_SQUARES_CUH
#define KCP_V3_RECORDS_SQUARES_CUH

#include "v3_records_rows.cuh"

// A warp's squares: span I's rows, of q or of k, with the columns of the spans above
// and of its own, y[3]. Within a span D_ij = exp2(G_i) exp2(-G_j), both in the range
// of bf16 unless the span is deep; between spans all factors are <= 1, at any gate.
template <int K, int I>
static __device__ __forceinline__ void pairs(int of_k, const struct tiles<K> &s,
                                             float (*y)[2][4])
{
    const int lane = opaque_thread_id() % 32, across = lane % 8 + lane / 16 * 8;
    const int a_at = swizzle128_offset(I * SPAN + lane % 16, lane / 16) + of_k * BYTES;
    const int b_at = swizzle128_offset(across, lane / 8 % 2);
    #pragma unroll
    for (int i = 0; i < K / 16; i++) {
        const struct half_tiles &m = s.half[i / 4];
        const int step = i % 4 << 5;
        uint32_t a[4], b[4];
        ldmatrix_x4(a, (const bf16 *)(m.q + (a_at ^ step)));
        #pragma unroll
        for (int J = 0; J <= I; J++) {
            const unsigned char *col = J == I ? m.g + I * SPAN * 128
                                     : I - J == 1 ? m.one[J]
                                     : I - J == 2 ? m.two[J] : m.far;
            float (*d)[4] = y[J == I ? 3 : J];
            ldmatrix_x4(b, (const bf16 *)(col + (b_at ^ step)));
            mma_m16n8k16(d[0], a, b[0], b[1]), mma_m16n8k16(d[1], a, b[2], b[3]);
        }
    }
}

template <int K>
static __device__ __forceinline__ void all_pairs(int I, int of_k,
                                                 const struct tiles<K> &s,
                                                 float (*y)[2][4])
{
    switch (I) {
    case 0: pairs<K, 0>(of_k, s, y); break;
    case 1: pairs<K, 1>(of_k, s, y); break;
    case 2: pairs<K, 2>(of_k, s, y); break;
    default: pairs<K, 3>(of_k, s, y);
    }
}

// Squares of Aqk, to the record and to the block.
template <int keeps>
static __device__ __forceinline__ void pairs_of_q(const struct records &x,
                                                  struct token_range z, int n, int I,
                                                  float (*y)[2][4], const bf16 *own,
                                                  unsigned char *Aqk)
{
    const int g = opaque_thread_id() % 32 / 4, e = opaque_thread_id() % 4 * 2;
    Aqk += four_in_square() + I * 512;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = h * 8 + g, i = I * SPAN + row;
        const float own_i = (float)own[i];
        #pragma unroll
        for (int k = 0; k < 4; k++) {
            const int j = k / 2 * 8 + e + k % 2;
            float &p = y[3][k / 2][h * 2 + k % 2];
            p = j > row ? 0.0f : j == row ? own_i : p;
        }
        #pragma unroll
        for (int J = 0; J < SPANS; J++) {
            if (J < 3 && J >= I) continue;
            const float *l = y[J][0] + h * 2, *r = y[J][1] + h * 2;
            const uint2 four =
                four_of(pack_bf16x2(l[0], l[1]), pack_bf16x2(r[0], r[1]));
            const int column = J < 3 ? J : I;
            *(uint2 *)(Aqk + (column_at(column) - column * 512 + h * 256)) = four;
            if (keeps && x.to13.Aqk) put_row(x, x.to13.Aqk, z, n, i, column, four);
        }
    }
}

// Squares of beta k k^T: L of other spans as fragments; the span's own, inverted.
static __device__ __forceinline__ void pairs_of_k(int I, float (*y)[2][4],
                                                  const struct inverse_room &s)
{
    const int g = opaque_thread_id() % 32 / 4, e = opaque_thread_id() % 4 * 2;
    const float b[2] = { s.beta[I * SPAN + g], s.beta[I * SPAN + g + 8] };
    #pragma unroll
    for (int h = 0; h < 8; h++) y[3][h / 4][h % 4] *= b[h % 4 / 2];
    #pragma unroll
    for (int h = 0; h < 4; h++)
        *(float2 *)&s.square[I][h % 2 * 8 + g][h / 2 * 8 + e] =
            make_float2(y[3][h / 2][h % 2 * 2], y[3][h / 2][h % 2 * 2 + 1]);
    __syncwarp();
    #pragma unroll
    for (int J = 0; J < SPANS - 1; J++) {
        if (J >= I) continue;
        #pragma unroll
        for (int h = 0; h < 8; h++) y[J][h / 4][h % 4] *= b[h % 4 / 2];
        put(s.L[square_of(I, J)], as_a(y[J]));
    }
    invert_square(s.square[I], opaque_thread_id() % 16);
    put(s.A[I], square_as_a(s.square[I]));
}

template <int keeps>
static __device__ __forceinline__ void diagonal_out(const struct records &x,
                                                    struct token_range z, int n, int I,
                                                    const struct inverse_room &s,
                                                    unsigned char *Ab)
{
    float d[2][4];
    diagonal_square(d, I, s);
    square_out<keeps>(x, z, n, I, I, d, s.beta, Ab + four_in_square() + column_at(I));
}

// The pairs of a span one by one, for gates that no pair of factors can hold. Slow, and
// exact at any decay. It lies where the tiles were.
template <int K>
struct deep_room { float G[CHUNK][K], square[SPANS][2][SPAN][SPAN]; };

template <int K, int form>
static __device__ __noinline__ void deep_sums(const struct kcp_forward &a,
                                              struct token_range z, int n,
                                              struct deep_room<K> &to)
{
    for (int at = threadIdx.x; at < SPANS * K; at += blockDim.x) {
        const int i = at % K, first = at / K * SPAN;
        const struct gate_of f = gate_of<form>(a, n, i);
        float sum = 0.0f;
        for (int r = first; r < first + SPAN; r++) {
            if (r < z.len)
                sum += decay_of<form>(f, in<bf16>(a.g_raw, z.t + r, a.HV, n, K)[i]);
            to.G[r][i] = sum;
        }
    }
}

// Rows of span I, of q or of k.
template <int K>
static __device__ __noinline__ void deep_pairs(const struct kcp_forward &a,
                                               struct token_range z, int n, int I,
                                               int of_k, const float2 *norm,
                                               struct deep_room<K> &to)
{
    const int m = n / (a.HV / a.H);
    const void *rows = of_k ? a.k_raw : a.q_raw;
    #pragma unroll 1
    for (int x = 0; x < SPAN * SPAN; x++) {
        const int i = I * SPAN + x / SPAN, j = I * SPAN + x % SPAN;
        if (j > i || i >= z.len) continue;
        const bf16 *row = in<bf16>(rows, z.t + i, a.H, m, K);
        const bf16 *kj = in<bf16>(a.k_raw, z.t + j, a.H, m, K);
        float sum = 0.0f;
        for (int d = threadIdx.x % 32; d < K; d += 32)
            sum += (float)row[d] * (float)kj[d] * ex2_approx(to.G[i][d] - to.G[j][d]);
        for (int b = 16; b; b /= 2) sum += __shfl_xor_sync(~0u, sum, b);
        sum *= norm[j].y * (of_k ? norm[i].y : norm[i].x);
        if (threadIdx.x % 32 == 0) to.square[I][of_k][i % SPAN][j % SPAN] = sum;
    }
    __syncwarp();
}

template <int K, int form>
static __device__ __forceinline__ void deep_square(const struct kcp_forward &a,
                                                   struct token_range z, int n, int I,
                                                   int of_k, struct tiles<K> &s,
                                                   float (*y)[4])
{
    struct deep_room<K> &room = *(struct deep_room<K> *)&s;
    static_assert(sizeof room <= sizeof s.half, "where the tiles were");
    const int g = threadIdx.x % 32 / 4, e = threadIdx.x % 4 * 2;
    deep_sums<K, form>(a, z, n, room);
    __syncthreads();
    deep_pairs<K>(a, z, n, I, of_k, s.norm, room);
    #pragma unroll
    for (int x = 0; x < 8; x++) {
        const int i = x % 4 / 2 * 8 + g, j = x / 4 * 8 + e + x % 2;
        const int there = j <= i && I * SPAN + i < z.len;
        y[x / 4][x % 4] = there ? room.square[I][of_k][i][j] : 0.0f;
    }
    __syncthreads();                     // the next chunk's rows may come
}

#endif
