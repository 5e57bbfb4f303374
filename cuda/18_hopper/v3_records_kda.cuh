// v3_records_kda.cuh -- the kernel that makes records for a gate a channel.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_spans.cuh.
#ifndef KCP_V3_RECORDS_KDA_CUH
#define KCP_V3_RECORDS_KDA_CUH

#include "v3_records_squares.cuh"

// A warp's squares to the record, and A from those of k: its spans' inverses, then a
// column of squares a warp. y: see pairs.
template <int K, int keeps>
static __device__ __forceinline__ void squares_out(const struct records &x,
                                                   struct token_range z, int c, int n,
                                                   int I, int of_k, struct tiles<K> &s,
                                                   float (*y)[2][4])
{
    const struct inverse_room room = inverse_room(s);
    struct record<K> *r = record_of<K>(x, c, n);
    if (of_k) pairs_of_k(I, y, room);
    else pairs_of_q<keeps>(x, z, n, I, y, s.own, r->Aqk);
    if (keeps) zeros_out(x, z, n, { I, of_k });
    __syncthreads();
    if (of_k) diagonal_out<keeps>(x, z, n, I, room, r->Ab);
    else column_of_squares<keeps>(x, z, n, I, room, r->Ab);
}

// Bound: memory, 6K read and 6K + 2.5C written a token-head. A block has some chunks of
// a head, the last one first, and asks for the next one's rows as soon as this one's
// tiles have been read. Eight warps: two a span, for q and for k; spans take turns at
// the four schedulers, for the last has the most squares. Barriers: the rows are there;
// norms, beta and sums are; tiles; pairs; L and the spans' inverses.
template <int K, int form, int keeps>
static __global__ __launch_bounds__(256, 3) void prepare_kda_kernel(
    const __grid_constant__ struct records x,
    const __grid_constant__ struct row_maps from, int share)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct tiles<K> &s = *(struct tiles<K> *)shared;
    static_assert(3 * (sizeof s + 1024) <= 228 * 1024, "three blocks on an SM");
    const struct kcp_forward &a = x.a;
    const int n = blockIdx.x;
    const int warp = __shfl_sync(~0u, (threadIdx.x / 32 + n) % 8, 0), of_k = warp % 2;
    const int last = chunks_of(x) - 1 - blockIdx.y * share;
    const int count = min(share, last + 1);

    griddepcontrol_launch_dependents();
    if (threadIdx.x == 0) {
        mbarrier_init(&s.full, 1), mbarrier_fence_init();
        ask_first(x, from, x.first + last, n, s);
    }
    __syncthreads();
    #pragma unroll 1
    for (int turn = 0; turn < count; turn++) {
        const int c = x.first + last - turn;
        float G[owned<K>::ROWS][2];
        struct owned<K> w = owned_by<K>(warp);
        struct token_range z = span_at(s, turn);
        const struct asked ask = ask_gate(a, z, n, w.channel);
        mbarrier_wait(&s.full, turn);
        if (z.len < CHUNK) zero_rows(z.len, s);
        if (of_k) row_norms<K, keeps>(x, z, w.I * SPAN, s);
        const int deep = __syncthreads_or(sums<K, form>(a, ask, z.len, w, s, G));
        if (keeps) z = span_at(s, turn);
        if (threadIdx.x < CHUNK)
            s.beta[threadIdx.x] = beta_of_raw<keeps>(x, z, n, ask.beta);
        w = owned_by<K>(warp);
        if (keeps && s.kept >= 0) keep_rows<K>(x, z, w, s);
        struct record<K> *r = record_of<K>(x, c, n);
        const struct lead to = leads<K>(w, s, G, r->decay);
        if (deep) rows_out<K, 1>(w, G, to, s, r);
        else rows_out<K, 0>(w, G, to, s, r);
        float y[SPANS][2][4] = {};
        __syncthreads();
        all_pairs<K>(w.I, of_k, s, y);
        z = span_at(s, turn);
        if (deep) {
            __syncthreads();             // the tiles have been read
            deep_square<K, form>(a, z, n, w.I, of_k, s, y[3]);
        }
        fence_proxy_async();
        __syncthreads();
        if (turn + 1 < count && threadIdx.x == 0) ask_next(a, from, c - 1, turn, n, s);
        squares_out<K, keeps>(x, z, c, n, w.I, of_k, s, y);
    }
    if (blockIdx.x + 1 == gridDim.x && blockIdx.y + 1 == gridDim.y)
        griddepcontrol_wait();
}

// Chunks of a block: several, so that their copies hide, while there are blocks enough;
// and as many as a grid needs that is 65535 high at most.
static inline int chunks_a_block(int chunks, int heads)
{
    const int64_t n = (int64_t)chunks * heads / (4 * 3 * processors());
    const int some = n < 1 ? 1 : n > 3 ? 3 : (int)n, least = chunks / 65535 + 1;
    return some > least ? some : least;
}

template <int K, int form, int keeps>
static int prepare_kda_form(const struct records *x)
{
    const int chunks = chunks_of(*x), share = chunks_a_block(chunks, x->a.HV);
    const dim3 blocks(x->a.HV, (chunks + share - 1) / share);
    struct row_maps from;
    const int status = map_rows<K>(&from, x->a);
    return status ? status
                  : launch_beside(prepare_kda_kernel<K, form, keeps>,
                                  sizeof(struct tiles<K>), blocks, 256, x, from, share);
}

template <int K, int keeps>
static int prepare_kda_gate(const struct records *x)
{
    const enum kcp_gate_form form = x->a.gate;
    return form == KCP_GATE_BOUNDED ? prepare_kda_form<K, KCP_GATE_BOUNDED, keeps>(x)
         : form == KCP_GATE_RAW ? prepare_kda_form<K, KCP_GATE_RAW, keeps>(x)
                                : prepare_kda_form<K, KCP_GATE_SOFTPLUS, keeps>(x);
}

template <int K>
static int prepare_kda_records(const struct records *x)
{
    return keeps_any(*x) ? prepare_kda_gate<K, 1>(x) : prepare_kda_gate<K, 0>(x);
}

#endif
