// pipeline.cuh -- shared storage, pipelines and producer warps of the scans.
// Book: chapter 18.
//
// A block reads factors (chunk_factors.cuh defines k~, A, kg, Aqk) through up to four
// pipelines, each with separate stages and mbarriers: K (k~ and rows of v), A (A beta,
// kg, decay), Q (q) and Aqk. Each pipeline has one producer warp for factors. Consumer
// warpgroups release each stage right after reading the stage, so the operands of a
// short product are released before a long product ends.
#pragma once

#include "cuda/18_hopper/chunk_factors.cuh"

// The pipelines of a scan, and the maximum number of stages of each pipeline.
enum { PIPE_K, PIPE_A, PIPE_Q, PIPE_AQK, MAX_STAGES = 4 };

// What a scan computes. MAP_SCAN: affine maps (maps_sm90.cu). STATES_SCAN: states, for
// backward (states.cuh). OUTPUT_SCAN: o. KEEPING_SCAN: o, h and v_new. The first two
// use pipelines K and A, the last two all four pipelines. An enum value is at least the
// number of pipelines, and is the first dimension of `full` and `empty`.
enum scan_kind { MAP_SCAN = 2, STATES_SCAN = 3, OUTPUT_SCAN = 4, KEEPING_SCAN = 5 };

// The number of lanes that copy rows of v. In scans that compute o, the producer warp
// of pipeline K also copies v. Scans of maps and states have shorter steps, so one warp
// would be too slow for both copies, and two other warps copy v. Each of the lanes
// arrives at pipeline K's `full` barrier once per chunk.
enum { SCAN_V_LANES = 32, MAP_V_LANES = 64 };

// Registers per thread after setmaxnreg.
template <int WGS>
struct scan_registers { enum { PRODUCER = WGS == 1 ? 56 : 40, CONSUMER = 232 }; };

// Shared memory of a block with WGS consumer warpgroups of 64 state columns each.
// Pipelines have three stages, with these exceptions. Pipeline A has four for KDA maps.
// In scans that compute o, pipeline K has four stages for GDN with one warpgroup (GDN
// has no kg), and each pipeline has two for KDA with two warpgroups. That KDA scan is
// memory-bound. With more stages it is 4 % slower, because blocks then access L2 at
// different times. KEEPING_SCAN also stages results in shared memory, so its pipelines
// have two stages with two warpgroups, and KDA's pipeline Q has two with one warpgroup.
template <int K, int WGS, scan_kind kind, int kda>
struct scan_storage {
    enum {
        KEEPS = kind == KEEPING_SCAN,
        HAS_O = kind == OUTPUT_SCAN || KEEPS,
        TWO = (kda || KEEPS) && HAS_O && WGS == 2,
        TWO_OF_Q = kda && KEEPS && WGS == 1,
        FOUR_OF_K = !kda && HAS_O && WGS == 1,
        FOUR_OF_A = kda && kind == MAP_SCAN,
        K_STAGES = 3 - TWO + FOUR_OF_K,
        A_STAGES = 3 - TWO + FOUR_OF_A,
        Q_STAGES = 3 - TWO - TWO_OF_Q
    };
    static_assert(K_STAGES > 1, "o of a chunk needs the stage of the next v");
    static_assert(kda || (int)A_STAGES == (int)Q_STAGES, "head[] serves both A and Q");
    struct __align__(1024) k_stage { unsigned char tile[K / 64][TILE_BYTES]; };
    struct __align__(1024) a_stage {
        unsigned char Ab[TILE_BYTES], kg[kda ? K / 64 : 0][TILE_BYTES];
    };
    struct __align__(1024) q_stage {
        unsigned char q[K / 64][TILE_BYTES], Aqk[TILE_BYTES];
    };
    k_stage k[K_STAGES];
    a_stage a[A_STAGES];
    q_stage q[HAS_O ? Q_STAGES : 0];
    float decay[kda ? A_STAGES : 0][K];
    struct gdn_row_factors head[kda ? 0 : A_STAGES];
    union {                              // o of chunk i replaces v of chunk i + 1
        bf16 v[K_STAGES][CHUNK][64 * WGS + PAD], o[K_STAGES][CHUNK][64 * WGS + PAD];
    };
    uint64_t full[kind][MAX_STAGES], empty[kind][MAX_STAGES];
    uint64_t v_empty[HAS_O ? K_STAGES : 0];
    uint64_t o_ready[WGS];               // a warpgroup's o of a chunk is staged
};

// `first_chunk` returns the first chunk of stretch z in this launch, and `chunk_count`
// returns the number of chunks.
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

// For the block's chunk number `chunk` (0, 1, ...), `stage_of` returns the pipeline
// stage and `phase_of` returns the phase of the stage's barriers.
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

// Releases a stage. In a cluster of two, each block's copies fill the stages of both
// blocks, so both blocks must release a stage before the next copies. One lane per warp
// arrives at the barrier of each block, after __syncwarp, which orders the reads of all
// lanes before that arrival. Racecheck supports neither one lane's arrival for a warp
// nor mapped addresses. In the sanitizers' build every thread therefore arrives at both
// barriers, and uses the unmapped address for its own block's barrier.
#ifdef KCP_FOR_SANITIZERS
enum { RELEASE_ARRIVALS = 128 };         // per warpgroup: every thread
#else
enum { RELEASE_ARRIVALS = 4 };           // per warpgroup: one per warp
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

// Zeroes the 16x16 blocks above the diagonal of a triangle. Copies never write these
// blocks, so one call per launch is enough.
static __device__ __forceinline__ void zero_above_diagonal(unsigned char *to)
{
    for (int J = 1; J < 4; J++)
        for (int i = threadIdx.x; i < 32 * J; i += blockDim.x)
            *(uint4 *)(to + 2048 * J + 16 * i) = make_uint4(0, 0, 0, 0);
}

// Returns the number of arrivals that release a stage of a scan with WGS warpgroups in
// clusters of `blocks` blocks.
template <int blocks, int WGS>
static __device__ __forceinline__ int release_count(void)
{
    return blocks > 1 ? RELEASE_ARRIVALS * WGS * blocks : 128 * WGS;
}

// Initializes the barriers, and zeroes the triangles above their diagonals. `v_lanes`
// is the number of lanes that copy v. Each `full` barrier of pipeline K expects
// arrivals of these lanes and of the lane that issues the TMA copies.
template <int blocks, int K, int WGS, scan_kind kind, int kda>
static __device__ __forceinline__ void pipeline_init(
    struct scan_storage<K, WGS, kind, kda> &smem, int v_lanes)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < kind * MAX_STAGES; i++) {
            mbarrier_init(&smem.full[0][0] + i, i < MAX_STAGES ? 1 + v_lanes : 1);
            mbarrier_init(&smem.empty[0][0] + i, release_count<blocks, WGS>());
        }
        for (int i = 0; i < smem.K_STAGES && smem.HAS_O; i++)
            mbarrier_init(&smem.v_empty[i], 128 * WGS);
        for (int i = 0; i < WGS; i++) mbarrier_init(&smem.o_ready[i], 128);
        mbarrier_fence_init();
    }
    for (int i = 0; i < smem.A_STAGES; i++) zero_above_diagonal(smem.a[i].Ab);
    for (int i = 0; i < smem.Q_STAGES && smem.HAS_O; i++)
        zero_above_diagonal(smem.q[i].Aqk);
    fence_proxy_async();
    if (blocks > 1) cluster_sync();
    else __syncthreads();
}

// Copies bytes of the factors. In a cluster each block copies one half to both blocks.
template <int blocks>
static __device__ __forceinline__ void tma_load_bytes(void *to, const void *from,
                                                      uint32_t bytes, uint64_t *bar)
{
    const uint32_t at = blocks == 1 ? 0 : cluster_rank() * (bytes / 2);
    if (blocks == 1) tma_load_1d(to, from, bytes, bar);
    else
        tma_load_1d_multicast((char *)to + at, (const char *)from + at, bytes / 2, bar);
}

// Copies a triangle (A beta or Aqk) to shared memory, where block columns have 64 rows.
template <int blocks>
static __device__ __forceinline__ void tma_load_triangle(
    unsigned char *to, const unsigned char *from, uint64_t *full)
{
    #pragma unroll
    for (int J = 0; J < 4; J++)
        tma_load_bytes<blocks>(to + 2560 * J, from + triangle_column(J), 2048 - 512 * J,
                               full);
}

// The factors of GDN contain no rows of k and q, so a GDN scan reads the raw rows in
// wgmma's byte order. For chunks with all 64 rows TMA can load these rows directly from
// the caller's tensors. If `there` is 0, k and q are unset, and gdn_qk_rows has the
// rows.
struct raw_rows { CUtensorMap k, q; int there; };

// The box of one chunk in a tensor map of raw_rows. If `map` is NULL, the rows are read
// from gdn_qk_rows. In a cluster each block copies 64 channels to both blocks.
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

// Pointers to the factors of the next chunk. The pointers are incremented per chunk,
// because recomputing addresses makes a producer warp too slow.
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

//> producer
// One lane issues the copies of a chunk into a stage. For GDN, row factors are copied
// instead of kg and decay.
template <int pipeline, int blocks, int K, int WGS, scan_kind kind, int kda>
static __device__ __forceinline__ void tma_load_stage(
    const struct factors_cursor<K> &from, const struct chunk_box &box, int at,
    struct scan_storage<K, WGS, kind, kda> &smem)
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

//> v-rows
// With `lanes` lanes, copies a token range's rows of v chunk by chunk, 16 bytes per
// lane. TMA could neither pad the rows nor set rows past the sequence's end to 0.
template <int WGS, int lanes>
struct v_rows {
    const bf16 *v;                       // this lane's 16 bytes of the chunk's row 0
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
//< v-rows

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

// Producer warp of one pipeline: fills each stage as soon as the stage is empty. If
// `of_factors` is 1, the warp issues the copies of the factors. If `lanes` > 0, the
// warp also copies v, where `lanes` is the total over all warps that copy v.
template <int pipeline, int of_factors, int lanes, int blocks, int K, int WGS,
          scan_kind kind, int kda>
static __device__ void scan_producer_warp(
    const struct forward_params &x, int z, int n, int v0,
    struct scan_storage<K, WGS, kind, kda> &smem,
    const struct raw_rows *raw = NULL)
{
    typedef struct scan_storage<K, WGS, kind, kda> storage;
    enum { STAGES = stages_of<storage>(pipeline) };
    struct factors_cursor<K> from = factors_cursor_of<K>(x, first_chunk(x, z), n);
    struct v_rows<WGS, lanes> v = {};
    if constexpr (lanes > 0) v = v_rows_of<WGS, lanes>(x, z, n, v0);
    struct chunk_box box = {};
    int at = 0, phase = 0, last = 0;     // chunks that start after `last` are partial
    if (raw && raw->there) {
        box.m = n / (x.a.HV / x.a.H);
        box.t = (int)chunk_tokens(x.a, z, first_chunk(x, z)).t;
        last = ((const int *)x.a.cu)[z + 1] - CHUNK;
    }
    for (int left = chunk_count(x, z); left > 0; left--, from.next_chunk()) {
        if (phase) mbarrier_wait(&smem.empty[pipeline][at], phase - 1);
        __syncwarp();                    // else a slow lane could miss a phase
        if (raw && raw->there) {
            const CUtensorMap *map = pipeline == PIPE_K ? &raw->k : &raw->q;
            box.map = box.t > last ? NULL : map;
        }
        if (of_factors && threadIdx.x % 32 == 0)
            tma_load_stage<pipeline, blocks>(from, box, at, smem);
        box.t += CHUNK;
        if constexpr (lanes > 0) {
            if (storage::HAS_O && phase) mbarrier_wait(&smem.v_empty[at], phase - 1);
            v.copy(smem.v[at], &smem.full[PIPE_K][at]);
        }
        at = at + 1 == STAGES ? 0 : at + 1;
        phase += at == 0;
    }
}
//< producer
