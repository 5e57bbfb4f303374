// v3_records_copy.cuh -- records on chip: parts in turn, copied ahead by warps.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_chain.cuh.
#ifndef KCP_V3_RECORDS_COPY_CUH
#define KCP_V3_RECORDS_COPY_CUH

#include "v3_records.cuh"

// On chip: records in turn, in parts that arrive, and are given back, on their own: -k~
// with v beside it; A beta, kg and decay; qg; Aqk: three chunks ahead; with one gate a
// head, where kg is k, a lone warpgroup has k and v four ahead. Two warpgroups with a
// gate a channel have two: memory is their bound, and 96 chains that read farther ahead
// drift apart, which cost 4 % of its rate. A map leaves the last two parts out, and has
// A beta and kg four ahead. A warpgroup has 64 columns of the state, S^T in registers
// as in scan.cuh.
enum { PART_K, PART_A, PART_Q, PART_S, MOST_PLACES = 4 };

template <int K, int WGS, int parts, int kda>
struct chain {
    enum { TWO = kda && parts == 4 && WGS == 2,
           FIRST = TWO ? 2 : !kda && parts == 4 && WGS == 1 ? 4 : 3,
           SECOND = TWO ? 2 : parts == 2 && kda ? 4 : 3, LATER = TWO ? 2 : 3 };
    static_assert(FIRST > 1, "o of a chunk lies where another's v does not");
    static_assert(kda || (int)SECOND == (int)LATER, "Q lies with the other factors");
    struct __align__(1024) { unsigned char x[K / 64][BYTES]; } k[FIRST];
    struct __align__(1024) { unsigned char Ab[BYTES], kg[kda ? K / 64 : 0][BYTES]; }
        second[SECOND];
    struct __align__(1024) { unsigned char q[K / 64][BYTES], Aqk[BYTES]; }
        later[parts == 4 ? LATER : 0];
    float decay[kda ? SECOND : 0][K];
    struct row_factors head[kda ? 0 : SECOND];
    bf16 v[FIRST][CHUNK][64 * WGS + PAD];
    uint64_t full[parts][MOST_PLACES], empty[parts][MOST_PLACES];
    uint64_t v_empty[parts == 4 ? FIRST : 0];
    uint64_t turned[WGS];                // the scan's o, on its way out
};

// The window's chunks of a stretch.
static __device__ __forceinline__ int first_chunk(const struct records &x, int z)
{
    return ((const int *)x.a.cn)[z] + x.first;
}
static __device__ __forceinline__ int chunk_count(const struct records &x, int z)
{
    return min(((const int *)x.a.cn)[z + 1] - first_chunk(x, z), x.count);
}

template <class Chain>
static __host__ __device__ constexpr int places(int part)
{
    return part == PART_K ? Chain::FIRST
         : part == PART_A ? Chain::SECOND : Chain::LATER;
}

// Chunk number `turn` of a chain: its place among a part's, and that place's round.
template <class Chain>
static __device__ __forceinline__ int place_of(const Chain &m, int part, int turn)
{
    return turn % (unsigned)places<Chain>(part);
}
template <class Chain>
static __device__ __forceinline__ int round_of(const Chain &m, int part, int turn)
{
    return turn / (unsigned)places<Chain>(part);
}

template <class Chain>
static __device__ __forceinline__ void wait_full(Chain &m, int part, int turn)
{
    turn_wait(&m.full[part][place_of(m, part, turn)], round_of(m, part, turn));
}

// blocks: 2, a pair of blocks of a cluster fills both rooms, and both must be free; a
// lane for each tells them that its warp is done: the barrier of the warp orders what
// its lanes have read before that arrival. racecheck follows neither this nor arrivals
// at mapped addresses; in a build for it each thread tells both, its own directly.
#ifdef KCP_FOR_SANITIZERS
enum { ARRIVING = 128 };                 // threads of a warpgroup that arrive
#else
enum { ARRIVING = 4 };
#endif
template <int blocks = 1, class Chain>
static __device__ __forceinline__ void give_back(Chain &m, int part, int turn)
{
    uint64_t *bar = &m.empty[part][place_of(m, part, turn)];
    if (blocks == 1) {
        turn_arrive(bar);
        return;
    }
    if (ARRIVING == 128) {
        turn_arrive(bar);
        turn_arrive_at(bar, cluster_rank() ^ 1);
        return;
    }
    __syncwarp();
    if (threadIdx.x % 32 < blocks) turn_arrive_at(bar, threadIdx.x % 32);
}

// A piece of a record, all of it; or this block's half, to both blocks of a pair.
template <int blocks>
static __device__ __forceinline__ void copy_piece(void *to, const void *from,
                                                  uint32_t bytes, uint64_t *bar)
{
    const uint32_t at = blocks == 1 ? 0 : cluster_rank() * (bytes / 2);
    if (blocks == 1) bulk_copy(to, from, bytes, bar);
    else bulk_copy_both((char *)to + at, (const char *)from + at, bytes / 2, bar);
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

// The zeros above, once: nothing is copied there.
static __device__ __forceinline__ void zeros_above(unsigned char *to)
{
    for (int J = 1; J < 4; J++)
        for (int i = threadIdx.x; i < 32 * J; i += blockDim.x)
            *(uint4 *)(to + 2048 * J + 16 * i) = make_uint4(0, 0, 0, 0);
}

// arrivals, at the first part: one lane announces -k~; beside it, of lanes whose pieces
// of v have come.
template <int blocks = 1, int K, int WGS, int parts, int kda>
static __device__ __forceinline__ void chain_init(struct chain<K, WGS, parts, kda> &m,
                                                  int arrivals)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < parts * MOST_PLACES; i++) {
            turn_init(&m.full[0][0] + i, i < MOST_PLACES ? arrivals : 1);
            turn_init(&m.empty[0][0] + i,
                      blocks > 1 ? ARRIVING * WGS * blocks : 128 * WGS);
        }
        for (int i = 0; i < m.FIRST && parts == 4; i++)
            turn_init(&m.v_empty[i], 128 * WGS);
        for (int i = 0; i < WGS; i++) turn_init(&m.turned[i], 128);
        turns_show();
    }
    for (int i = 0; i < m.SECOND; i++) zeros_above(m.second[i].Ab);
    for (int i = 0; i < m.LATER && parts == 4; i++) zeros_above(m.later[i].Aqk);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (blocks > 1) cluster_sync();
    else __syncthreads();
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
        turn_expect(full, panels);
        copy_piece<blocks>(m.k[at].x, kda ? r->k : rows->k, panels, full);
    } else if (part == PART_A) {
        turn_expect(full, TRIANGLE + (kda ? panels + sizeof r->decay : FACTORS_S));
        copy_triangle<blocks>(m.second[at].Ab, kda ? r->Ab : head->Ab, full);
        if (kda) copy_piece<blocks>(m.second[at].kg, r->kg, panels, full);
        if (kda) copy_piece<blocks>(m.decay[at], r->decay, sizeof r->decay, full);
        else copy_piece<blocks>(&m.head[at], &head->f, FACTORS_S, full);
    } else if (part == PART_Q) {
        turn_expect(full, panels + (kda ? 0 : sizeof head->f.Q));
        copy_piece<blocks>(m.later[at].q, kda ? r->q : rows->q, panels, full);
        if (!kda)
            copy_piece<blocks>(m.head[at].Q, head->f.Q, sizeof head->f.Q, full);
    } else {
        turn_expect(full, TRIANGLE);
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
            copy_async(&to[i][lane % pieces * 8], v + (i < left ? i : 0) * ld,
                       i < left);
        copies_arrive(full);
        v += CHUNK * ld, left -= CHUNK;
    }
};

template <int WGS, int lanes>
static __device__ __forceinline__ struct rows_of_v<WGS, lanes> rows_of_v_of(
    const struct records &x, int z, int n, int v0)
{
    const int64_t t = chunk_span(x.a, z, first_chunk(x, z)).t;
    const bf16 *v = in<bf16>(x.a.v, t, x.a.HV, n, x.a.V) + v0;
    const int64_t left = ((const int *)x.a.cu)[z + 1] - t;
    return { v + threadIdx.x % lanes % (8 * WGS) * 8, (int64_t)x.a.HV * x.a.V,
             (int)min(left, (int64_t)x.count * CHUNK) };
}

// A warp copies one part, of chunk after chunk, each as soon as its place is free; and
// v besides, or v alone, as it is told.
template <int part, int of_record, int blocks, int K, int WGS, int parts, int kda,
          int lanes>
static __device__ void copy_parts(const struct records &x, int z, int n,
                                  struct chain<K, WGS, parts, kda> &m,
                                  struct rows_of_v<WGS, lanes> *v)
{
    enum { PLACES = places<struct chain<K, WGS, parts, kda>>(part) };
    struct source<K> from = source_of<K>(x, first_chunk(x, z), n);
    int at = 0, round = 0;
    for (int left = chunk_count(x, z); left > 0; left--, from.step()) {
        if (round) turn_wait(&m.empty[part][at], round - 1);
        __syncwarp();                    // a late lane might miss the round
        if (of_record && threadIdx.x % 32 == 0) copy_part<part, blocks>(from, at, m);
        __syncwarp();
        if (v && parts == 4 && round) turn_wait(&m.v_empty[at], round - 1);
        if (v) v->copy(m.v[at], &m.full[PART_K][at]);
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
    struct rows_of_v<WGS, 32> v = {}, *none = NULL;
    if (part == PART_K) {
        v = rows_of_v_of<WGS, 32>(x, z, n, v0);
        copy_parts<PART_K, 1, blocks>(x, z, n, m, &v);
    }
    if (part == PART_A) copy_parts<PART_A, 1, blocks>(x, z, n, m, none);
    if (part == PART_Q) copy_parts<PART_Q, 1, blocks>(x, z, n, m, none);
    if (part == PART_S) copy_parts<PART_S, 1, blocks>(x, z, n, m, none);
}

#endif
