// v3_records_spans.cuh -- one gate a head: squares of 16 of A and Aqk, a warp each.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_gdn_rows.cuh.
#ifndef KCP_V3_RECORDS_SPANS_CUH
#define KCP_V3_RECORDS_SPANS_CUH

#include "v3_records_inverse.cuh"

// A square in a warp's registers, d[2][4]: a lane has rows g = lane / 4 and g + 8, and
// of each four neighbours, columns 4 (lane % 4) .., two in d[0] and two in d[1]; so it
// writes 8 bytes at once. To the tensor core these are tiles whose columns come in
// another order; what is summed over may, as long as both sides have the same.

// fp32, where a span is inverted; two of them, side by side, meet all banks.
struct span_square { float x[SPAN][SPAN + 4], pad[16]; };

static __device__ __forceinline__ int lane_row(void) { return threadIdx.x % 32 / 4; }
static __device__ __forceinline__ int lane_column(void) { return threadIdx.x % 4 * 4; }

static __device__ __forceinline__ void put_tiles(float (*d)[4], int h, float4 x)
{
    d[0][2 * h] = x.x, d[0][2 * h + 1] = x.y, d[1][2 * h] = x.z, d[1][2 * h + 1] = x.w;
}

static __device__ __forceinline__ void square_rows(float (*d)[4],
                                                   const struct span_square &s)
{
    #pragma unroll
    for (int h = 0; h < 2; h++)
        put_tiles(d, h, *(const float4 *)&s.x[h * 8 + lane_row()][lane_column()]);
}

// The B of a product whose D is such a square: tile t has columns 4 m + 2 t and their
// right neighbours.
static __device__ __forceinline__ struct pieces square_as_b(const struct span_square &s)
{
    const int e = threadIdx.x % 4 * 2, g = lane_row(), column = g / 2 * 4 + g % 2;
    float d[2][4];
    #pragma unroll
    for (int h = 0; h < 8; h++)
        d[h / 4][h % 4] = s.x[h / 4 * 8 + e + h % 2][column + h % 4 / 2 * 2];
    return as_a(d);
}

// y[I] += A[I] N for so many squares, three of the four products of pieces; squares in
// turn, so that few products wait for the one before.
static __device__ __forceinline__ void add_products(float (*y)[2][4],
                                                    const struct pieces *A,
                                                    const struct pieces &N, int count)
{
    #pragma unroll
    for (int p = 0; p < 3; p++) {
        const uint32_t *b = p == 1 ? N.rest : N.top;
        #pragma unroll
        for (int x = 0; x < 2 * (SPANS - 1); x++) {
            const int I = x / 2, t = x % 2;
            if (I < count)
                mma_m16n8k16(y[I][t], p == 2 ? A[I].rest : A[I].top, b[t], b[t + 2]);
        }
    }
}

// A value head of a chunk: its gate and beta, and the norms of the chunk's rows; where
// its record lies, seen from this lane; and what the block keeps (NULL: nothing): there
// this many rows from the lane's on, `step` apart.
struct head_of_chunk {
    const float *G, *beta;
    const float2 *norm;
    unsigned char *to;
    bf16 *A, *Aqk;
    int rows, step;
};

// Byte of this lane's four in a square of a triangle (in_triangle).
static __device__ __forceinline__ int lane_in_square(void)
{
    const int g = lane_row(), piece = threadIdx.x % 4 / 2;
    return g * 32 + ((piece ^ g / 4) % 2 << 4) + threadIdx.x % 2 * 8;
}

// Square (I, J), a lane's four of either half: to the record, and to a tensor of the
// block.
static __device__ __forceinline__ void put_square(const struct head_of_chunk &w,
                                                  int matrix, int I, int J,
                                                  const uint2 *four)
{
    #pragma unroll
    for (int h = 0; h < 2; h++)
        *(uint2 *)(w.to + matrix + column_at(J) + (I - J) * 512 + h * 256) = four[h];
}

static __device__ __forceinline__ void keep_square(const struct head_of_chunk &w,
                                                   bf16 *to, int I, int J,
                                                   const uint2 *four)
{
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = I * SPAN + h * 8;
        if (to && i < w.rows) *(uint2 *)(to + i * opaque(w.step) + J * SPAN) = four[h];
    }
}

// Square (I, J) of A: A beta to the record, A to the block.
static __device__ __forceinline__ void put_inverse(const struct head_of_chunk &w, int I,
                                                   int J, const float (*d)[4])
{
    const float4 b = *(const float4 *)&w.beta[J * SPAN + lane_column()];
    uint2 Ab[2], A[2];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const float *l = d[0] + 2 * h, *r = d[1] + 2 * h;
        Ab[h] = make_uint2(pack_bf16x2(b.x * l[0], b.y * l[1]),
                           pack_bf16x2(b.z * r[0], b.w * r[1]));
        A[h] = make_uint2(pack_bf16x2(l[0], l[1]), pack_bf16x2(r[0], r[1]));
    }
    put_square(w, offsetof(struct head_record, Ab), I, J, Ab);
    keep_square(w, w.A, I, J, A);
}

static __device__ __forceinline__ void put_scores(const struct head_of_chunk &w, int I,
                                                  int J, const uint2 *four)
{
    put_square(w, offsetof(struct head_record, Aqk), I, J, four);
    keep_square(w, w.Aqk, I, J, four);
}

// Between spans decay is a product of two factors, at most 1 at any gate: from a row up
// to the first of its span, and from there to a row above. Norms and beta are in them:
// of rows i of q, and of k with L's sign; of rows j above span I, `above(I) + j`.
struct pair_factors { float q[CHUNK], k[CHUNK], to[96]; };

static __device__ __forceinline__ int above(int I) { return 8 * I * (I - 1); }

// Where square (I, J), J < I, lies among six.
static __device__ __forceinline__ int below(int I, int J)
{
    return I * (I - 1) / 2 + J;
}

// Products on chip, in squares as lanes hold them: (I, J) of q k^T where J <= I; of
// k k^T, which is its own transpose, (J, I) there.
typedef float4 scores[SPANS * (SPANS + 1) / 2][2][32];

// Square (I, J) of Aqk, J < I.
static __device__ __forceinline__ void square_scores(const struct head_of_chunk &w,
                                                     int I, int J, const scores &qk,
                                                     const struct pair_factors &f)
{
    const float4 c = *(const float4 *)&f.to[above(I) + J * SPAN + lane_column()];
    uint2 four[2];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const float4 d = qk[square_of(I, J)][h][threadIdx.x % 32];
        const float r = f.q[I * SPAN + h * 8 + lane_row()];
        four[h] = make_uint2(pack_bf16x2(d.x * (r * c.x), d.y * (r * c.y)),
                             pack_bf16x2(d.z * (r * c.z), d.w * (r * c.w)));
    }
    put_scores(w, I, J, four);
}

// N = -L, square (I, J), as the B of a product: its transpose's rows are those of
// k k^T.
static __device__ __forceinline__ struct pieces minus_L(int I, int J,
                                                        const scores &kk,
                                                        const struct pair_factors &f)
{
    const float4 c = *(const float4 *)&f.k[I * SPAN + lane_column()];
    float y[2][4];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const float4 d = kk[square_of(I, J)][h][threadIdx.x % 32];
        const float r = f.to[above(I) + J * SPAN + h * 8 + lane_row()];
        put_tiles(y, h, make_float4(d.x * (r * c.x), d.y * (r * c.y), d.z * (r * c.z),
                                    d.w * (r * c.w)));
    }
    return as_a(y);
}

// The square on the diagonal, pair by pair, for no two factors hold it at any gate: Aqk
// out, L, below the diagonal, to where it is inverted.
static __device__ __forceinline__ void diagonal_scores(const struct head_of_chunk &w,
                                                       int I, const scores &qk,
                                                       const scores &kk,
                                                       struct span_square &L)
{
    const int column = lane_column(), j = I * SPAN + column;
    const float4 G = *(const float4 *)&w.G[j], n0 = *(const float4 *)&w.norm[j];
    const float4 n2 = *(const float4 *)&w.norm[j + 2];
    const float Gj[4] = { G.x, G.y, G.z, G.w }, nj[4] = { n0.y, n0.w, n2.y, n2.w };
    uint2 four[2];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = h * 8 + lane_row(), i = I * SPAN + row;
        const float2 n = w.norm[i];
        const float Gi = w.G[i], nk = n.y * w.beta[i];
        const float4 dq = qk[square_of(I, I)][h][threadIdx.x % 32];
        const float4 dk = kk[square_of(I, I)][h][threadIdx.x % 32];
        float q[4] = { dq.x, dq.y, dq.z, dq.w }, k[4] = { dk.x, dk.y, dk.z, dk.w };
        #pragma unroll
        for (int m = 0; m < 4; m++) {
            const float f = nj[m] * ex2_approx(Gi - Gj[m]);
            q[m] = column + m > row ? 0.0f : q[m] * (n.x * f), k[m] *= nk * f;
        }
        four[h] = make_uint2(pack_bf16x2(q[0], q[1]), pack_bf16x2(q[2], q[3]));
        *(float4 *)&L.x[row][column] = make_float4(k[0], k[1], k[2], k[3]);
    }
    put_scores(w, I, I, four);
}

#endif
