// storage.cuh -- the backward in one kernel: parameters, stages, barriers, copies.
// Book: chapter 18c, "One kernel".
#ifndef KCP_BACKWARD_ONE_STORAGE_CUH
#define KCP_BACKWARD_ONE_STORAGE_CUH

#include "cuda/host/workspace.cuh"
#include "cuda/tile/launch.cuh"
#include "cuda/tile/math.cuh"
#include "cuda/tile/named_barrier.cuh"
#include "cuda/tile/softplus.cuh"
#include "cuda/tile/step_products.cuh"
#include "cuda/tile/tma.cuh"
#include "cuda/tile/warpgroup_store.cuh"
#include "cuda/18_hopper/step_record.cuh"
#include "core/paths.h"

// One block processes a sequence of one value head from the last step of 32 tokens to
// the first. G is the sum of log2 decays from the step's start to a row, and E is G of
// the last row. step_record.cuh defines the symbols a, qf, kf, kb, and the record of a
// step, which forward stored: w, Ab, Aqk. With F = 2^(G - a), Sa = 2^a S and dSa =
// 2^(E - a) dS (dS at the end of the step), the equations of a step contain no decay:
//
//     dU  = kb dSa + Aqk^T dO        dv  = Ab^T dU
//     dSa <- dSa + qf^T dO - kf^T dv
//     dA  = tril(dO w^T)             dB  = tril(dv w^T, -1)
//     dqf = Sa dO + dA kb            dkf = -(Sa dv + dB kb)
//     dkb = dSa w + dA^T qf - dB^T kf            dSa of the step's end, as in dU
//     dbeta_i = dv_i . w_i / (rstd_k_i beta_i^2)
//     dG  = qf dqf + kf dkf - kb dkb
//     dg  = sums of dG from the step's end + sum_v Sa dSa + sum_i kb_i (dSa w)_i
//     dq  = q_factor F dqf, dk = rstd_k F dkf + dkb / F, minus terms of the norms
//
// Each step first multiplies dSa by 2^(E - a + a'), where a' belongs to the step of the
// following 32 tokens. Each operand is rounded once, and both the products and dG
// use the rounded operand, so that terms that cancel in dG cancel exactly.
//
// Bound: memory. The 3.7 KB per token and head take 1.0 ms for 8192 tokens of 96 heads
// on an H100. The kernel takes 1.26 ms, because `finish` is latency-bound. Ownership:
// warpgroups 0 and 1 each compute the gates of 64 channels, and dSa and dv of 64
// columns, and issue all copies. Warpgroups 2 and 3 each run `finish` for 64 channels.
enum {
    ROWS = 32,                           // of a step
    HALF_BYTES = 128 * ROWS,             // 32 rows of 64 channels: a swizzle128 tile
    GATED = 3, VALUES = 2, FACTORS = 4   // stages
};

// One half of the channels of a step. `q` later holds qf, then dq. `k` later holds kf,
// then dk. `g` later holds kb, then sums over channels (put_dots). Until gate_step of
// step s writes F, the bytes of F hold g of step s - 2, which `finish` reads again.
struct __align__(1024) gated_half {
    unsigned char q[HALF_BYTES], k[HALF_BYTES], g[HALF_BYTES], F[HALF_BYTES];
};
struct gated_stage { struct gated_half half[2]; };

struct __align__(1024) value_stage {
    struct { unsigned char dO[HALF_BYTES], dv[HALF_BYTES]; } half[2];
    unsigned char w[8192], Ab[2048], Aqk[2048];      // as in the record
};

struct token_factors { float q_factor[ROWS], rstd_k[ROWS], beta[ROWS]; };

// Barriers. `raw`: q, k, g and factors are loaded. `gated_full`: qf, kf and kb have
// replaced q, k and g. `value_full`: dO, w, Ab and Aqk are loaded. `dv_full`: dv is
// written. `state_full`: Sa is loaded. `dS_full`: dSa is written. `dS_empty`: `finish`
// has read dSa and kb. `triangles_full`: dA and dB are written, and the chain has read
// qf, kf and kb. `dots`: the products of `finish` are complete, and sums over channels
// are written. `staged`: dq and dk are written. `again`: the second copy of g is
// loaded. `again_empty`: `finish` has read this copy.
//
// A wait compares only the parity of the barrier's phase. So each warp waits for phase
// p of a barrier before the warp arrives (or issues a copy) in phase p + 1.
struct backward_one_storage {
    struct gated_stage gated[GATED];
    struct value_stage values[VALUES];
    unsigned char dS[2][2][8192];        // [channels 64 i ..][columns 64 j ..]
    unsigned char state[32768];
    unsigned char triangles[4096];       // 32 rows of dA, then 32 rows of dB
    struct token_factors factors[FACTORS];
    // Per channel: `sum_to_anchor` = a, `anchor` = 2^a, `decay` = 2^(E - a + a'). If
    // deep[..][i] is set, then in channels 32 i to 32 i + 31 `decay` is 2^(E - a),
    // because 2^(E - a + a') could underflow.
    float sum_to_anchor[2][128], anchor[GATED][128], decay[GATED][128];
    float dt_bias[128];
    int deep[GATED][4];
    uint64_t raw[GATED], gated_full[GATED], value_full[VALUES];
    uint64_t dv_full[VALUES], state_full, dS_full, dS_empty, triangles_full, dots;
    uint64_t staged, again[2], again_empty;
};
static_assert(sizeof(struct backward_one_storage) <= 227 * 1024, "one block must fit");

// A stretch is a sequence: tokens `begin` to `begin` + `len` - 1. The stretch has index
// `sequence` in dht and dh0, and index `row` on this rank. `step` is the index of the
// stretch's first record.
struct backward_stretch { int begin, len, sequence, step, row; };

struct backward_one_params {
    struct kcp_backward a;
    CUtensorMap q, k, g, of_dO, to_v, to_q, to_k;    // boxes of 32 rows
    float scale, lower_bound;
    const struct step_record *records;
    const struct backward_stretch *stretch;          // the longest first
    bf16 *dO, *dv;                       // the call's, or aligned copies
    bf16 *dq, *dk;                       // likewise; if HV > H, arrays [T,HV,128],
                                         // which add_value_heads sums
    float *dA_rows, *ddt_rows;           // [NS,HV], [NS,HV,128]; NULL: not computed
    // v7_by_head: states of odd steps (records.h); as in forward_params.
    const unsigned char *states, *deep;
};

// The host's part. `dq` and `dk` are the call's arrays, or copies in the workspace if
// these arrays lack the 16-byte alignment of TMA. If HV > H, the kernel stores x.dq and
// x.dk per value head, and add_value_heads sums x.dq and x.dk into `dq` and `dk`.
struct steps_backward {
    struct backward_one_params x;
    struct arena r;
    bf16 *dq, *dk;
    float *dA_rows, *ddt_rows, *all;     // sums per segment; `all`: of all ranks
};

// Functions of v5_steps_sm90.cu. place_steps takes its workspace from f->r, and returns
// the bytes that are used then. launch_steps computes all gradients except those of the
// parameters, which parameter_sums sums. If x.deep is not NULL, launch_steps is a
// dependent launch and leaves out heads with deep steps.
size_t place_steps(struct steps_backward *f, const struct kcp_backward *args,
                   const struct kcp_path *path);
void put_step_stretches(struct steps_backward *f);
int launch_steps(struct steps_backward *f);

// The work of a block: a sequence of value head n, with query/key head m.
struct backward_walk {
    int n, m, begin, len, steps, record, row;
    __device__ __forceinline__ int step(int s) const { return steps - 1 - s; }
    __device__ __forceinline__ int token(int s) const { return begin + step(s) * ROWS; }
    // Returns 1 if TMA stores the rows of step s, that is, if the step has all 32 rows.
    // Returns 0 in the sanitizers' build, because initcheck does not see TMA stores.
    __device__ __forceinline__ int whole(int s) const
    {
#ifdef KCP_FOR_SANITIZERS
        return 0;
#endif
        return s || len % ROWS == 0;
    }
};

// Functions with `by_head` read format "by_head", for v7_by_head.
template <int by_head>
static __device__ __forceinline__ const struct step_record *record_of(
    const struct backward_one_params &x, const struct backward_walk &w, int s)
{
    return (const struct step_record *)step_record_at<by_head>(
        x.records, w.record + w.step(s), x.a.HV, w.n);
}

static __device__ __forceinline__ void init_backward_barriers(
    struct backward_one_storage &m)
{
    enum { WARPS = 8 * WARP_ARRIVALS };  // the chain has 8 warps, finish has 8
    for (int i = 0; i < GATED; i++) {
        mbarrier_init(&m.raw[i], 2);
        mbarrier_init(&m.gated_full[i], WARPS);
    }
    for (int i = 0; i < 2; i++) {
        mbarrier_init(&m.value_full[i], 1);
        mbarrier_init(&m.dv_full[i], WARPS);
        mbarrier_init(&m.again[i], 1);
    }
    mbarrier_init(&m.state_full, 1);
    mbarrier_init(&m.dS_full, WARPS);
    mbarrier_init(&m.dS_empty, WARPS);
    mbarrier_init(&m.dots, WARPS);
    mbarrier_init(&m.again_empty, WARPS);
    mbarrier_init(&m.triangles_full, WARPS);
    mbarrier_init(&m.staged, WARPS);
}

// ---- copies, each issued by one thread; s = 0 is the last step

template <int by_head>
static __device__ __forceinline__ void load_gated(const struct backward_one_params &x,
                                                  const struct backward_walk &w, int f,
                                                  int s, struct backward_one_storage &m)
{
    const int st = s % GATED, t = w.token(s);
    struct gated_half &to = m.gated[st].half[f];
    uint64_t *bar = &m.raw[st];
    mbarrier_arrive_expect_tx(bar, 3 * HALF_BYTES + (f ? 0 : sizeof m.factors[0]));
    tma_load_3d(to.g, x.g, 64 * f, w.n, t, bar);
    tma_load_3d(to.q, x.q, 64 * f, w.m, t, bar);
    tma_load_3d(to.k, x.k, 64 * f, w.m, t, bar);
    if (!f)
        tma_load_1d(&m.factors[s % FACTORS], record_of<by_head>(x, w, s)->q_factor,
                    sizeof m.factors[0], bar);
}

template <int by_head>
static __device__ __forceinline__ void load_values(
    const struct backward_one_params &x, const struct backward_walk &w, int s,
    struct backward_one_storage &m)
{
    enum { OF_RECORD = 8192 + 2 * 2048 };
    const int st = s % VALUES;
    struct value_stage &to = m.values[st];
    uint64_t *bar = &m.value_full[st];
    mbarrier_arrive_expect_tx(bar, 2 * HALF_BYTES + OF_RECORD);
    #pragma unroll
    for (int h = 0; h < 2; h++)
        tma_load_3d(to.half[h].dO, x.of_dO, 64 * h, w.n, w.token(s), bar);
    tma_load_1d(to.w, record_of<by_head>(x, w, s)->w, OF_RECORD, bar);
}

template <int by_head>
static __device__ __forceinline__ void load_state_of_step(
    const struct backward_one_params &x, const struct backward_walk &w, int s,
    struct backward_one_storage &m)
{
    mbarrier_arrive_expect_tx(&m.state_full, sizeof m.state);
    tma_load_1d(m.state,
                step_state_at<by_head>(x.records, x.states, w.record + w.step(s),
                                       x.a.HV, w.n),
                sizeof m.state, &m.state_full);
}

// Loads g of step s again, into the bytes that held F of step s - 1 and will hold F of
// step s + 2. The load hits L2, because g was first loaded two steps earlier.
static __device__ __forceinline__ void load_gate_again(
    const struct backward_one_params &x, const struct backward_walk &w, int f, int s,
    struct backward_one_storage &m)
{
    mbarrier_arrive_expect_tx(&m.again[f], HALF_BYTES);
    tma_load_3d(m.gated[(s + 2) % GATED].half[f].F, x.g, 64 * f, w.n, w.token(s),
                &m.again[f]);
}

template <int by_head>
static __device__ __forceinline__ void first_loads(const struct backward_one_params &x,
                                                   const struct backward_walk &w, int f,
                                                   struct backward_one_storage &m)
{
    for (int s = 0; s < GATED && s < w.steps; s++) load_gated<by_head>(x, w, f, s, m);
    if (f) return;
    for (int s = 0; s < VALUES && s < w.steps; s++) load_values<by_head>(x, w, s, m);
    load_state_of_step<by_head>(x, w, 0, m);
}

// Stores dq and dk of a step of 32 rows, and returns when the stage may be loaded
// again. `finish` stores the rows of shorter steps.
static __device__ __forceinline__ void store_gated(
    const struct backward_one_params &x, const struct backward_walk &w, int f, int s,
    struct backward_one_storage &m)
{
    const struct gated_half &rows = m.gated[s % GATED].half[f];
    if (w.whole(s)) {
        tma_store_3d(x.to_q, rows.q, 64 * f, w.n, w.token(s));
        tma_store_3d(x.to_k, rows.k, 64 * f, w.n, w.token(s));
    }
    tma_store_wait_read();
}

#endif
