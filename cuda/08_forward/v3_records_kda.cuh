// v3_records_kda.cuh -- the kernel that makes records for a gate a channel.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_scan.cuh.
#ifndef KCP_V3_RECORDS_KDA_CUH
#define KCP_V3_RECORDS_KDA_CUH

#include "v3_records_squares.cuh"

// A warp's squares to the record, and A from those of k: its spans' inverses, then a
// column of squares a warp. y: see pairs.
template <int K>
static __device__ __forceinline__ void squares_out(const struct records &x, int c,
                                                   int n, int I, int of_k,
                                                   struct tiles<K> &s,
                                                   float (*y)[2][4])
{
    const struct inverse_room room = inverse_room(s);
    struct span z = {};                  // only the block asks where the rows lie
    if (x.to13.Aqk || x.to13.A) z = span_of(x.a, c);
    struct record<K> *r = record_of<K>(x, anew(c), n);
    if (of_k) pairs_of_k(I, y, room);
    else pairs_of_q(x, z, n, I, y, s.own, r->Aqk);
    zeros_out(x, z, n, { I, of_k });
    __syncthreads();
    if (of_k) diagonal_out(x, z, n, I, room, r->Ab);
    else column_of_squares(x, z, n, I, room, r->Ab);
}

// Bound: memory, 6K read and 6K + 2.5C written a token-head. A block has some chunks of
// a head, the last one first, and asks for the next one's rows as soon as this one's
// tiles have been read. Eight warps: two a span, for q and for k; spans take turns at
// the four schedulers, for the last has the most squares. Barriers: the rows are there;
// norms, beta and sums are; tiles; pairs; L and the spans' inverses.
template <int K, int form>
static __global__ __launch_bounds__(256, 3) void prepare_kda_kernel(
    const __grid_constant__ struct records x, int share)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct tiles<K> &s = *(struct tiles<K> *)shared;
    const struct kcp_forward &a = x.a;
    const int n = blockIdx.x % a.HV;
    const int warp = __shfl_sync(~0u, (threadIdx.x / 32 + blockIdx.x) % 8, 0);
    const int of_k = warp % 2, kv = a.HV / a.H, m = n / kv;
    const int kept = x.to13.q && n % kv == 0 ? m : -1;
    const int last = chunks_of(x) - 1 - blockIdx.x / a.HV * share;

    let_next_begin();
    int c = x.first + last;
    struct span z = span_of(a, c);
    if (threadIdx.x == 0) {
        turn_init(&s.full, 256), turns_show();
        s.lowest = a.NS == 1 ? 0 : ((const int *)a.cn)[((const int *)a.sc)[c]];
    }
    __syncthreads();
    ask_own<K>(a, z, m, warp, s), ask_gates<K>(a, z, n, warp, s);
    int turn = 0;
    #pragma unroll 1
    for (int left = min(share, last + 1); left--; c--) {
        float G[owned<K>::ROWS][2];
        struct owned<K> w = owned_by<K>(warp);
        const struct asked ask = ask_gate(a, z, n, w.channel);
        turn_wait(&s.full, turn++);
        if (of_k) row_norms<K>(x, z, w.I * SPAN, kept, s);
        const int deep = __syncthreads_or(sums<K, form>(a, ask, z.len, w, s, G));
        if (threadIdx.x < CHUNK) s.beta[threadIdx.x] = beta_of_raw(x, z, n, ask.beta);
        if (kept >= 0) keep_rows<K>(x, z, m, w, s);
        w = owned_by<K>(warp);
        struct record<K> *r = record_of<K>(x, c, n);
        const struct lead to = leads<K>(w, s, G, r->decay);
        if (deep) rows_out<K, 1>(w, G, to, s, r);
        else rows_out<K, 0>(w, G, to, s, r);
        float y[SPANS][2][4] = {};
        __syncthreads();
        all_pairs<K>(w.I, of_k, s, y);
        if (deep) {
            __syncthreads();             // the tiles have been read
            deep_square<K, form>(a, z, n, w.I, of_k, s, y[3]);
        }
        if (left) {
            const struct span above = { (uint32_t)z.t - CHUNK, CHUNK };
            z = c > s.lowest ? above : span_of(a, c - 1);
            ask_own<K>(a, z, m, warp, s);
        }
        __syncthreads();
        if (left) ask_gates<K>(a, z, n, warp, s);
        squares_out<K>(x, c, n, w.I, of_k, s, y);
    }
    if (blockIdx.x + 1 == gridDim.x) wait_for_earlier();
}

// Chunks of a block: several, so that their copies hide, while there are blocks enough.
static inline int chunks_a_block(int64_t records)
{
    const int64_t n = records / (4 * 3 * processors());
    return n < 1 ? 1 : n > 3 ? 3 : (int)n;
}

template <int K, int form>
static int prepare_kda_form(const struct records *x)
{
    const int chunks = chunks_of(*x), share = chunks_a_block((int64_t)chunks * x->a.HV);
    return launch_beside(prepare_kda_kernel<K, form>, sizeof(struct tiles<K>),
                         (chunks + share - 1) / share * x->a.HV, 256, x, share);
}

template <int K>
static int prepare_kda_records(const struct records *x)
{
    return x->a.gate == KCP_GATE_BOUNDED ? prepare_kda_form<K, KCP_GATE_BOUNDED>(x)
         : x->a.gate == KCP_GATE_RAW ? prepare_kda_form<K, KCP_GATE_RAW>(x)
                                     : prepare_kda_form<K, KCP_GATE_SOFTPLUS>(x);
}

#endif
