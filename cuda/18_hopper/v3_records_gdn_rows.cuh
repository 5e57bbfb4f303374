// v3_records_gdn_rows.cuh -- prepare, one gate a head: what value heads share.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_gdn.cuh.
#ifndef KCP_V3_RECORDS_GDN_ROWS_CUH
#define KCP_V3_RECORDS_GDN_ROWS_CUH

#include "v3_records_spans.cuh"

static __device__ __forceinline__ void unpack_row(float *y, uint4 u, float times)
{
    const uint32_t w[4] = { u.x, u.y, u.z, u.w };
    #pragma unroll
    for (int i = 0; i < 8; i++) y[i] = times * (i % 2 ? high(w[i / 2]) : low(w[i / 2]));
}

static __device__ __forceinline__ uint4 pack_row(const float *x)
{
    return make_uint4(pack_bf16x2(x[0], x[1]), pack_bf16x2(x[2], x[3]),
                      pack_bf16x2(x[4], x[5]), pack_bf16x2(x[6], x[7]));
}

// With one gate a head, decay leaves the products over channels: q k^T and k k^T are
// made once for the value heads of a query/key head, of the numbers as they are, and a
// pair's decay is exp2 of a difference, exact at any gate. A block is a warpgroup: warp
// I has span I, 16 rows of both products.
enum { SHARE = 4 };                      // value heads of a block, at most

// What a value head needs besides the products: two spans at a time, or all four.
template <int spans>
struct head_room {
    struct span_square square[spans];
    struct pair_factors f;
};

// Where four warps have one head: -L and the diagonal's inverses, as a product's B.
struct squares { uint4 N[6][2][32], B[SPANS - 1][2][32]; };

// many: more heads than one, a warp each; the products wait for them in shared memory.
// Rows of q are gone when qk is written, those of k when kk is.
template <int K, int many>
struct __align__(1024) prepare_gdn {
    union {
        struct shared_rows<K> raw;
        struct {
            scores kk;
            struct squares four[many ? 0 : 1];
            struct head_room<many ? 2 : SPANS> head[many ? SHARE : 1];
            scores qk;
        };
    };
    float G[many ? SHARE : 1][CHUNK], beta[many ? SHARE : 1][CHUNK];
    float2 norm[CHUNK];                  // scale / |q|, 1 / |k|, 0 past the end
    struct token_range z; // these here, so that no registers hold them:
    int c, n, heads;                     // the chunk, the first head, how many
};

// Rows of q and k of query/key head m to panels, 0 past the end.
template <int K>
static __device__ __forceinline__ void rows_in(const struct records &x,
                                               struct token_range z, int m,
                                               struct shared_rows<K> &to)
{
    const int pieces = K / 8, rows = 128 / pieces, p = threadIdx.x % pieces;
    const int first = threadIdx.x / pieces;
    const int panel = p / 8 * BYTES + swizzle128_offset(first, p % 8);
    const int64_t at = (z.t * x.a.H + m) * K + p * 8;
    const bf16 *q = (const bf16 *)x.a.q_raw + at, *k = (const bf16 *)x.a.k_raw + at;
    #pragma unroll
    for (int r = 0; r < CHUNK; r += rows) {
        const int there = first + r < z.len;
        const int64_t from = (int64_t)(there ? first + r : 0) * (x.a.H * K);
        cp_async_16(to.q[0] + panel + r * 128, q + from, there);
        cp_async_16(to.k[0] + panel + r * 128, k + from, there);
    }
}

// d = X Y^T, X and Y [64,K] in panels, is under way.
template <int K>
static __device__ __forceinline__ void rows_rows(float (*d)[4],
                                                 const unsigned char (*X)[BYTES],
                                                 const unsigned char (*Y)[BYTES])
{
    wgmma_fence();
    #pragma unroll
    for (int p = 0; p < K / 16; p++)
        wgmma_m64n64k16_ss(
            d, smem_desc_k_major((const bf16 *)X[p / 4]) + p % 4 * DESC_STEP_K_MAJOR,
            smem_desc_k_major((const bf16 *)Y[p / 4]) + p % 4 * DESC_STEP_K_MAJOR, p);
    wgmma_commit();
}

// The products of span I's rows with one another: a fragment is its transpose's B.
template <int K>
static __device__ __forceinline__ void span_rows(float (*d)[4], int I,
                                                 const unsigned char (*X)[BYTES])
{
    const int lane = threadIdx.x % 32,
              at = swizzle128_offset(I * SPAN + lane % 16, lane / 16);
    #pragma unroll
    for (int p = 0; p < K / 16; p++) {
        uint32_t a[4];
        ldmatrix_x4(a, (const bf16 *)(X[p / 4] + (at ^ p % 4 << 5)));
        mma_m16n8k16(d[0], a, a[0], a[2]), mma_m16n8k16(d[1], a, a[1], a[3]);
    }
}

// times / |row| of the span's rows g and g + 8, from the diagonal of their products:
// lanes of e / 2 = g / 2 have it. 0 past the end.
template <int K>
static __device__ __forceinline__ void norms_out(const struct records &x, int I,
                                                 int len,
                                                 const unsigned char (*X)[BYTES],
                                                 float times, float *norm)
{
    const int g = threadIdx.x % 32 / 4;
    float d[2][4] = {};
    span_rows<K>(d, I, X);
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = I * SPAN + 8 * h + g;
        const float sum = g % 2 ? d[h][2 * h + 1] : d[h][2 * h];
        const float n = x.a.l2norm ? rsqrtf(sum + 1e-6f) : 1.0f;
        if (threadIdx.x % 4 == g / 2) norm[2 * i] = i < len ? n * times : 0.0f;
    }
}

// The warp's squares, from J = first to last, to where heads find them: a lane's pairs
// to the four neighbours they belong to. turned: (I, J) lies where (J, I) would.
static __device__ __forceinline__ void keep_squares(int I, int first, int last,
                                                    const float (*d)[4], int turned,
                                                    scores &to)
{
    const int lane = threadIdx.x % 32, at = lane / 4 * 8 + lane % 4;
    #pragma unroll
    for (int T = 0; T < 2 * SPANS; T++) {
        const int J = T / 2;
        if (J < first || J > last) continue;
        float4 (*square)[32] = to[turned ? square_of(J, I) : square_of(I, J)];
        #pragma unroll
        for (int h = 0; h < 2; h++)
            ((float2 *)square[h])[at + T % 2 * 4] = *(const float2 *)&d[T][2 * h];
    }
}

// What the block keeps of q and k, once for the heads that share them.
template <int K>
static __device__ __forceinline__ void rows_kept(const struct records &x,
                                                 struct token_range z, int m,
                                                 const float2 *norm,
                                                 const struct shared_rows<K> &r)
{
    const int pieces = K / 8, p = threadIdx.x % pieces;
    #pragma unroll 1
    for (int i = threadIdx.x / pieces; i < z.len; i += 128 / pieces) {
        const int panel = p / 8 * BYTES + swizzle128_offset(i, p % 8);
        const int64_t row = (z.t + i) * x.a.H + m;
        const float nq = norm[i].x / (float)x.a.scale, nk = norm[i].y;
        float y[8];
        unpack_row(y, *(const uint4 *)(r.q[0] + panel), nq);
        *(uint4 *)((bf16 *)x.to13.q + row * K + p * 8) = pack_row(y);
        unpack_row(y, *(const uint4 *)(r.k[0] + panel), nk);
        *(uint4 *)((bf16 *)x.to13.k + row * K + p * 8) = pack_row(y);
        if (p == 0)
            ((float *)x.to13.rstd_q)[row] = nq, ((float *)x.to13.rstd_k)[row] = nk;
    }
}

// Rows to memory, as they are: by the copy engine, whose stores initcheck does not see;
// in the sanitizers' build by threads.
template <class Rows>
static __device__ __forceinline__ void rows_away(void *to, const Rows &from)
{
#ifdef KCP_FOR_SANITIZERS
    for (int i = threadIdx.x; to && i < (int)sizeof from / 16; i += blockDim.x)
        ((uint4 *)to)[i] = ((const uint4 *)&from)[i];
#else
    if (to && threadIdx.x == 0) tma_store_1d(to, &from, sizeof from);
#endif
}

// Norms and q k^T, which takes the place of q's rows; then k k^T, which is left under
// way, so that no thread holds both. Rows go to memory meanwhile, as they are.
template <int K, int many, int kept>
static __device__ __forceinline__ void products(const struct records &x, int I, int m,
                                                struct shared_rows<K> *to,
                                                float (*d)[4],
                                                struct prepare_gdn<K, many> &r)
{
    typedef struct prepare_gdn<K, many> room;
    static_assert(offsetof(room, qk) >= sizeof r.raw.k, "qk is not where k's rows are");
    rows_rows<K>(d, r.raw.q, r.raw.k);
    rows_away(to, r.raw);
    norms_out<K>(x, I, r.z.len, r.raw.q, (float)x.a.scale, &r.norm[0].x);
    norms_out<K>(x, I, r.z.len, r.raw.k, 1.0f, &r.norm[0].y);
    wgmma_wait<0>();
    fence_operand<2 * SPANS>(d);
    if (threadIdx.x == 0) tma_store_wait_read();
    __syncthreads();
    if (kept && x.to13.q && to) {
        rows_kept<K>(x, r.z, m, r.norm, r.raw);
        __syncthreads();
    }
    keep_squares(I, 0, I, d, 0, r.qk);
    rows_rows<K>(d, r.raw.k, r.raw.k);
}

#endif
