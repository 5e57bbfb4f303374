// v3_records_inverse.cuh -- prepare, last part: (I + L)^-1 by spans, in products.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_tiles.cuh.
#ifndef KCP_V3_RECORDS_INVERSE_CUH
#define KCP_V3_RECORDS_INVERSE_CUH

#include "v3_records_gate.cuh"

// Numbers enter these products in two bf16 pieces, so that 16 bits of them count.
struct pieces { uint32_t top[4], rest[4]; };

static __device__ __forceinline__ void split_bf16_pair(float low, float high,
                                                       uint32_t &top, uint32_t &rest)
{
    top = pack_bf16x2(low, high);
    unpack_residual(top, low, high);
    rest = pack_bf16x2(low, high);
}

// Two D tiles, a square of 16, as the A of a product; or, in the same registers' order,
// of its transpose's rows as the B.
static __device__ __forceinline__ struct pieces as_a(const float (*d)[4])
{
    struct pieces p;
    #pragma unroll
    for (int i = 0; i < 4; i++)
        split_bf16_pair(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1], p.top[i],
                        p.rest[i]);
    return p;
}

// Fragments in shared memory lie as the lanes hold them: b0, b1 of rows 0-7, of 8-15.
static __device__ __forceinline__ void put(uint4 (*at)[32], const struct pieces &p)
{
    const int lane = threadIdx.x % 32;
    at[0][lane] = make_uint4(p.top[0], p.top[2], p.top[1], p.top[3]);
    at[1][lane] = make_uint4(p.rest[0], p.rest[2], p.rest[1], p.rest[3]);
}

// d [16,16] += x y^T: three of the four products of pieces.
static __device__ __forceinline__ void add_product(float (*d)[4],
                                                   const struct pieces &x,
                                                   const uint4 (*y)[32])
{
    const uint4 top = y[0][threadIdx.x % 32], rest = y[1][threadIdx.x % 32];
    mma_m16n8k16(d[0], x.top, top.x, top.y), mma_m16n8k16(d[1], x.top, top.z, top.w);
    mma_m16n8k16(d[0], x.top, rest.x, rest.y),
        mma_m16n8k16(d[1], x.top, rest.z, rest.w);
    mma_m16n8k16(d[0], x.rest, top.x, top.y), mma_m16n8k16(d[1], x.rest, top.z, top.w);
}

// The fragments of a square in shared memory, rows i, columns j.
static __device__ __forceinline__ struct pieces square_as_a(const float (*x)[SPAN + 4])
{
    const int g = threadIdx.x % 32 / 4, e = threadIdx.x % 4 * 2;
    float d[2][4];
    #pragma unroll
    for (int h = 0; h < 4; h++) {
        const float2 y = *(const float2 *)&x[g + h % 2 * 8][h / 2 * 8 + e];
        d[h / 2][h % 2 * 2] = y.x, d[h / 2][h % 2 * 2 + 1] = y.y;
    }
    return as_a(d);
}

// (I + L)^-1 of a span in L's place: a lane owns column j, 16 lanes or 32 in pairs.
static __device__ __forceinline__ void invert_square(float (*L)[SPAN + 4], int j)
{
    float x[SPAN];
    #pragma unroll
    for (int i = 0; i < SPAN; i++) x[i] = i == j;
    #pragma unroll
    for (int p = 0; p < SPAN; p += 4)
        #pragma unroll
        for (int i = p + 1; i < SPAN; i++) {
            const float4 l = *(const float4 *)&L[i][p];
            x[i] -= l.x * x[p];
            if (i > p + 1) x[i] -= l.y * x[p + 1];
            if (i > p + 2) x[i] -= l.z * x[p + 2];
            if (i > p + 3) x[i] -= l.w * x[p + 3];
        }
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < SPAN; i++) L[i][j] = x[i];
    __syncwarp();
}

// Where a lane's four of a square's first eight rows go; the next eight are 256 bytes
// on, the next square of the column 512 (in_triangle).
static __device__ __forceinline__ int four_in_square(void)
{
    const int lane = opaque_thread_id() % 32;
    return in_triangle(lane / 4, lane % 2) + lane % 4 / 2 * 8;
}

// And in a row of a tensor.
static __device__ __forceinline__ void put_row(const struct records &x, void *to,
                                               struct token_range z, int n, int i,
                                               int J, uint2 four)
{
    if (i < z.len)
        *(uint2 *)(out<bf16>(to, z.t + i, x.a.HV, n, CHUNK) + J * SPAN +
                   threadIdx.x % 2 * 8 + threadIdx.x % 4 / 2 * 4) = four;
}

// Above the diagonal the block's Aqk and A are zero: a warp has its span's rows of one
// of them.
static __device__ __forceinline__ void zeros_out(const struct records &x,
                                                 struct token_range z, int n,
                                                 struct role w)
{
    const int i = w.I * SPAN + threadIdx.x % 16, half = threadIdx.x % 32 / 16;
    void *to = w.h ? x.to13.A : x.to13.Aqk;
    if (!to || i >= z.len) return;
    for (int p = 2 * w.I + 2 + half; p < CHUNK / 8; p += 2)
        *(uint4 *)(out<bf16>(to, z.t + i, x.a.HV, n, CHUNK) + p * 8) =
            make_uint4(0, 0, 0, 0);
}

// Square (I, J) of A, given as A_IJ^T in D tiles: A beta to the record, where this lane
// has its part, A to the block.
template <int keeps>
static __device__ __forceinline__ void square_out(const struct records &x,
                                                  struct token_range z, int n, int I,
                                                  int J, const float (*d)[4],
                                                  const float *beta, unsigned char *to)
{
    const int g = lane_id() / 4; // anew: no address is kept from before
    const float b[2] = { beta[J * SPAN + g], beta[J * SPAN + 8 + g] };
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = I * SPAN + h * 8 + g;
        const float *l = d[h], *r = d[h] + 2;
        *(uint2 *)(to + h * 256) =
            four_of(movmatrix_trans(pack_bf16x2(b[0] * l[0], b[0] * l[1])),
                    movmatrix_trans(pack_bf16x2(b[1] * r[0], b[1] * r[1])));
        if (keeps && x.to13.A)
            put_row(x, x.to13.A, z, n, i, J,
                    four_of(movmatrix_trans(pack_bf16x2(l[0], l[1])),
                            movmatrix_trans(pack_bf16x2(r[0], r[1]))));
    }
}

// A_JJ^T, to the record, and as D tiles.
template <class Room>
static __device__ __forceinline__ void diagonal_square(float (*d)[4], int J,
                                                       const Room &s)
{
    const int lane = threadIdx.x % 32, g = lane / 4, e = lane % 4 * 2;
    #pragma unroll
    for (int h = 0; h < 8; h++)
        d[h / 4][h % 4] = s.square[J][h / 4 * 8 + e + h % 2][g + h % 4 / 2 * 8];
}

// Column J of the squares of A, by a warp, going down: A_IJ^T = -(sum_M A_MJ^T L_IM^T)
// A_II^T. What a product leaves in registers, packed, feeds the next one. The first
// square, on the diagonal, goes out elsewhere.
template <int keeps, class Room>
static __device__ __forceinline__ void column_of_squares(const struct records &x,
                                                         struct token_range z, int n,
                                                         int J, const Room &s,
                                                         unsigned char *Ab)
{
    unsigned char *to = Ab + four_in_square() + column_at(J);
    struct pieces A[SPANS - 1];
    float d[2][4];
    diagonal_square(d, J, s);
    A[0] = as_a(d);
    #pragma unroll
    for (int below = 1; below < SPANS; below++) {
        const int I = J + below;
        if (I >= SPANS) return;
        float y[2][4] = {}, w[2][4] = {};
        #pragma unroll
        for (int m = 0; m < below; m++)
            add_product(y, A[m], s.L[square_of(I, J + m)]);
        add_product(w, as_a(y), s.A[I]);
        #pragma unroll
        for (int h = 0; h < 8; h++) w[h / 4][h % 4] = -w[h / 4][h % 4];
        square_out<keeps>(x, z, n, I, J, w, s.beta, to + below * 512);
        if (below < SPANS - 1) A[below] = as_a(w);
    }
}

#endif
