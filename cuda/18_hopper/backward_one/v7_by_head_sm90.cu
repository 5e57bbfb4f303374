// v7_by_head_sm90.cu -- the backward of KDA with any gate: by head, one kernel or two.
// Book: chapter 18c.
//
// Forward saved which heads of a sequence are deep (deep_steps.cuh), the factors of
// these heads, and records of all others. The scans and `finish` of v4_scans_finish
// compute the deep heads, v5_steps the others, and a block exits if another kernel
// computes its work. All are launched as dependent kernels: first the scans, then
// v5_steps, which starts when all blocks of the scans have started, and runs
// concurrently with them, then `finish`.
#include "cuda/18_hopper/v4_scans_finish_workspace.cuh"
#include "cuda/18_hopper/backward/chunk_parts.cuh"
#include "cuda/host/realigned.cuh"
#include "storage.cuh"

static const char *const by_head_name = "v7_by_head";

struct by_head {
    struct factors_backward deep;
    struct steps_backward shallow;
};

// Returns 1 if the sums of the parameters have a single term, this rank's only
// sequence.
static int is_single(const struct kcp_backward *a)
{
    return a->NS == 1 && a->NC && a->plan->R == 1 && a->gate != KCP_GATE_RAW;
}

static size_t place(struct by_head *f, const struct kcp_backward *a,
                    const struct kcp_path *path)
{
    struct backward_params *x = &f->deep.x;
    struct arena *r = &f->deep.r;
    place_backward(&f->deep, a, path);
    x->pairs = (int *)arena_take(r, (int64_t)a->NC * a->H + 1, sizeof(int));
    f->shallow.r.used = r->used;
    const size_t used = place_steps(&f->shallow, a, path);
    x->deep = f->shallow.x.deep;
    if (!is_single(a)) return used;
    f->shallow.x.dA_rows = (float *)a->dA_log;
    f->shallow.x.ddt_rows = (float *)a->ddt_bias;
    return used;
}

static int compute(struct by_head *f)
{
    struct factors_backward *d = &f->deep;
    struct backward_params *x = &d->x;
    const struct kcp_backward *a = &x->a;
    const int terms = a->gate != KCP_GATE_RAW;   // a raw gate has no parameters
    if (!terms || a->NS < padded_rows(a->plan))
        clear_parameter_rows(a, f->shallow.dA_rows, f->shallow.ddt_rows);
    if (!a->NS || !a->NC) return KCP_OK;
    put_rows(d);                         // ordinary launches, before the dependent ones
    put_step_stretches(&f->shallow);
    cudaMemsetAsync(x->pairs, 0, sizeof(int), a->stream);
    x->jobs = d->jobs[0];
    x->njobs = d->count[0];
    int status = backward_scans(x, d->l.reverse_columns[0]);
    if (!status) status = launch_steps(&f->shallow);
    if (!status) status = kda_finish_by_head(x, d->l.finish_blocks);
    if (!status && terms)
        add_chunk_parts<1><<<dim3(a->HV, a->NS), SUM_THREADS, 0, a->stream>>>(
            *x, f->shallow.x.dA_rows, f->shallow.x.ddt_rows);
    return status;
}

static int run_by_head(const struct kcp_backward *args, const struct kcp_path *path)
{
    struct by_head f = {};
    int status = place(&f, args, path) <= args->work_bytes ? KCP_OK : KCP_BAD;
    const struct kcp_backward *a = &f.deep.x.a;
    const struct kcp_call *call = (const struct kcp_call *)a;
    if (a->saved_bytes < f.deep.r.head.bytes) status = KCP_BAD;
    for (int p = PART_SUM; p <= PART_MAIN; p++)
        profile_hook((enum profile_part)p, a->stream);
    if (!status) status = compute(&f);
    if (!status && !is_single(a))
        status = parameter_sums(a, f.shallow.dA_rows, f.shallow.ddt_rows,
                                f.shallow.all);
    if (!status) pass_empty_states(call, 0, a->dht, a->dh0);
    if (!status) nan_if_block_differs(a, &f.deep.r, KCP_BF16);
    report_failure(call, status, by_head_name);
    return status ? status : launched();
}

static const struct kcp_path *path_of(const struct kcp_backward *a)
{
    return a->plan ? kcp_path_of("13_backward", by_head_name, KCP_BF16, a) : NULL;
}

static int run(void *args)
{
    const struct kcp_backward *a = (const struct kcp_backward *)args;
    return run_realigned(*a, path_of(a), run_by_head);
}

static size_t work_of(const struct kcp_backward *a, const struct kcp_path *path)
{
    struct by_head f = {};
    return place(&f, a, path);
}

static size_t work(const void *args)
{
    const struct kcp_backward *a = (const struct kcp_backward *)args;
    return realigned_work(*a, path_of(a), work_of);
}

KCP_VARIANT(backward_v7_by_head) = {
    "13_backward", "v7_by_head", "one kernel, or two for heads with strong decays",
    KCP_BF16, KCP_DEVICE, "K, V 128, C 64, whole sequences, KDA; sm_90a", run, work };
