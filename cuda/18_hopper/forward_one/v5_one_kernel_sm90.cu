// v5_one_kernel_sm90.cu -- the whole forward in one kernel, one block per head.
// Book: chapter 18b.
#include "cuda/18_hopper/deep_steps.cuh"
#include "cuda/host/profile_hooks.cuh"
#include "cuda/host/workspace.cuh"
#include "cuda/tile/launch_shared.cuh"
#include "core/paths.h"
#include "cuda/host/split.h"
#include "step_scan.cuh"

static const char *const one_kernel_name = "v5_one_kernel";

// Bound: latency of T / 32 sequential steps of about 1.75 us (KDA) or 1.3 us (GDN).
// With 96 heads on an H100, KDA takes 1.3 times as long as memory needs for its 6K + 4V
// bytes per token and head.
//
// Shared memory: 226 KiB (KDA), one block per SM. Ownership: each of two warpgroups has
// 64 columns of the state. KDA: two more warpgroups apply the gate to rows, two warps
// compute A beta, one computes Aqk, and one loads rows and computes decays. GDN: two
// warps compute A beta, two compute Aqk, and one loads rows. Barriers: see storage.cuh.
//
// If `keep` is 1, the kernel also stores records (step_record.cuh) for backward.
template <int kda, int keep, int form>
static __global__ __launch_bounds__(head_shape<kda>::THREADS, 1) void one_kernel(
    const __grid_constant__ struct head_params x)
{
    typedef struct head_shape<kda> shape;
    extern __shared__ __align__(1024) unsigned char on_chip[];
    struct head_storage<kda> &smem = *(struct head_storage<kda> *)on_chip;
    const struct head_walk w = head_walk_of(x);
    // Gate warps of softplus that keep records would load spilled registers in every
    // step. This costs more than the scan's 152 registers, with which the compiler does
    // not overlap its products (C7512).
    enum {
        by_head = kda && form != KCP_GATE_BOUNDED,
        MOVED = kda && keep && form == KCP_GATE_SOFTPLUS ? 8 : 0,
    };

    if (by_head && is_deep(x.f, sequence_of(x, w), w.n)) {
        last_block_waits();
        return;
    }
    if (threadIdx.x == 0) init_barriers(smem);
    // Zeroes Aqk, because no later store writes the block above the diagonal.
    for (int i = threadIdx.x; i < STEP_STAGES * STEP_TRIANGLE / 16; i += blockDim.x)
        ((uint4 *)smem.stage[i / (STEP_TRIANGLE / 16)].Aqk)[i % (STEP_TRIANGLE / 16)] =
            make_uint4(0, 0, 0, 0);
    fence_proxy_async();
    __syncthreads();
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    if (wg < 2) {
        setmaxnreg_inc<shape::SCAN_REGISTERS - MOVED>();
        scan_warpgroup<kda, keep, by_head>(x, w, smem);
    } else if (!kda || wg == 4) {
        setmaxnreg_dec<shape::TRIANGLE_REGISTERS>();
        const int role = kda ? warp : (wg - 2) * 4 + warp;
        if (role < INVERSE_WARPS) inverse_warp<kda, keep, by_head>(x, w, smem, role);
        else if (role < INVERSE_WARPS + shape::QUERY_WARPS) {
            if constexpr (kda) query_warp<keep, by_head>(x, w, smem);
            else query_warp(x, w, smem, role - INVERSE_WARPS);
        } else if (role == INVERSE_WARPS + shape::QUERY_WARPS) {
            if constexpr (kda) decay_warp<keep, by_head>(x, w, smem);
            else load_warp(x, w, smem);
        }
    } else if constexpr (kda) {
        setmaxnreg_dec<shape::GATE_REGISTERS + MOVED>();
        gate_warp<form>(x, w, smem, wg - 2, warp);
    }
    if (by_head) last_block_waits();
}

// ---- the host's part

static int make_tensor_maps(struct head_params *x)
{
    const struct kcp_forward *a = &x->f.a;
    const struct { CUtensorMap *map; const void *rows; int heads, there; } maps[] = {
        { &x->q, a->q_raw, a->H, 1 }, { &x->k, a->k_raw, a->H, 1 },
        { &x->g, a->g_raw, a->HV, a->KG != 1 }, { &x->v, a->v, a->HV, 1 },
        { &x->o, a->o, a->HV, 1 } };
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (maps[i].there
            && !tensor_map_of_heads(maps[i].map, maps[i].rows, a->T, maps[i].heads, 128,
                                    STEP_ROWS))
            return KCP_CUDA;
    return KCP_OK;
}

template <int kda, int keep, int form>
static int launch_one_kernel(struct head_params *x)
{
    const size_t bytes = sizeof(struct head_storage<kda>);
    const dim3 grid(x->f.a.HV, x->f.a.NS);
    const int status = make_tensor_maps(x);
    if (status) return status;
    if (x->f.deep)
        return launch_on(x->f.a.stream, one_kernel<kda, keep, form>, bytes, grid,
                         head_shape<kda>::THREADS, 1, *x);
    return launch_shared(one_kernel<kda, keep, form>, grid, head_shape<kda>::THREADS,
                         bytes, x->f.a.stream, *x);
}

// Puts long sequences first, so that the last blocks to start are short. Lengths are
// compared in multiples of 1/16 of the longest sequence.
void put_stretches(struct head_params *x)
{
    const struct kcp_forward *a = &x->f.a;
    const struct kcp_context *c = &a->plan->ctx[a->r];
    const struct kcp_segment *seg = a->plan->seg + c->seg0;
    const int64_t longest = kcp_longest(c);
    struct putter to = { (int *)x->stretch, {}, a->stream };
    int at = 0;
    for (int sixteenth = 16; sixteenth >= 0; sixteenth--)
        for (int s = 0; s < a->NS; s++) {
            const int len = c->cu[s + 1] - c->cu[s];
            if (16 * (int64_t)len / longest != sixteenth) continue;
            const struct stretch y = { c->cu[s], len, seg[s].n, 2 * c->cn[s] };
            if (!x->stretch) x->few[at++] = y;
            else for (int i = 0; i < 4; i++) put(&to, ((const int *)&y)[i]);
        }
    put_rest(&to);
}

template <int keep>
static int launch_one_gate(struct head_params *x)
{
    switch (x->f.a.gate) {
        case KCP_GATE_BOUNDED: return launch_one_kernel<1, keep, KCP_GATE_BOUNDED>(x);
        case KCP_GATE_RAW: return launch_one_kernel<1, keep, KCP_GATE_RAW>(x);
        default: return launch_one_kernel<1, keep, KCP_GATE_SOFTPLUS>(x);
    }
}

int launch_one_kda(struct head_params *x)
{
    return x->records ? launch_one_gate<1>(x) : launch_one_gate<0>(x);
}

static const struct kcp_path *path_of(const struct kcp_forward *a)
{
    if (!a->plan || !is_aligned_16(a->o)) return NULL;
    return kcp_path_of("08_forward", one_kernel_name, KCP_BF16, a);
}

static size_t place(struct head_params *x, struct arena *r, const struct kcp_forward *a,
                    const struct kcp_path *path)
{
    x->f.a = *a;
    arena_open(r, (const struct kcp_call *)a, a->saved, path->format, one_kernel_name,
               sizeof(bf16));
    if (a->saved) x->records = (struct step_record *)arena_named(r, "steps", 0, 1);
    if (a->NS > FEW_STRETCHES)
        x->stretch = (struct stretch *)arena_take(r, a->NS, sizeof(struct stretch));
    return r->used;
}

static int run(void *args)
{
    const struct kcp_forward *a = (const struct kcp_forward *)args;
    struct head_params x = {};
    struct arena r = {};
    if (!a->plan) return KCP_BAD;
    const struct kcp_path *path = path_of(a);
    if (!path) return KCP_NA;
    int status = place(&x, &r, a, path) <= a->work_bytes ? KCP_OK : KCP_BAD;
    if (a->saved && a->saved_bytes < r.head.bytes) status = KCP_BAD;
    if (!status && a->saved) write_head<<<1, 256, 0, a->stream>>>(a->saved, r.head);
    for (int p = PART_SUM; p <= PART_MAIN; p++)
        profile_hook((enum profile_part)p, a->stream);
    if (!status && a->NS) {
        put_stretches(&x);
        status = a->KG == 1 ? launch_one_kernel<0, 0, 0>(&x) : launch_one_kda(&x);
    }
    if (!status) pass_empty_states((const struct kcp_call *)a, 1, a->h0, a->ht);
    report_failure((const struct kcp_call *)a, status, one_kernel_name);
    return status ? status : launched();
}

static size_t work(const void *args)
{
    const struct kcp_forward *a = (const struct kcp_forward *)args;
    struct head_params x = {};
    struct arena r = {};
    const struct kcp_path *path = path_of(a);
    return path ? place(&x, &r, a, path) : 0;
}

KCP_VARIANT(forward_v5_one_kernel) = {
    "08_forward", "v5_one_kernel", "one kernel, one block per head and sequence",
    KCP_BF16, KCP_DEVICE,
    "K, V 128, whole sequences, KDA: bounded gates; sm_90a", run, work };
