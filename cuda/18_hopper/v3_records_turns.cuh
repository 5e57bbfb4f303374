// v3_records_turns.cuh -- records on chip: places in turn, filled and given back.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_copy.cuh.
#ifndef KCP_V3_RECORDS_TURNS_CUH
#define KCP_V3_RECORDS_TURNS_CUH

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
    mbarrier_wait(&m.full[part][place_of(m, part, turn)], round_of(m, part, turn));
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
template <int blocks, class Chain>
static __device__ __forceinline__ void give_back(Chain &m, int part, int turn)
{
    uint64_t *bar = &m.empty[part][place_of(m, part, turn)];
    if (blocks == 1) {
        mbarrier_arrive(bar);
        return;
    }
    if (ARRIVING == 128) {
        mbarrier_arrive(bar);
        mbarrier_arrive_cluster(bar, cluster_rank() ^ 1);
        return;
    }
    __syncwarp();
    if (threadIdx.x % 32 < blocks) mbarrier_arrive_cluster(bar, threadIdx.x % 32);
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
            mbarrier_init(&m.full[0][0] + i, i < MOST_PLACES ? arrivals : 1);
            mbarrier_init(&m.empty[0][0] + i,
                          blocks > 1 ? ARRIVING * WGS * blocks : 128 * WGS);
        }
        for (int i = 0; i < m.FIRST && parts == 4; i++)
            mbarrier_init(&m.v_empty[i], 128 * WGS);
        for (int i = 0; i < WGS; i++) mbarrier_init(&m.turned[i], 128);
        mbarrier_fence_init();
    }
    for (int i = 0; i < m.SECOND; i++) zeros_above(m.second[i].Ab);
    for (int i = 0; i < m.LATER && parts == 4; i++) zeros_above(m.later[i].Aqk);
    fence_proxy_async();
    if (blocks > 1) cluster_sync();
    else __syncthreads();
}

#endif
