// v6_adapted.cu -- calls of other sizes or of f16, by the fast kernels and copies.
// Book: chapter 18.
//
// kcp_adapt (ref/core/adapt.c) returns the call that runs: value heads of more than 128
// columns become several heads, and K and V are padded to 64 or 128. The workspace has
// the arrays that must be copied, then the workspace of the kernel that runs. An array
// that is not aligned to 16 bytes is copied too. The saved block is that kernel's.
// Arrays of f16 are converted to bf16 and back, so errors are those of bf16. A kernel
// that converts these arrays itself runs without copies.
#include "cuda/host/workspace.cuh"
#include "cuda/tile/launch.cuh"
#include "core/paths.h"
#include "rows.cuh"

static const char *const adapted_name = "v6_adapted";

struct adapted_array {
    const struct kcp_field *field;
    void *theirs, *ours;
    struct rows of_theirs, of_ours;
    size_t bytes;                        // per number
    int half;                            // 1: theirs is f16, ours is bf16
};
struct adapted {
    int count, padded;                   // padded: q, k and g are read as they are
    struct adapted_array at[32];
    struct arena r;
};

// Returns 1 if a kernel with this name reads q, k and g of fewer channels than K: TMA
// sets the other channels to 0. Needs rows of whole 16 bytes, one gate per inner head,
// and dt_bias for gates that the kernel computes (fill_of).
template <class Args>
static int pads_channels(const Args *a, const Args *inner, const char *kernel)
{
    const struct kcp_call *call = (const struct kcp_call *)a;
    const uintptr_t any = (uintptr_t)a->q_raw | (uintptr_t)a->k_raw
                          | (uintptr_t)a->g_raw | (uintptr_t)a->K * 2;
    return !strcmp(kernel, "v3_prepare_scan") && a->model == KCP_KDA && any % 16 == 0
           && a->K < inner->K && a->HV == inner->HV && a->q_type != KCP_TYPE_F16
           && kcp_type_of(call, KCP_G, KCP_BF16) != KCP_TYPE_F32
           && (a->gate == KCP_GATE_RAW || a->dt_bias);
}

static int is_padded(const struct kcp_field *f)
{
    return !strcmp(f->name, "q_raw") || !strcmp(f->name, "k_raw")
           || !strcmp(f->name, "g_raw");
}

// Changes *inner, a copy of the caller's args, to the args of the call that runs. If
// `padded` is 1, its kernel pads q, k and g, and inner->KG is the number of channels.
template <class Args>
static struct adapted place_adapted(const Args *outer, Args *inner, const char *stage,
                                    int padded)
{
    const struct kcp_call *call = (const struct kcp_call *)outer;
    const struct kcp_stage *s = kcp_stage_find(stage);
    struct adapted x = {};
    x.padded = padded;
    x.r.base = (char *)outer->work;
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        void **p = (void **)((char *)inner + f->at);
        if (!*p || f->store == KCP_I32 || f->store == KCP_I64) continue;
        if (padded && is_padded(f)) continue;
        struct adapted_array y = { f, *p, NULL, rows_of(call, f),
                                   rows_of((const struct kcp_call *)inner, f),
                                   kcp_bytes_of(call, f->store, KCP_BF16),
                                   f->store == KCP_ACTV &&
                                       call->q_type == KCP_TYPE_F16 };
        const int aligned = (uintptr_t)*p % 16 == 0 && !y.half;
        if (aligned && is_view(&y.of_theirs, &y.of_ours)) continue;
        y.ours = arena_take(&x.r, numbers_of(&y.of_ours), y.bytes);
        *p = y.ours ? y.ours : (void *)256;      // only counting: any aligned address
        x.at[x.count++] = y;
    }
    if (padded) inner->KG = outer->K;
    inner->work = x.r.base ? x.r.base + x.r.used : NULL;
    inner->work_bytes = outer->work_bytes > x.r.used ? outer->work_bytes - x.r.used : 0;
    return x;
}

static int is_sum(const struct adapted_array *y)
{
    return y->of_theirs.cut == CUT_NONE && y->of_ours.heads > y->of_theirs.heads;
}

// Padded channels of a gate that the kernels compute must not decay fast, or a chunk
// would need the underflow path. An input of -64 is a gate of 0 for softplus, bounded
// gates. In these channels q, k and the state are 0, so the gate changes no output. If
// the kernel pads g with 0, the padding of dt_bias is -64.
static uint4 fill_of(const struct adapted *x, const struct kcp_call *c,
                     const struct kcp_field *f)
{
    uint32_t bits = 0;
    if (x->padded && c->gate != KCP_GATE_RAW && !strcmp(f->name, "dt_bias"))
        bits = 0xc2800000;
    if (f->store == KCP_G && c->gate != KCP_GATE_RAW)
        switch (kcp_type_of(c, KCP_G, KCP_BF16)) {
            case KCP_TYPE_F32: bits = 0xc2800000; break;
            case KCP_TYPE_F16: bits = 0xd400d400; break;
            default: bits = 0xc280c280;
        }
    return make_uint4(bits, bits, bits, bits);
}

// Copies an array to the inner call's array or, if `out` is 1, back.
template <int out>
static void copy_array(const struct adapted_array *y, int half, uint4 fill,
                       struct CUstream_st *stream)
{
    auto copy = half ? copy_numbers<out, 1> : copy_numbers<out, 0>;
    copy(y->theirs, y->ours, y->of_theirs, y->of_ours, y->bytes, fill, stream);
}

// On several ranks, outputs with one row per sequence are copied in too, because rows
// that this rank does not own must keep their values.
static void copy_in(const struct adapted *x, const struct kcp_call *c)
{
    for (int i = 0; i < x->count; i++) {
        const struct adapted_array *y = &x->at[i];
        const int is_in = y->field->io == KCP_IN;
        if (is_in || (c->R > 1 && y->field->shape[0] == 'N'))
            copy_array<0>(y, y->half && is_in, fill_of(x, c, y->field), c->stream);
    }
}

static void copy_out(const struct adapted *x, const struct kcp_call *c)
{
    for (int i = 0; i < x->count; i++) {
        const struct adapted_array *y = &x->at[i];
        if (y->field->io == KCP_IN) continue;
        if (is_sum(y))
            sum_numbers(y->theirs, y->ours, kcp_type_of(c, y->field->store, KCP_BF16),
                        y->of_theirs, y->of_ours, c->stream);
        else copy_array<1>(y, y->half, uint4{}, c->stream);
    }
}

// Runs the call or, if `work` is not NULL, only computes its workspace, which suffices
// for arrays that are not aligned. If the inner call's kernel takes the call itself (q,
// k and v of f16, paths.def), nothing is copied.
template <class Args>
static int adapt(const Args *outer, int backward, size_t *work)
{
    const char *stage = backward ? "13_backward" : "08_forward";
    if (!outer->plan || (backward && !outer->saved)) return KCP_BAD;
    if (!kcp_path_of(stage, adapted_name, KCP_BF16, outer)) return KCP_NA;
    Args own = *outer, inner = *outer;
    kcp_adapt((const struct kcp_call *)outer, (struct kcp_call *)&inner);
    const struct kcp_path *p = kcp_adapt_path((const struct kcp_call *)&inner, backward,
                                              outer->saved != NULL);
    const struct kcp_variant *v = kcp_path_kernel(p);
    if (!v) return KCP_NA;
    if (!work && inner.K == outer->K && inner.V == outer->V
        && kcp_path_of(stage, v->name, KCP_BF16, outer))
        return v->run(&own);
    const int padded = !work && !backward && pads_channels(outer, &inner, v->name);
    const struct adapted x = place_adapted(outer, &inner, stage, padded);
    if (!work && x.r.used > outer->work_bytes)
        return report_failure((const struct kcp_call *)outer, KCP_BAD, adapted_name);
    if (!work) copy_in(&x, (const struct kcp_call *)outer);
    if (work) *work = x.r.used + (v->work ? v->work(&inner) : 0);
    if (work) return KCP_OK;
    const int status = v->run(&inner);
    if (status) return status;
    copy_out(&x, (const struct kcp_call *)outer);
    return launched();
}

template <class Args, int backward>
static int adapted_run(void *args)
{
    return adapt((const Args *)args, backward, NULL);
}

template <class Args, int backward>
static size_t adapted_work(const void *args)
{
    size_t bytes = 0;
    adapt((const Args *)args, backward, &bytes);
    return bytes;
}

KCP_VARIANT(forward_v6_adapted) = {
    "08_forward", "v6_adapted", "copies arrays to sizes and types of fast kernels",
    KCP_BF16, KCP_DEVICE, "K up to 128, V up to 512, C 64",
    adapted_run<struct kcp_forward, 0>, adapted_work<struct kcp_forward, 0> };
KCP_VARIANT(backward_v6_adapted) = {
    "13_backward", "v6_adapted", "copies arrays to sizes and types of fast kernels",
    KCP_BF16, KCP_DEVICE, "K up to 128, V up to 512, C 64",
    adapted_run<struct kcp_backward, 1>, adapted_work<struct kcp_backward, 1> };
