// v5_steps_sm90.cu -- KDA's backward in one kernel, one block per head and sequence.
// Book: chapter 18c, "One kernel".
#include "cuda/host/mapops.cuh"
#include "cuda/host/profile_hooks.cuh"
#include "cuda/host/refused.cuh"
#include "cuda/host/segment_sum.cuh"
#include "cuda/host/split.h"
#include "cuda/18_hopper/deep_steps.cuh"
#include "cuda/tile/launch_shared.cuh"
#include "finish.cuh"

static const char *const steps_name = "v5_steps";

// For bound, ownership and barriers see storage.cuh. Shared memory: 226 KiB, one block
// per SM. Registers: 128 per thread. With x.deep, the kernel reads nothing that the
// preceding kernels write, so only the last block waits for them.
template <int form>
static __global__ __launch_bounds__(512, 1) void kda_backward_kernel(
    const __grid_constant__ struct backward_one_params x)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    struct backward_one_storage &m = *(struct backward_one_storage *)on_chip;
    const struct backward_stretch z = x.stretch[blockIdx.x / x.a.HV];
    const int n = blockIdx.x % x.a.HV, steps = (z.len + ROWS - 1) / ROWS;
    const struct backward_walk w = {
        __shfl_sync(~0u, n, 0), __shfl_sync(~0u, n / (x.a.HV / x.a.H), 0),
        __shfl_sync(~0u, z.begin, 0), __shfl_sync(~0u, z.len, 0),
        __shfl_sync(~0u, steps, 0), __shfl_sync(~0u, z.step, 0),
        __shfl_sync(~0u, z.row, 0) };
    enum { by_head = form != KCP_GATE_BOUNDED };
    if (by_head) griddepcontrol_launch_dependents();
    if (by_head && is_deep(x, z.row, n)) {
        last_block_waits();
        return;
    }
    if (threadIdx.x == 0) {
        init_backward_barriers(m);
        mbarrier_fence_init();
    }
    if (threadIdx.x < 128)
        m.dt_bias[threadIdx.x] =
            x.a.dt_bias ? ((const float *)x.a.dt_bias)[n * 128 + threadIdx.x] : 0.0f;
    __syncthreads();
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (wg < 2) chain_warpgroup<form>(x, w, wg, z.sequence, m);
    else finish_warpgroup<form>(x, w, wg - 2, m);
    if (by_head) last_block_waits();
}

// Computes y [T,H,128]: sums x [T,HV,128] over the value heads of each query/key head,
// in a fixed order. A thread has eight channels.
static __global__ void add_value_heads(int64_t rows, int heads, const uint4 *x,
                                       uint4 *y)
{
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= rows * 16) return;
    float sum[8] = {};
    for (int h = 0; h < heads; h++) {
        const uint4 u = x[(i / 16 * heads + h) * 16 + i % 16];
        const uint32_t p[4] = { u.x, u.y, u.z, u.w };
        for (int j = 0; j < 8; j++) sum[j] += pair_half(p[j / 2], j % 2);
    }
    y[i] = make_uint4(pack_bf16x2(sum[0], sum[1]), pack_bf16x2(sum[2], sum[3]),
                      pack_bf16x2(sum[4], sum[5]), pack_bf16x2(sum[6], sum[7]));
}

// ---- the host's part

static bf16 *aligned_array(struct arena *r, const void *x, int64_t count)
{
    return (bf16 *)(is_aligned_16(x) ? (void *)x : arena_take(r, count, sizeof(bf16)));
}

size_t place_steps(struct steps_backward *f, const struct kcp_backward *args,
                   const struct kcp_path *path)
{
    struct backward_one_params *x = &f->x;
    struct arena *r = &f->r;
    x->a = *args;
    x->scale = (float)args->scale;
    x->lower_bound = (float)args->lower_bound;
    const struct kcp_backward *a = &x->a;
    const int64_t rows = padded_rows(a->plan), gates = (int64_t)a->HV * a->KG;
    const int64_t parts = a->HV > a->H ? a->T * a->HV * a->K : 0;
    arena_open(r, (const struct kcp_call *)a, a->saved, path->format, steps_name,
               sizeof(bf16));
    const int by_head = path->format == KCP_FORMAT_BY_HEAD;
    x->records = (const struct step_record *)arena_named(
        r, by_head ? "factors" : "steps", 0, 1);
    if (by_head) {
        x->states = (const unsigned char *)arena_named(r, "states", 0, 1);
        x->deep = (const unsigned char *)arena_named(r, "deep", 0, 1);
    }
    x->stretch = (struct backward_stretch *)arena_take(r, a->NS,
                                                       sizeof(struct backward_stretch));
    const int64_t qk = a->T * a->H * a->K, v = a->T * a->HV * a->V;
    x->dO = aligned_array(r, a->do_, v);
    x->dv = aligned_array(r, a->dv, v);
    f->dq = x->dq = aligned_array(r, a->dq_raw, qk);
    f->dk = x->dk = aligned_array(r, a->dk_raw, qk);
    if (parts) x->dq = (bf16 *)arena_take(r, parts, sizeof(bf16));
    if (parts) x->dk = (bf16 *)arena_take(r, parts, sizeof(bf16));
    f->dA_rows = (float *)arena_take(r, rows * a->HV, sizeof(float));
    f->ddt_rows = (float *)arena_take(r, rows * gates, sizeof(float));
    f->all = (float *)arena_take(r, a->plan->R * rows * gates, sizeof(float));
    x->dA_rows = a->dA_log ? f->dA_rows : NULL;
    x->ddt_rows = a->ddt_bias ? f->ddt_rows : NULL;
    return r->used;
}

// Puts long sequences first, so that the last blocks to start are short. Lengths are
// compared in multiples of 1/16 of the longest sequence.
void put_step_stretches(struct steps_backward *f)
{
    const struct kcp_backward *a = &f->x.a;
    const struct kcp_context *c = &a->plan->ctx[a->r];
    const struct kcp_segment *seg = a->plan->seg + c->seg0;
    const int64_t longest = kcp_longest(c);
    struct putter x = { (int *)f->x.stretch, {}, a->stream };
    for (int sixteenth = 16; sixteenth >= 0; sixteenth--)
        for (int s = 0, step = 0; s < a->NS; s++) {
            const int len = c->cu[s + 1] - c->cu[s], chunks = (len + a->C - 1) / a->C;
            if (16 * (int64_t)len / longest == sixteenth) {
                put(&x, c->cu[s]);
                put(&x, len);
                put(&x, seg[s].n);
                put(&x, step);
                put(&x, s);
            }
            step += 2 * chunks;
        }
    put_rest(&x);
}

static int make_step_maps(struct backward_one_params *x)
{
    const struct kcp_backward *a = &x->a;
    const struct { CUtensorMap *map; const void *rows; int heads; } maps[] = {
        { &x->q, a->q_raw, a->H },   { &x->k, a->k_raw, a->H },
        { &x->g, a->g_raw, a->HV },  { &x->of_dO, x->dO, a->HV },
        { &x->to_v, x->dv, a->HV },  { &x->to_q, x->dq, a->HV },
        { &x->to_k, x->dk, a->HV } };
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (!tensor_map_of_heads(maps[i].map, maps[i].rows, a->T, maps[i].heads, 128,
                                 ROWS))
            return KCP_CUDA;
    return KCP_OK;
}

static void copy_to_call(const void *from, void *to, int64_t count,
                         struct CUstream_st *stream)
{
    if (from == to) return;
    cudaMemcpyAsync(to, from, count * sizeof(bf16), cudaMemcpyDeviceToDevice, stream);
}

static int launch_kernel(const struct backward_one_params *x)
{
    const size_t bytes = sizeof(struct backward_one_storage);
    const dim3 blocks(x->a.NS * x->a.HV);
    switch (x->a.gate) {
        case KCP_GATE_RAW:
            return launch_dependent(kda_backward_kernel<KCP_GATE_RAW>, bytes, blocks,
                                    512, x);
        case KCP_GATE_SOFTPLUS:
            return launch_dependent(kda_backward_kernel<KCP_GATE_SOFTPLUS>, bytes,
                                    blocks, 512, x);
        default:
            return launch_shared(kda_backward_kernel<KCP_GATE_BOUNDED>, blocks, 512,
                                 bytes, x->a.stream, *x);
    }
}

int launch_steps(struct steps_backward *f)
{
    struct backward_one_params *x = &f->x;
    const struct kcp_backward *a = &x->a;
    const int heads = a->HV / a->H;
    const int64_t rows = a->T * a->H, v = a->T * a->HV * a->V;
    const unsigned blocks = (unsigned)((rows * 16 + 255) / 256);
    int status = make_step_maps(x);
    copy_to_call(a->do_, x->dO, v, a->stream);
    if (!status) status = launch_kernel(x);
    if (status) return status;
    if (heads > 1) {
        add_value_heads<<<blocks, 256, 0, a->stream>>>(
            rows, heads, (const uint4 *)x->dq, (uint4 *)f->dq);
        add_value_heads<<<blocks, 256, 0, a->stream>>>(
            rows, heads, (const uint4 *)x->dk, (uint4 *)f->dk);
    }
    copy_to_call(f->dq, a->dq_raw, rows * a->K, a->stream);
    copy_to_call(f->dk, a->dk_raw, rows * a->K, a->stream);
    copy_to_call(x->dv, a->dv, v, a->stream);
    return launched();
}

static int run_steps(const struct kcp_backward *args, const struct kcp_path *path)
{
    struct steps_backward f = {};
    int status = place_steps(&f, args, path) <= args->work_bytes ? KCP_OK : KCP_BAD;
    const struct kcp_backward *a = &f.x.a;
    const struct kcp_call *call = (const struct kcp_call *)a;
    if (a->saved_bytes < f.r.head.bytes) status = KCP_BAD;
    for (int p = PART_SUM; p <= PART_MAIN; p++)
        profile_hook((enum profile_part)p, a->stream);
    if (!status && a->NS < padded_rows(a->plan))
        clear_parameter_rows(a, f.dA_rows, f.ddt_rows);
    if (!status && a->NS) {
        put_step_stretches(&f);
        status = launch_steps(&f);
    }
    if (!status) status = parameter_sums(a, f.dA_rows, f.ddt_rows, f.all);
    if (!status) pass_empty_states(call, 0, a->dht, a->dh0);
    if (!status) nan_if_block_differs(a, &f.r, KCP_BF16);
    report_failure(call, status, steps_name);
    return status ? status : launched();
}

static const struct kcp_path *path_of(const struct kcp_backward *a)
{
    return a->plan ? kcp_path_of("13_backward", steps_name, KCP_BF16, a) : NULL;
}

static int run(void *args)
{
    const struct kcp_backward *a = (const struct kcp_backward *)args;
    const struct kcp_path *path = path_of(a);
    if (!a->plan || !a->saved) return KCP_BAD;
    return path ? run_steps(a, path) : KCP_NA;
}

static size_t work(const void *args)
{
    const struct kcp_backward *a = (const struct kcp_backward *)args;
    const struct kcp_path *path = path_of(a);
    struct steps_backward f = {};
    return path ? place_steps(&f, a, path) : 0;
}

KCP_VARIANT(backward_v5_steps) = {
    "13_backward", "v5_steps", "one kernel, one block per head and sequence", KCP_BF16,
    KCP_DEVICE, "KDA, K, V 128, bounded gates, whole sequences; sm_90a", run, work };
