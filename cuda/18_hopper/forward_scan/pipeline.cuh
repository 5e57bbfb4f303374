// pipeline.cuh -- chunk factors on chip: shared storage, stages, the producer warps.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: products.cuh.
//
// A block's chunks pass through four pipelines, each with its own stages and barriers:
// k, with the rows of v beside it; A beta, with kg and the decay; q; Aqk. One producer
// warp fills each; the consumer warpgroups release a stage as soon as they have read
// it.
#ifndef KCP_SCAN_PIPELINE_CUH
#define KCP_SCAN_PIPELINE_CUH

#include "cuda/18_hopper/chunk_factors.cuh"

// A map needs the first two pipelines alone; so does backward's scan of states, which
// has results on chip besides, and is told apart by a number more. So is a scan that
// keeps its states.
enum { PIPE_K, PIPE_A, PIPE_Q, PIPE_AQK, MAX_STAGES = 4, OF_STATES = 3, KEEPING = 5 };

// Three stages are the rule. Four of k and v, for one warpgroup with one gate a head,
// where kg is k; four of A beta, for a map. Two of all, for two warpgroups with a gate
// a channel: memory is their bound, and 96 blocks that read farther ahead drift apart,
// which cost 4 % of its rate. A scan that keeps its states stages them on chip: two of
// all for two warpgroups, two of q for one with a gate a channel. A warpgroup has 64
// columns of the state.
template <int K, int WGS, int pipelines, int kda>
struct shared_storage {
    enum {
        KEEPS = pipelines == KEEPING,
        IS_SCAN = pipelines == 4 || KEEPS,
        TWO = (kda || KEEPS) && IS_SCAN && WGS == 2,
        TWO_OF_Q = kda && KEEPS && WGS == 1,
        FOUR_OF_K = !kda && IS_SCAN && WGS == 1,
        FOUR_OF_A = kda && pipelines == 2,
        K_STAGES = 3 - TWO + FOUR_OF_K,
        A_STAGES = 3 - TWO + FOUR_OF_A,
        Q_STAGES = 3 - TWO - TWO_OF_Q
    };
    static_assert(K_STAGES > 1, "o of a chunk lies where another's v does not");
    static_assert(kda || (int)A_STAGES == (int)Q_STAGES, "Q lies with the row factors");
    struct __align__(1024) k_stage { unsigned char tile[K / 64][TILE_BYTES]; };
    struct __align__(1024) a_stage {
        unsigned char Ab[TILE_BYTES], kg[kda ? K / 64 : 0][TILE_BYTES];
    };
    struct __align__(1024) q_stage {
        unsigned char q[K / 64][TILE_BYTES], Aqk[TILE_BYTES];
    };
    k_stage k[K_STAGES];
    a_stage a[A_STAGES];
    q_stage q[IS_SCAN ? Q_STAGES : 0];
    float decay[kda ? A_STAGES : 0][K];
    struct gdn_row_factors head[kda ? 0 : A_STAGES];
    bf16 v[K_STAGES][CHUNK][64 * WGS + PAD];
    uint64_t full[pipelines][MAX_STAGES], empty[pipelines][MAX_STAGES];
    uint64_t v_empty[IS_SCAN ? K_STAGES : 0];
    uint64_t o_ready[WGS];               // o of a chunk lies in a stage of v
};

// The chunks of stretch z that this launch has.
static __device__ __forceinline__ int first_chunk(const struct forward_params &x, int z)
{
    return ((const int *)x.a.cn)[z] + x.first;
}

static __device__ __forceinline__ int chunk_count(const struct forward_params &x, int z)
{
    return min(((const int *)x.a.cn)[z + 1] - first_chunk(x, z), x.count);
}

template <class Storage>
static __host__ __device__ constexpr int stages_of(int pipeline)
{
    if (pipeline == PIPE_K) return Storage::K_STAGES;
    if (pipeline == PIPE_A) return Storage::A_STAGES;
    return Storage::Q_STAGES;
}

// Chunk 0, 1, ... of the block: the stage it lies in, and the phase of that stage's
// barriers.
template <class Storage>
static __device__ __forceinline__ int stage_of(const Storage &, int pipeline, int chunk)
{
    return chunk % (unsigned)stages_of<Storage>(pipeline);
}

template <class Storage>
static __device__ __forceinline__ int phase_of(const Storage &, int pipeline, int chunk)
{
    return chunk / (unsigned)stages_of<Storage>(pipeline);
}

template <class Storage>
static __device__ __forceinline__ void consumer_wait(Storage &smem, int pipeline,
                                                     int chunk)
{
    mbarrier_wait(&smem.full[pipeline][stage_of(smem, pipeline, chunk)],
                  phase_of(smem, pipeline, chunk));
}

// A cluster of two blocks fills the stages of both, so both must have released them. A
// lane for each block arrives there for its warp: the warp's barrier orders what the
// lanes have read before that arrival. racecheck follows neither this nor arrivals at
// mapped addresses. In the sanitizers' build each thread arrives at both, at its own
// directly.
#ifdef KCP_FOR_SANITIZERS
enum { RELEASE_ARRIVALS = 128 };         // of a warpgroup
#else
enum { RELEASE_ARRIVALS = 4 };
#endif
template <int blocks>
static __device__ __forceinline__ void release_stage(uint64_t *bar)
{
    if (blocks == 1) {
        mbarrier_arrive(bar);
        return;
    }
    if (RELEASE_ARRIVALS == 128) {
        mbarrier_arrive(bar);
        mbarrier_arrive_cluster(bar, cluster_rank() ^ 1);
        return;
    }
    __syncwarp();
    if (threadIdx.x % 32 < blocks) mbarrier_arrive_cluster(bar, threadIdx.x % 32);
}

template <int blocks, class Storage>
static __device__ __forceinline__ void consumer_release(Storage &smem, int pipeline,
                                                        int chunk)
{
    release_stage<blocks>(&smem.empty[pipeline][stage_of(smem, pipeline, chunk)]);
}

// A triangle's 16x16 blocks above the diagonal are 0. No copy writes there, so once is
// enough.
static __device__ __forceinline__ void zero_above_diagonal(unsigned char *to)
{
    for (int J = 1; J < 4; J++)
        for (int i = threadIdx.x; i < 32 * J; i += blockDim.x)
            *(uint4 *)(to + 2048 * J + 16 * i) = make_uint4(0, 0, 0, 0);
}

// Arrivals at a full barrier: one lane announces the bytes; at k's also the lanes that
// copy v.
template <int blocks, int K, int WGS, int pipelines, int kda>
static __device__ __forceinline__ void pipeline_init(
    struct shared_storage<K, WGS, pipelines, kda> &smem, int k_arrivals)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < pipelines * MAX_STAGES; i++) {
            mbarrier_init(&smem.full[0][0] + i, i < MAX_STAGES ? k_arrivals : 1);
            mbarrier_init(&smem.empty[0][0] + i,
                          blocks > 1 ? RELEASE_ARRIVALS * WGS * blocks : 128 * WGS);
        }
        for (int i = 0; i < smem.K_STAGES && smem.IS_SCAN; i++)
            mbarrier_init(&smem.v_empty[i], 128 * WGS);
        for (int i = 0; i < WGS; i++) mbarrier_init(&smem.o_ready[i], 128);
        mbarrier_fence_init();
    }
    for (int i = 0; i < smem.A_STAGES; i++) zero_above_diagonal(smem.a[i].Ab);
    for (int i = 0; i < smem.Q_STAGES && smem.IS_SCAN; i++)
        zero_above_diagonal(smem.q[i].Aqk);
    fence_proxy_async();
    if (blocks > 1) cluster_sync();
    else __syncthreads();
}

// A piece of the factors. In a cluster each block copies its half to both.
template <int blocks>
static __device__ __forceinline__ void tma_load_bytes(void *to, const void *from,
                                                      uint32_t bytes, uint64_t *bar)
{
    const uint32_t at = blocks == 1 ? 0 : cluster_rank() * (bytes / 2);
    if (blocks == 1) tma_load_1d(to, from, bytes, bar);
    else
        tma_load_1d_multicast((char *)to + at, (const char *)from + at, bytes / 2, bar);
}

// A triangle, to where its columns have all 64 rows.
template <int blocks>
static __device__ __forceinline__ void tma_load_triangle(
    unsigned char *to, const unsigned char *from, uint64_t *full)
{
    #pragma unroll
    for (int J = 0; J < 4; J++)
        tma_load_bytes<blocks>(to + 2560 * J, from + triangle_column(J), 2048 - 512 * J,
                               full);
}

// With one gate a head factors have no rows of k and q: they are the caller's, turned
// over to the order of bytes that the tensor core reads. The copy engine can do that
// too, for chunks that have all of their rows. there 0: they lie with the factors.
struct raw_rows { CUtensorMap k, q; int there; };

// Rows of one chunk by such a map, NULL: as factors. In a cluster each block copies 64
// channels to both.
struct chunk_box { const CUtensorMap *map; int m, t; };

template <int blocks, int K>
static __device__ __forceinline__ void tma_load_box(unsigned char (*to)[TILE_BYTES],
                                                    const struct chunk_box &from,
                                                    uint64_t *full)
{
    const int d = cluster_rank();
    if (blocks > 1)
        tma_load_3d_multicast(to[d], *from.map, 64 * d, from.m, from.t, full);
    else
        for (int i = 0; i < K / 64; i++)
            tma_load_3d(to[i], *from.map, 64 * i, from.m, from.t, full);
}

// Where the factors of the next chunk lie. A producer warp must keep ahead, so it steps
// from chunk to chunk and computes no address anew.
template <int K>
struct factors_cursor {
    const struct chunk_factors<K> *kda;
    const struct gdn_qk_rows<K> *rows;
    const struct gdn_head_factors *head;
    int H, HV;

    __device__ __forceinline__ void next_chunk(void)
    {
        kda += HV;
        rows += H;
        head += HV;
    }

    __device__ __forceinline__ void previous_chunk(void)
    {
        kda -= HV;
        rows -= H;
        head -= HV;
    }
};

template <int K>
static __device__ __forceinline__ struct factors_cursor<K> factors_cursor_of(
    const struct forward_params &x, int c, int n)
{
    const int m = n / (x.a.HV / x.a.H);
    return { chunk_factors_of<K>(x, c, n), gdn_qk_rows_of<K>(x, c, m),
             gdn_head_factors_of(x, c, n), x.a.H, x.a.HV };
}

// One lane starts the copies of a chunk into a stage. With one gate a head, row factors
// take the place of kg and decay.
template <int pipeline, int blocks, int K, int WGS, int pipelines, int kda>
static __device__ __forceinline__ void tma_load_stage(
    const struct factors_cursor<K> &from, const struct chunk_box &box, int at,
    struct shared_storage<K, WGS, pipelines, kda> &smem)
{
    const auto *f = from.kda;
    const auto *rows = from.rows;
    const auto *head = from.head;
    uint64_t *full = &smem.full[pipeline][at];
    const uint32_t bytes = K / 64 * TILE_BYTES;
    if (pipeline == PIPE_K) {
        mbarrier_arrive_expect_tx(full, bytes);
        if (box.map) tma_load_box<blocks, K>(smem.k[at].tile, box, full);
        else
            tma_load_bytes<blocks>(smem.k[at].tile, kda ? f->k : rows->k, bytes, full);
    } else if (pipeline == PIPE_A) {
        mbarrier_arrive_expect_tx(
            full, TRIANGLE_BYTES + (kda ? bytes + sizeof f->decay : ROW_FACTORS_BYTES));
        tma_load_triangle<blocks>(smem.a[at].Ab, kda ? f->Ab : head->Ab, full);
        if (kda) {
            tma_load_bytes<blocks>(smem.a[at].kg, f->kg, bytes, full);
            tma_load_bytes<blocks>(smem.decay[at], f->decay, sizeof f->decay, full);
        } else
            tma_load_bytes<blocks>(&smem.head[at], &head->f, ROW_FACTORS_BYTES, full);
    } else if (pipeline == PIPE_Q) {
        mbarrier_arrive_expect_tx(full, bytes + (kda ? 0 : sizeof head->f.Q));
        if (box.map) tma_load_box<blocks, K>(smem.q[at].q, box, full);
        else tma_load_bytes<blocks>(smem.q[at].q, kda ? f->q : rows->q, bytes, full);
        if (!kda)
            tma_load_bytes<blocks>(smem.head[at].Q, head->f.Q, sizeof head->f.Q, full);
    } else {
        mbarrier_arrive_expect_tx(full, TRIANGLE_BYTES);
        tma_load_triangle<blocks>(smem.q[at].Aqk, kda ? f->Aqk : head->Aqk, full);
    }
}

// A stretch's rows of v, chunk after chunk, by `lanes` lanes, 16 bytes each: for the
// copy engine the rows are too short and too many. Past the end they are 0.
template <int WGS, int lanes>
struct v_rows {
    const bf16 *v;                       // this lane's 16 bytes of the first row
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
        v += CHUNK * ld;
        left -= CHUNK;
    }
};

template <int WGS, int lanes>
static __device__ __forceinline__ struct v_rows<WGS, lanes> v_rows_of(
    const struct forward_params &x, int z, int n, int v0)
{
    const int64_t t = chunk_tokens(x.a, z, first_chunk(x, z)).t;
    const bf16 *v = in<bf16>(x.a.v, t, x.a.HV, n, x.a.V) + v0;
    const int64_t left = ((const int *)x.a.cu)[z + 1] - t;
    return { v + threadIdx.x % lanes % (8 * WGS) * 8, (int64_t)x.a.HV * x.a.V,
             (int)min(left, (int64_t)x.count * CHUNK) };
}

// A producer warp fills one pipeline, a stage as soon as it is empty; with factors or
// without; and with v by `lanes` lanes (0: without).
template <int pipeline, int of_factors, int lanes, int blocks, int K, int WGS,
          int pipelines, int kda>
static __device__ void producer_warp(
    const struct forward_params &x, int z, int n, int v0,
    struct shared_storage<K, WGS, pipelines, kda> &smem,
    const struct raw_rows *raw = NULL)
{
    typedef struct shared_storage<K, WGS, pipelines, kda> storage;
    enum { STAGES = stages_of<storage>(pipeline) };
    struct factors_cursor<K> from = factors_cursor_of<K>(x, first_chunk(x, z), n);
    struct v_rows<WGS, lanes> v = {};
    if constexpr (lanes > 0) v = v_rows_of<WGS, lanes>(x, z, n, v0);
    struct chunk_box box = {};
    int at = 0, phase = 0, last = 0;     // the last token at which a whole chunk begins
    if (raw && raw->there) {
        box.m = n / (x.a.HV / x.a.H);
        box.t = (int)chunk_tokens(x.a, z, first_chunk(x, z)).t;
        last = ((const int *)x.a.cu)[z + 1] - CHUNK;
    }
    for (int left = chunk_count(x, z); left > 0; left--, from.next_chunk()) {
        if (phase) mbarrier_wait(&smem.empty[pipeline][at], phase - 1);
        __syncwarp();                    // a late lane might miss the phase
        if (raw && raw->there) {
            const CUtensorMap *map = pipeline == PIPE_K ? &raw->k : &raw->q;
            box.map = box.t > last ? NULL : map;
        }
        if (of_factors && threadIdx.x % 32 == 0)
            tma_load_stage<pipeline, blocks>(from, box, at, smem);
        box.t += CHUNK;
        if constexpr (lanes > 0) {
            if (storage::IS_SCAN && phase) mbarrier_wait(&smem.v_empty[at], phase - 1);
            v.copy(smem.v[at], &smem.full[PIPE_K][at]);
        }
        at = at + 1 == STAGES ? 0 : at + 1;
        phase += at == 0;
    }
}

#endif
