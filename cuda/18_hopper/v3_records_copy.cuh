// v3_records_copy.cuh -- records to the chip: warps copy parts ahead, in turn.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_chain.cuh.
#ifndef KCP_V3_RECORDS_COPY_CUH
#define KCP_V3_RECORDS_COPY_CUH

#include "v3_records_turns.cuh"

// A piece of a record, all of it; or this block's half, to both blocks of a pair.
template <int blocks>
static __device__ __forceinline__ void copy_piece(void *to, const void *from,
                                                  uint32_t bytes, uint64_t *bar)
{
    const uint32_t at = blocks == 1 ? 0 : cluster_rank() * (bytes / 2);
    if (blocks == 1) tma_load_1d(to, from, bytes, bar);
    else
        tma_load_1d_multicast((char *)to + at, (const char *)from + at, bytes / 2, bar);
}

// A triangle to where its columns have all 64 rows.
template <int blocks>
static __device__ __forceinline__ void copy_triangle(unsigned char *to,
                                                     const unsigned char *from,
                                                     uint64_t *full)
{
    #pragma unroll
    for (int J = 0; J < 4; J++)
        copy_piece<blocks>(to + 2560 * J, from + column_at(J), 2048 - 512 * J, full);
}

// Where a stretch's records lie, chunk after chunk: no address is made anew, for a warp
// that copies must keep ahead.
template <int K>
struct source {
    const struct record<K> *r;
    const struct shared_rows<K> *rows;
    const struct head_record *head;
    int H, HV;

    __device__ __forceinline__ void step(void) { r += HV, rows += H, head += HV; }
};

template <int K>
static __device__ __forceinline__ struct source<K> source_of(const struct records &x,
                                                             int c, int n)
{
    return { record_of<K>(x, c, n), rows_of_head<K>(x, c, n / (x.a.HV / x.a.H)),
             head_of(x, c, n), x.a.H, x.a.HV };
}

// One part of a chunk's record to its place, by a lane. With one gate a head k is kg,
// too, and factors of rows take the place of decay.
template <int part, int blocks, int K, int WGS, int parts, int kda>
static __device__ __forceinline__ void copy_part(const struct source<K> &from, int at,
                                                 struct chain<K, WGS, parts, kda> &m)
{
    const auto *r = from.r;
    const auto *rows = from.rows;
    const auto *head = from.head;
    uint64_t *full = &m.full[part][at];
    const uint32_t panels = K / 64 * BYTES;
    if (part == PART_K) {
        mbarrier_arrive_expect_tx(full, panels);
        copy_piece<blocks>(m.k[at].x, kda ? r->k : rows->k, panels, full);
    } else if (part == PART_A) {
        mbarrier_arrive_expect_tx(
            full, TRIANGLE + (kda ? panels + sizeof r->decay : FACTORS_S));
        copy_triangle<blocks>(m.second[at].Ab, kda ? r->Ab : head->Ab, full);
        if (kda) copy_piece<blocks>(m.second[at].kg, r->kg, panels, full);
        if (kda) copy_piece<blocks>(m.decay[at], r->decay, sizeof r->decay, full);
        else copy_piece<blocks>(&m.head[at], &head->f, FACTORS_S, full);
    } else if (part == PART_Q) {
        mbarrier_arrive_expect_tx(full, panels + (kda ? 0 : sizeof head->f.Q));
        copy_piece<blocks>(m.later[at].q, kda ? r->q : rows->q, panels, full);
        if (!kda)
            copy_piece<blocks>(m.head[at].Q, head->f.Q, sizeof head->f.Q, full);
    } else {
        mbarrier_arrive_expect_tx(full, TRIANGLE);
        copy_triangle<blocks>(m.later[at].Aqk, kda ? r->Aqk : head->Aqk, full);
    }
}

// A stretch's rows of v, chunk after chunk, by so many lanes, 16 bytes each: rows are
// too short and too many for the engine. 0 past the end.
template <int WGS, int lanes>
struct rows_of_v {
    const bf16 *v;                       // this lane's piece of the chunk's first row
    int64_t ld;
    int left;

    __device__ __forceinline__ void copy(bf16 (*to)[64 * WGS + PAD], uint64_t *full)
    {
        const int lane = threadIdx.x % lanes, pieces = 8 * WGS, row = lane / pieces;
        #pragma unroll
        for (int i = row; i < CHUNK + row; i += lanes / pieces)
            cp_async_16(&to[i][lane % pieces * 8], v + (i < left ? i : 0) * ld,
                        i < left);
        cp_async_mbarrier_arrive(full);
        v += CHUNK * ld, left -= CHUNK;
    }
};

template <int WGS, int lanes>
static __device__ __forceinline__ struct rows_of_v<WGS, lanes> rows_of_v_of(
    const struct records &x, int z, int n, int v0)
{
    const int64_t t = chunk_tokens(x.a, z, first_chunk(x, z)).t;
    const bf16 *v = in<bf16>(x.a.v, t, x.a.HV, n, x.a.V) + v0;
    const int64_t left = ((const int *)x.a.cu)[z + 1] - t;
    return { v + threadIdx.x % lanes % (8 * WGS) * 8, (int64_t)x.a.HV * x.a.V,
             (int)min(left, (int64_t)x.count * CHUNK) };
}

// A warp copies one part, of chunk after chunk, each as soon as its place is free; and
// v besides, or v alone: lanes of it copy v, 0: none.
template <int part, int of_record, int lanes, int blocks, int K, int WGS, int parts,
          int kda>
static __device__ void copy_parts(const struct records &x, int z, int n, int v0,
                                  struct chain<K, WGS, parts, kda> &m)
{
    enum { PLACES = places<struct chain<K, WGS, parts, kda>>(part) };
    struct source<K> from = source_of<K>(x, first_chunk(x, z), n);
    struct rows_of_v<WGS, lanes> v = {};
    if constexpr (lanes > 0) v = rows_of_v_of<WGS, lanes>(x, z, n, v0);
    int at = 0, round = 0;
    for (int left = chunk_count(x, z); left > 0; left--, from.step()) {
        if (round) mbarrier_wait(&m.empty[part][at], round - 1);
        __syncwarp();                    // a late lane might miss the round
        if (of_record && threadIdx.x % 32 == 0) copy_part<part, blocks>(from, at, m);
        if constexpr (lanes > 0) {
            if (parts == 4 && round) mbarrier_wait(&m.v_empty[at], round - 1);
            v.copy(m.v[at], &m.full[PART_K][at]);
        }
        at = at + 1 == PLACES ? 0 : at + 1, round += at == 0;
    }
}

// The four warps of a scan that copy.
template <int blocks, int K, int WGS, int kda>
static __device__ __forceinline__ void copy_ahead(const struct records &x, int z, int n,
                                                  int v0,
                                                  struct chain<K, WGS, 4, kda> &m)
{
    const int part = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    if (part == PART_K) copy_parts<PART_K, 1, 32, blocks>(x, z, n, v0, m);
    if (part == PART_A) copy_parts<PART_A, 1, 0, blocks>(x, z, n, v0, m);
    if (part == PART_Q) copy_parts<PART_Q, 1, 0, blocks>(x, z, n, v0, m);
    if (part == PART_S) copy_parts<PART_S, 1, 0, blocks>(x, z, n, v0, m);
}

#endif
