// storage.cuh -- the forward in one kernel: its pipeline stages, barriers and loads.
// Book: chapter 18b.
#ifndef KCP_FORWARD_ONE_STORAGE_CUH
#define KCP_FORWARD_ONE_STORAGE_CUH

#include "cuda/18_hopper/chunk_prepare.cuh"
#include "cuda/18_hopper/forward_scan/products.cuh"
#include "cuda/18_hopper/step_record.cuh"
#include "cuda/tile/step_products.cuh"

// One block processes a stretch (a sequence) of one value head in steps of 32 tokens.
// G is the sum of log2 decays within a step, a is G of row 15 (the anchor), and E is G
// of row 31. Then
//
//     qf = q 2^(G - a)    kf = k 2^(G - a)    kb = k 2^(a - G)
//
// are the operands of the scores, qf kb^T and kf kb^T, and of the products with the
// state. Registers hold Sa = 2^a S, so that o = qf Sa + Aqk v_new and Sa += kb^T v_new
// need no other operands. With KDA no step is deep (deep_steps.cuh): with g >= -5, for
// example, exponents reach +-115, which bf16 can represent. Between two steps Sa is
// multiplied by 2^(E - a + a'), where a' is a of the next step. Reciprocal norms
// multiply rows and columns of results, not operands. GDN has one gate per head, so its
// decays also multiply results, and its operands are the raw q and k. In steps that
// decay by more than 2^116 the decay from column j to row i is computed for each pair,
// so the gate may have any form.
//
// Limit for KDA: if 16 consecutive tokens have g = -5, elements of q and k must be
// below 2^12 in magnitude, because then kb can be 2^115 k, and qf can be 2^108 q.
enum {
    STEP_ROWS = 32,
    STEP_STAGES = 6,
    STEP_TILE = 128 * STEP_ROWS,         // bytes of 32 rows of 64 channels, swizzled
    STEP_TRIANGLE = 64 * STEP_ROWS,
    SCAN_WARPS = 8,
    GATE_WARPS = 8,                      // KDA alone
    INVERSE_WARPS = 2,
};

//> one-storage
// A pipeline stage. `rows` holds q, k and g in tiles, for each half of the channels.
// Gate warps replace q, k and g in these tiles by qf, kf and kb.
enum { ROW_Q, ROW_K, ROW_G };

template <int kda>
struct step_stage {
    unsigned char rows[2][kda ? 3 : 2][STEP_TILE];
    unsigned char v[2][STEP_TILE];       // v, then o
    unsigned char Ab[STEP_TRIANGLE], Aqk[STEP_TRIANGLE];  // wgmma's 64-byte swizzle
};

template <int kda>
struct head_shape {
    enum {
        QUERY_WARPS = kda ? 1 : 2,
        THREADS = kda ? 640 : 512,
        HALF = (kda ? 3 : 2) * STEP_TILE,          // from channel 0 to channel 64
        KB = (kda ? ROW_G : ROW_K) * STEP_TILE,    // kb, or k
        SCAN_REGISTERS = 160,
        GATE_REGISTERS = 48,
        TRIANGLE_REGISTERS = kda ? 64 : 88,
    };
};

// Barriers. `raw`: rows are loaded. `gated`: gate warps have replaced the rows (KDA).
// `decayed`: the factors of the state are written. `inverted`: A beta is written.
// `scored`: Aqk is written. `empty`: the scan has read the stage, and o has been copied
// from the stage.
//
// A wait compares only the parity of the barrier's phase, so a warp must wait for every
// phase of a barrier or for none. So STEP_STAGES is a multiple of the number of warps
// that share the steps.
template <int kda>
struct __align__(1024) head_storage {
    struct step_stage<kda> stage[STEP_STAGES];
    // KDA: `decay` first holds a, and `carried` holds E - a. Later `decay` holds the
    // factor of the state. If this factor could underflow, `decay` and `carried` hold
    // two negated factors instead (state_decay). GDN: decay[..][i] is 2^(E - G) of row
    // i < 32, and decay[..][32] is 2^E. carried[w][i] is G of row i, for each warp w
    // that computes a triangle.
    float decay[STEP_STAGES][128], carried[STEP_STAGES][128];
    float end[128];                      // KDA: 2^(E - a) of the last step
    float k_factor[STEP_STAGES][STEP_ROWS], q_factor[STEP_STAGES][STEP_ROWS];
    // For each warp that computes a triangle (A beta or Aqk): beta, 1 / |k|, and
    // factors that multiply rows and columns of scores.
    float beta[INVERSE_WARPS][STEP_ROWS], k_norm[INVERSE_WARPS][STEP_ROWS];
    float row[INVERSE_WARPS + 2][STEP_ROWS], column[INVERSE_WARPS + 2][STEP_ROWS];
    uint64_t raw[STEP_STAGES], gated[STEP_STAGES], decayed[STEP_STAGES];
    uint64_t inverted[STEP_STAGES], scored[STEP_STAGES], empty[STEP_STAGES];
};
//< one-storage

static_assert(sizeof(struct step_stage<1>) % 1024 == 0
                  && sizeof(struct step_stage<0>) % 1024 == 0
                  && sizeof(struct head_storage<1>) <= 227 * 1024,
              "stages must be aligned, and the storage must fit in shared memory");

// A stretch is a whole sequence, tokens `begin` to `begin` + `len` - 1. The stretch's
// states have index `row` in h0 and ht, and its first record has index `record`.
enum { FEW_STRETCHES = 64 };
struct stretch { int begin, len, row, record; };

struct head_params {
    CUtensorMap q, k, g, v, o;           // boxes of 32 rows; only KDA has g
    struct forward_params f;
    const struct stretch *stretch;       // the longest first; NULL: `few` has them
    struct stretch few[FEW_STRETCHES];
    struct step_record *records;         // KDA: records for backward, or NULL
    unsigned char *states;               // v7_by_head: states of odd steps (records.h)
};

// Host functions of v5_one_kernel_sm90.cu: store the stretches, and launch the kernel
// for KDA. If x->f.deep is not NULL, the kernel computes only heads of sequences
// without a deep step.
void put_stretches(struct head_params *x);
int launch_one_kda(struct head_params *x);

// The work of a block: a sequence of value head n, with query/key head m.
struct head_walk { int n, m, begin, len, row, steps, record; };

static __device__ __forceinline__ struct head_walk head_walk_of(
    const struct head_params &x)
{
    const struct stretch s = x.stretch ? x.stretch[blockIdx.y] : x.few[blockIdx.y];
    const int n = blockIdx.x;
    return { n, n / (x.f.a.HV / x.f.a.H), s.begin, s.len, s.row,
             (s.len + STEP_ROWS - 1) / STEP_ROWS, s.record };
}

// Functions with `by_head` use format "by_head", as v7_by_head does, and are compiled
// separately for calls that keep nothing, to save registers.
template <int keep, int by_head>
static __device__ __forceinline__ int keeps_records(const struct head_params &x)
{
    return by_head ? keep : x.records != NULL;
}

template <int by_head>
static __device__ __forceinline__ struct step_record *kept_record(
    const struct head_params &x, const struct head_walk &w, int step)
{
    return (struct step_record *)step_record_at<by_head>(x.records, w.record + step,
                                                         x.f.a.HV, w.n);
}

// Returns the index of the walk's sequence on this rank.
static __device__ __forceinline__ int sequence_of(const struct head_params &x,
                                                  const struct head_walk &w)
{
    return x.f.a.NS == 1 ? 0 : ((const int *)x.f.a.sc)[w.record / 2];
}

// One warp copies a complete triangle from shared memory to the step's record.
static __device__ __forceinline__ void keep_triangle(unsigned char *to,
                                                     const unsigned char *from)
{
    #pragma unroll
    for (int i = 0; i < STEP_TRIANGLE / 512; i++) {
        const int at = (i * 32 + (int)threadIdx.x % 32) * 16;
        *(uint4 *)(to + at) = *(const uint4 *)(from + at);
    }
}

// The pipeline stage of a step. `phase` counts earlier uses of this stage.
struct step_position {
    int stage, phase;
    __device__ __forceinline__ void advance(int steps)
    {
        stage += steps;
        if (stage < STEP_STAGES) return;
        stage -= STEP_STAGES;
        phase++;
    }
};

template <int kda>
static __device__ __forceinline__ void init_barriers(struct head_storage<kda> &smem)
{
    for (int i = 0; i < STEP_STAGES; i++) {
        mbarrier_init(&smem.raw[i], 1);
        mbarrier_init(&smem.gated[i], GATE_WARPS * WARP_ARRIVALS);
        mbarrier_init(&smem.decayed[i], WARP_ARRIVALS);
        mbarrier_init(&smem.inverted[i], WARP_ARRIVALS);
        mbarrier_init(&smem.scored[i], WARP_ARRIVALS);
        // The + 2 counts the two threads (one per warpgroup) that store o.
        mbarrier_init(&smem.empty[i], SCAN_WARPS * WARP_ARRIVALS + 2);
    }
    mbarrier_fence_init();
}

// ---- loads, issued by one warp

//> one-loader
template <int kda>
struct step_loader {
    int step;
    struct step_position at;

    __device__ __forceinline__ void load(const struct head_params &x,
                                         const struct head_walk &w,
                                         struct head_storage<kda> &smem)
    {
        if (elect_sync()) {
            struct step_stage<kda> &s = smem.stage[at.stage];
            uint64_t *bar = &smem.raw[at.stage];
            const int t = w.begin + step * STEP_ROWS;
            mbarrier_arrive_expect_tx(bar, (kda ? 8 : 6) * STEP_TILE);
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                if (kda)
                    tma_load_3d(s.rows[h][kda ? ROW_G : 0], x.g, 64 * h, w.n, t, bar);
                tma_load_3d(s.rows[h][ROW_Q], x.q, 64 * h, w.m, t, bar);
                tma_load_3d(s.rows[h][ROW_K], x.k, 64 * h, w.m, t, bar);
                tma_load_3d(s.v[h], x.v, 64 * h, w.n, t, bar);
            }
        }
        __syncwarp();
        step++;
        at.advance(1);
    }

    __device__ __forceinline__ void poll(const struct head_params &x,
                                         const struct head_walk &w,
                                         struct head_storage<kda> &smem)
    {
        if (step >= w.steps) return;
        if (at.phase && !mbarrier_test(&smem.empty[at.stage], at.phase - 1)) return;
        load(x, w, smem);
    }
};
//< one-loader

template <int kda>
static __device__ __forceinline__ void load_warp(const struct head_params &x,
                                                 const struct head_walk &w,
                                                 struct head_storage<kda> &smem)
{
    struct step_loader<kda> l = {};
    #pragma unroll 1
    while (l.step < w.steps) {
        if (l.at.phase) mbarrier_wait(&smem.empty[l.at.stage], l.at.phase - 1);
        __syncwarp();
        l.load(x, w, smem);
    }
}

#endif
