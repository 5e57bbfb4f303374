// v3_records_tiles.cuh -- prepare for a gate a channel: a chunk on chip, and its rows'
// way there.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
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

template <int K>
struct tiles {
    struct half_tiles half[2];           // K = 64 has one half; L lies in the other
    float sum[8][64], beta[CHUNK];
    float2 norm[CHUNK];                  // scale / |q|, 1 / |k|
    bf16 own[CHUNK];                     // Aqk_ii
    uint64_t full;                       // rows have come
    int lowest;                          // chunk of the first one's stretch
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
    warp = anew(warp);
    const int lane = this_thread() % 32, I = warp / 2, h = warp % 2, wide = K == 128;
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

// Rows of a chunk on their way to shared memory, by one warp: `rows` of them from row
// first on, zeros past the chunk's end. what: q, k or the gate.
template <int K, int rows>
static __device__ __forceinline__ void ask_rows(const void *x, int64_t at, int stride,
                                                int first, int len, struct tiles<K> &s,
                                                int what)
{
    const int lane = this_thread() % 32, row = lane / (K / 8), piece = lane % (K / 8);
    const bf16 *from = (const bf16 *)x + at + piece * 8;
    const int to = in_panel(first + row, piece % 8) + what * BYTES;
    #pragma unroll
    for (int r = 0; r < rows; r += 256 / K) {
        const int i = first + row + r, there = i < len;
        copy_async(s.half[piece / 8].q + (to ^ r % 8 << 4) + r * 128,
                   from + (there ? i : 0) * stride, there);
    }
}

// What a warp alone reads of its span: rows of q, or of k; then its half of the gates.
template <int K>
static __device__ __forceinline__ void ask_own(const struct kcp_forward &a,
                                               struct span z, int m, int warp,
                                               struct tiles<K> &s)
{
    warp = anew(warp);
    ask_rows<K, SPAN>(warp % 2 ? a.k_raw : a.q_raw, (z.t * a.H + m) * K, a.H * K,
                      warp / 2 * SPAN, z.len, s, warp % 2);
}

template <int K>
static __device__ __forceinline__ void ask_gates(const struct kcp_forward &a,
                                                 struct span z, int n, int warp,
                                                 struct tiles<K> &s)
{
    ask_rows<K, SPAN / 2>(a.g_raw, (z.t * a.HV + n) * K, a.HV * K, anew(warp) * 8,
                          z.len, s, 2);
    copies_arrive(&s.full);
}

#endif
