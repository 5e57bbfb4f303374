// v3_records_tiles.cuh -- prepare for a gate a channel: a chunk on chip, and its rows'
// way there.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_rows.cuh.
#ifndef KCP_V3_RECORDS_TILES_CUH
#define KCP_V3_RECORDS_TILES_CUH

#include "v3_records_inverse.cuh"

// A chunk's shared memory, 64 channels a half: rows of q, k and the gate as a panel has
// them; in their place, once decay is in them, the operands of the pairs: q F and k F
// of every row, F = exp2(G) from its span's own anchor, and k / F for pairs within the
// span. one, two, far: k at the end of its span, led on to one, two, three spans below.
// 75 KiB, so that three blocks fit an SM to the byte.
struct half_tiles {
    unsigned char q[BYTES], k[BYTES], g[BYTES];
    unsigned char one[3][BYTES / SPANS], far[BYTES / SPANS], two[2][BYTES / SPANS];
};

// A chunk's first token, and how many it has. Shared memory keeps this: a register that
// spills comes back from the second level.
struct __align__(8) span_here { uint32_t t; int len; };

template <int K>
struct tiles {
    struct half_tiles half[2];           // K = 64 has one half; L lies in the other
    float sum[8][64], beta[CHUNK];
    float2 norm[CHUNK];                  // scale / |q|, 1 / |k|
    bf16 own[CHUNK];                     // Aqk_ii
    uint64_t full;                       // rows have come
    struct span_here at[2];              // of the chunk in work, and of the next
    int lowest;                          // chunk of the first one's stretch
    int m, kept;                         // query/key head; the same, or -1: not kept
};

// What the inverse needs, where the columns were.
struct inverse_room {
    uint4 (*L)[2][32], (*A)[2][32];
    float (*square)[SPAN][SPAN + 4], *beta;
};

template <int K>
static __device__ __forceinline__ struct inverse_room inverse_room(struct tiles<K> &s)
{
    static_assert(10 * 1024 <= 6 * sizeof *s.half->one, "one, far and two of a half");
    struct inverse_room r;
    r.L = (uint4 (*)[2][32])s.half[0].one, r.A = (uint4 (*)[2][32])s.half[1].one;
    r.square = (float (*)[SPAN][SPAN + 4])(r.A + SPANS), r.beta = s.beta;
    return r;
}

// What a thread owns: two neighbouring channels, all rows of a span, or half of them
// where a warp is as wide as K. It reads them, and writes what becomes of them, in
// place: 128 bytes of a row a warp.
template <int K>
struct owned {
    enum { ROWS = K / 8, PARTS = SPAN / ROWS };
    int I, row, channel, at;             // span, first row and channel; byte in half
};

template <int K>
static __device__ __forceinline__ struct owned<K> owned_by(int warp)
{
    warp = opaque(warp);
    const int lane = opaque_thread_id() % 32, I = warp / 2, h = warp % 2,
              wide = K == 128;
    const int row = I * SPAN + (wide ? 0 : h * 8);
    return { I, row, (wide ? h * 64 : 0) + lane * 2,
             (wide ? h * (int)sizeof(struct half_tiles) : 0) + row * 128 + lane * 4 };
}

// Byte of its channels in the r-th of its rows.
template <int K>
static __device__ __forceinline__ int in_row(const struct owned<K> &w, int r)
{
    return (w.at ^ (r % 8) << 4) + r * 128;
}

// Rows of q, k and the gate as the copy engine takes them.
struct row_maps { CUtensorMap q, k, g; };

template <int K>
static int map_rows(struct row_maps *m, const struct kcp_forward &a)
{
    return tensor_map_of_heads(&m->q, a.q_raw, a.T, a.H, K, CHUNK)
                   && tensor_map_of_heads(&m->k, a.k_raw, a.T, a.H, K, CHUNK)
                   && tensor_map_of_heads(&m->g, a.g_raw, a.T, a.HV, K, CHUNK)
               ? KCP_OK
               : KCP_CUDA;
}

// A thread asks for 64 rows from token t on, of query/key head m and value head n.
template <int K>
static __device__ __forceinline__ void ask_rows(const struct row_maps &from, int t,
                                                int m, int n, struct tiles<K> &s)
{
    mbarrier_arrive_expect_tx(&s.full, 3 * K / 64 * BYTES);
    #pragma unroll
    for (int h = 0; h < K / 64; h++) {
        tma_load_3d(s.half[h].q, from.q, h * 64, m, t, &s.full);
        tma_load_3d(s.half[h].k, from.k, h * 64, m, t, &s.full);
        tma_load_3d(s.half[h].g, from.g, h * 64, n, t, &s.full);
    }
}

// One thread asks for chunk c, the last of a block's share; and then, as soon as tiles
// have been read, for the one before.
template <int K>
static __device__ __forceinline__ void ask_first(const struct records &x,
                                                 const struct row_maps &from, int c,
                                                 int n, struct tiles<K> &s)
{
    const int kv = x.a.HV / x.a.H;
    const struct token_range z = span_of(x.a, c);
    s.m = n / kv, s.kept = x.to13.q && n % kv == 0 ? n / kv : -1;
    s.lowest = x.a.NS == 1 ? 0 : ((const int *)x.a.cn)[((const int *)x.a.sc)[c]];
    s.at[0] = { (uint32_t)z.t, z.len };
    ask_rows(from, z.t, s.m, n, s);
}

template <int K>
static __device__ __forceinline__ void ask_next(const struct kcp_forward &a,
                                                const struct row_maps &from, int c,
                                                int turn, int n, struct tiles<K> &s)
{
    struct token_range z = { s.at[turn % 2].t - CHUNK, CHUNK };
    if (c < s.lowest) z = span_of(a, c);
    s.at[(turn + 1) % 2] = { (uint32_t)z.t, z.len };
    ask_rows(from, z.t, s.m, n, s);
}

// Of chunk number `turn` of the block's, from shared memory each time.
template <int K>
static __device__ __forceinline__ struct token_range span_at(const struct tiles<K> &s,
                                                             int turn)
{
    const uint2 y = ld_shared_v2(&s.at[turn % 2]);
    return { y.x, (int)y.y };
}

// Rows past the chunk's end are another sequence's: zeros, for all threads.
template <int K>
static __device__ __forceinline__ void zero_rows(int len, struct tiles<K> &s)
{
    for (int at = len * 8 + threadIdx.x; at < CHUNK * 8; at += blockDim.x)
        for (int h = 0; h < K / 64; h++)
            ((uint4 *)s.half[h].q)[at] = ((uint4 *)s.half[h].k)[at] =
                make_uint4(0, 0, 0, 0);
    __syncthreads();
}

#endif
