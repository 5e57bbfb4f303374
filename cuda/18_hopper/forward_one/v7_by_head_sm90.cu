// v7_by_head_sm90.cu -- the forward of KDA with any gate: by head, one kernel or two.
// Book: chapter 18b.
//
// A step (32 tokens from a sequence's start) is deep if, in a half of the step, some
// channel decays by more than 2^100. `find_deep_steps` stores which heads have one. If
// a head has a deep step in a sequence, chunk_prepare and the scan compute this head of
// this sequence, otherwise the one-kernel forward does. A block of these kernels exits
// if another kernel computes its work. All four are launched in this order as dependent
// kernels: the one-kernel forward starts as soon as all blocks of the scan have
// started, and runs concurrently with the scan. The last block of each kernel ends
// after the preceding kernel. Value heads of one query/key head are computed alike, and
// so are all heads of a sequence if many have deep steps (is_deep).
#include "cuda/18_hopper/v3_prepare_scan_workspace.cuh"
#include "storage.cuh"

static const char *const by_head_name = "v7_by_head";

// Adds the log2 decays of 8 channels over 8 rows, of which `rows` exist, as positive
// numbers. With softplus a decay is top log2(1 + 2^u), so a product has their sum. Its
// logarithm is too small by at most 2^-19.
template <int form>
static __device__ __forceinline__ void add_decays(const struct gate_constants *f,
                                                  const uint4 *g, int64_t stride,
                                                  int rows, float *sum)
{
    uint4 raw[8];
    float product[8];
    #pragma unroll
    for (int r = 0; r < 8; r++)
        if (r < rows) raw[r] = g[r * stride];
    #pragma unroll
    for (int i = 0; i < 8; i++) product[i] = 1.0f;
    #pragma unroll
    for (int r = 0; r < 8; r++) {
        if (r >= rows) continue;
        const uint32_t pairs[4] = { raw[r].x, raw[r].y, raw[r].z, raw[r].w };
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t pair = pairs[i / 2];
            const float x = i % 2 ? bf16x2_high(pair) : bf16x2_low(pair);
            if (form == KCP_GATE_SOFTPLUS) {
                const float e = ex2_approx(fmaf(f[0].times, x, f[i].plus));
                product[i] = fmaf(product[i], e, product[i]);
            } else sum[i] += fabsf(log2_decay<form>(f[i], x));
        }
    }
    #pragma unroll
    for (int i = 0; i < 8 && form == KCP_GATE_SOFTPLUS; i++)
        sum[i] += -f[0].top * (lg2_approx(product[i]) + 0x1p-19f);
}

// Bound: memory. A warp tests one step of a head. A lane has 8 channels of 16 rows. A
// NaN counts as deep, and so does a gate of softplus whose 2^u is infinite.
template <int form>
static __global__ __launch_bounds__(256, 3) void find_deep_steps(
    const __grid_constant__ struct forward_params x)
{
    const int n = blockIdx.x, step = blockIdx.y * 8 + threadIdx.x / 32;
    const int lane = threadIdx.x % 32, channel = lane % 16 * 8;
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (step >= 2 * x.a.NC) return;
    const struct token_range z = tokens_of_chunk(x.a, step / 2);
    const int row = step % 2 * STEP_ROWS + lane / 16 * (STEP_ROWS / 2);
    const int64_t stride = (int64_t)x.a.HV * 128 / 8;
    const uint4 *g = (const uint4 *)x.a.g_raw + ((int64_t)z.t + row) * stride
                     + n * 16 + lane % 16;
    struct gate_constants f[8];
    float sum[8] = {};
    #pragma unroll
    for (int i = 0; i < 8; i++) f[i] = gate_constants_of<form>(x.a, n, channel + i);
    const int rows = z.len - row, is_full = __all_sync(~0u, rows >= STEP_ROWS / 2);
    #pragma unroll
    for (int r = 0; r < STEP_ROWS / 2; r += 8)
        if (is_full) add_decays<form>(f, g + r * stride, stride, 8, sum);
        else add_decays<form>(f, g + r * stride, stride, rows - r, sum);
    int deep = 0;
    #pragma unroll
    for (int i = 0; i < 8; i++) deep |= !(sum[i] <= 100.0f);
    deep = __any_sync(~0u, deep);
    const int s = x.a.NS == 1 ? 0 : ((const int *)x.a.sc)[step / 2];
    if (deep && lane == 0) x.deep[(int64_t)s * x.a.H + n / (x.a.HV / x.a.H)] = 1;
}

template <int form>
static int launch_deep_steps(const struct forward_params *x)
{
    const dim3 blocks(x->a.HV, (2 * x->a.NC + 7) / 8);
    return launch_dependent(find_deep_steps<form>, 0, blocks, 256, x);
}

static int deep_steps(const struct forward_params *x)
{
    return x->a.gate == KCP_GATE_RAW ? launch_deep_steps<KCP_GATE_RAW>(x)
                                     : launch_deep_steps<KCP_GATE_SOFTPLUS>(x);
}

static const struct kcp_path *path_of(const struct kcp_forward *a)
{
    if (!a->plan || !is_aligned_16(a->o)) return NULL;
    return kcp_path_of("08_forward", by_head_name, KCP_BF16, a);
}

static size_t place(struct fused *f, struct head_params *x, const struct kcp_forward *a,
                    const struct kcp_path *path)
{
    struct arena *r = &f->r;
    place_fused(f, a, path, 1);
    f->x.kept = 0;                       // backward reads h0
    if (a->saved) x->records = (struct step_record *)f->x.factors;
    if (a->saved) x->states = (unsigned char *)arena_named(r, "states", 0, 1);
    f->x.deep = (unsigned char *)arena_named(r, "deep", (int64_t)a->NS * a->H, 1);
    if (a->NS > FEW_STRETCHES)
        x->stretch = (struct stretch *)arena_take(r, a->NS, sizeof(struct stretch));
    x->f = f->x;
    return r->used;
}

static int run(void *args)
{
    const struct kcp_forward *a = (const struct kcp_forward *)args;
    const struct kcp_path *path = path_of(a);
    struct head_params x = {};
    struct fused f;
    if (!a->plan) return KCP_BAD;
    if (!path) return KCP_NA;
    int status = place(&f, &x, a, path) <= a->work_bytes ? KCP_OK : KCP_BAD;
    if (a->saved && a->saved_bytes < f.r.head.bytes) status = KCP_BAD;
    if (!status && a->saved) write_head<<<1, 256, 0, a->stream>>>(a->saved, f.r.head);
    for (int p = PART_SUM; p <= PART_MAIN; p++)
        profile_hook((enum profile_part)p, a->stream);
    if (!status && a->NS) {
        put_rows(&f);                    // ordinary launches, before the dependent ones
        put_stretches(&x);
        cudaMemsetAsync(f.x.deep, 0, (size_t)a->NS * a->H, a->stream);
        status = deep_steps(&f.x);
        if (!status) status = kda_chunk_prepare(&f.x, processors());
        if (!status) status = forward_scan(&f.x, NULL, f.l.columns);
        if (!status) status = launch_one_kda(&x);
    }
    if (!status) pass_empty_states((const struct kcp_call *)a, 1, a->h0, a->ht);
    report_failure((const struct kcp_call *)a, status, by_head_name);
    return status ? status : launched();
}

static size_t work(const void *args)
{
    const struct kcp_forward *a = (const struct kcp_forward *)args;
    const struct kcp_path *path = path_of(a);
    struct head_params x = {};
    struct fused f;
    return path ? place(&f, &x, a, path) : 0;
}

KCP_VARIANT(forward_v7_by_head) = {
    "08_forward", "v7_by_head", "one kernel, or two for heads with strong decays",
    KCP_BF16, KCP_DEVICE, "K, V 128, C 64, whole sequences, KDA; sm_90a", run, work };
