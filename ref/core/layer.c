/* layer.c -- a whole layer for an application: whose code, how many bytes, the calls.
 *
 * Book: chapter 08.  Checked by: tests/08_forward/layer.c, tests/08_forward/graph.c.
 * Next: ../book/examples/kda.c.
 *
 * A layer is a pair of variants of 08 and 13 with one name, and a 14. What is wrong
 * with a call is found here, on the host, before anything is put on the stream. */
#include "layer.h"
#include "ref.h"

#include <stdio.h>
#include <string.h>

/* Of programs with CUDA alone: cuda/07_merge/mapops.cu. */
extern const struct kcp_mapops cuda_mapops __attribute__((weak));

static int run_forward(void *a) { return ref_forward(a); }
static int run_backward(void *a) { return ref_backward(a); }
static int run_conv(void *a) { return ref_conv(a); }

#define REF(stage, run)                                                               \
    { stage, "ref", "the reference", KCP_F64, KCP_HOST, "any", run, NULL }
static const struct kcp_variant ref_08 = REF("08_forward", run_forward);
static const struct kcp_variant ref_13 = REF("13_backward", run_backward);
static const struct kcp_variant ref_14 = REF("14_conv", run_conv);

void kcp_layer_ref(struct kcp_layer *layer)
{
    *layer = (struct kcp_layer){ KCP_F64, KCP_HOST, &ref_mapops, &ref_08, &ref_13,
                                 &ref_14 };
}

/* The newest of a stage for a GPU and a storage, or the one of this name. */
static const struct kcp_variant *newest(const char *stage, enum kcp_storage storage,
                                        const char *name)
{
    const struct kcp_variant *v[256];
    for (int i = kcp_variants(stage, name, v, 256) - 1; i >= 0; i--)
        if (v[i]->where == KCP_DEVICE && v[i]->storage == storage)
            return v[i];
    return NULL;
}

//> layer-pair
int kcp_layer_gpu(struct kcp_layer *layer, enum kcp_storage storage, const char *name,
                  char *why, size_t n)
{
    const struct kcp_variant *v[256];
    char known[160] = "";
    *layer = (struct kcp_layer){ storage, KCP_DEVICE, &cuda_mapops, NULL, NULL, NULL };
    for (int i = kcp_variants("08_forward", NULL, v, 256) - 1; i >= 0; i--) {
        const struct kcp_variant *back = newest("13_backward", storage, v[i]->name);
        if (v[i]->where != KCP_DEVICE || v[i]->storage != storage || !back)
            continue;
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, " %s", v[i]->name);
        if (!layer->forward && (!name || !strcmp(name, v[i]->name)))
            layer->forward = v[i], layer->backward = back;
    }
    layer->conv = newest("14_conv", storage, NULL);
    if (layer->forward && layer->conv)
        return KCP_OK;
    if (why && known[0])
        snprintf(why, n, "found %s, expected one of%s", name ? name : "none", known);
    else if (why)
        snprintf(why, n, "this program has no layer for a GPU of that storage");
    return known[0] ? KCP_BAD : KCP_NA;
}
//< layer-pair

void kcp_layer_call(const struct kcp_layer *layer, struct kcp_call *call,
                    const struct kcp_plan *plan, struct kcp_comm *comm)
{
    const int r = comm ? comm->r : 0;
    const struct kcp_context *x = &plan->ctx[r];
    call->T = x->end - x->begin, call->NS = x->NS, call->NC = x->NC;
    call->N = plan->N, call->C = plan->C, call->R = plan->R, call->r = r;
    call->plan = plan, call->comm = comm, call->ops = layer->ops;
}

/* ---- bytes */

size_t kcp_layer_saved(const struct kcp_layer *layer, const struct kcp_call *call)
{
    static const size_t bytes[] = { [KCP_F64] = 8, [KCP_F32] = 4, [KCP_BF16] = 2 };
    struct kcp_saved s;
    struct kcp_call c = *call;
    if (!c.plan)
        return 0;
    c.ops = c.ops ? c.ops : layer->ops;
    kcp_saved_layout(&s, &c, layer->forward->name, bytes[layer->storage],
                     layer->storage == KCP_F64 ? 8 : 4);
    return s.bytes;
}

static size_t work(const struct kcp_variant *v, const void *args)
{
    return v->work && ((const struct kcp_call *)args)->plan ? v->work(args) : 0;
}

size_t kcp_layer_forward_work(const struct kcp_layer *layer,
                              const struct kcp_forward *a)
{
    return work(layer->forward, a);
}

size_t kcp_layer_backward_work(const struct kcp_layer *layer,
                               const struct kcp_backward *a)
{
    return work(layer->backward, a);
}

size_t kcp_layer_conv_work(const struct kcp_layer *layer, const struct kcp_conv *a)
{
    return work(layer->conv, a);
}

/* ---- calls */

/* Does this call of this pass read or write the field? */
static int used(const struct kcp_field *f, const struct kcp_call *c)
{
    const int back = f->io == KCP_BIN || f->io == KCP_BOUT;
    return f->when == KCP_ALWAYS && (!back || c->pass == KCP_BACKWARD) &&
           (f->io != KCP_FOUT || c->pass == KCP_FORWARD);
}

/* Why this call cannot be made; NULL: it can. A rank without tokens needs no arrays. */
static const char *wrong(const struct kcp_variant *v, const void *args)
{
    const struct kcp_call *c = args;
    const struct kcp_stage *stage = kcp_stage_find(v->stage);
    if (!c->plan || c->r < 0 || c->r >= c->plan->R || (c->plan->R > 1 && !c->comm))
        return "no plan, or no comm for its ranks";
    const struct kcp_context *x = &c->plan->ctx[c->r];
    if (c->R != c->plan->R || c->N != c->plan->N || c->C != c->plan->C ||
        c->NS != x->NS || c->NC != x->NC || c->T != x->end - x->begin)
        return "the sizes are not the plan's";
    for (int i = 0; i < stage->nfields && c->T > 0; i++) {
        const void *p = *(void *const *)((const char *)args + stage->fields[i].at);
        if (!p && used(&stage->fields[i], c))
            return stage->fields[i].name;
    }
    return work(v, args) > (c->work ? c->work_bytes : 0) ? "work is too short" : NULL;
}

/* cut: the saved block is not as long as it must be. */
static int go(const struct kcp_variant *v, void *args, int cut)
{
    const struct kcp_call *c = args;
    const char *why = wrong(v, args);
    why = why ? why : cut ? "the saved block is too short" : NULL;
    if (why && c->comm)
        c->comm->fail(c->comm, KCP_BAD, why);
    return why ? KCP_BAD : v->run(args);
}

int kcp_layer_forward(const struct kcp_layer *layer, struct kcp_forward *a)
{
    const size_t need = a->saved ? kcp_layer_saved(layer, (struct kcp_call *)a) : 0;
    return go(layer->forward, a, a->saved && need > a->saved_bytes);
}

int kcp_layer_backward(const struct kcp_layer *layer, struct kcp_backward *a)
{
    const size_t need = kcp_layer_saved(layer, (struct kcp_call *)a);
    return go(layer->backward, a, !a->saved || need > a->saved_bytes);
}

int kcp_layer_conv(const struct kcp_layer *layer, struct kcp_conv *a)
{
    return go(layer->conv, a, 0);
}
