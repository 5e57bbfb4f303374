/* layer.c -- the layer of make run: convolutions and KDA on the rows of one rank.
 * Book: chapters 01, 08, 13, 14. */
#include "text.h"
#include "layer.h"
#include "base/tensor_set.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct kcp_call layer_call(const struct rank *a)
{
    struct kcp_layer reference;
    struct kcp_call c = { .H = HEADS };
    kcp_layer_ref(&reference);
    kcp_layer_call(&reference, &c, a->run->plan, a->comm);
    c.HV = VALUE_HEADS;
    c.K = c.KG = KEY;
    c.V = VALUE;
    c.Wc = TAPS;
    c.act = KCP_ACT_SILU;
    c.model = KCP_KDA;
    c.l2norm = 1;
    c.gate = KCP_GATE_SOFTPLUS;
    c.beta_form = KCP_BETA_SIGMOID;
    c.save = KCP_SAVE_ALL;
    c.form = a->run->form;
    c.scale = 1 / sqrt(KEY);
    return c;
}

/* Returns the address of a field of the stages, e.g. "q_raw", or NULL. */
static void *layer_field(const struct rank *a, const char *name)
{
    const struct { const char *name; const void *at; } rows[] = {
        { "q_raw", a->t[Q_] }, { "k_raw", a->t[K_] }, { "v", a->t[V_] },
        { "g_raw", a->t[GRAW] }, { "beta_raw", a->t[BRAW] }, { "o", a->t[O] },
        { "do_", a->t[DO] }, { "dq_raw", a->t[DQ] }, { "dk_raw", a->t[DK] },
        { "dv", a->t[DV] }, { "dg_raw", a->t[DG] }, { "dbeta_raw", a->t[DB] },
        { "A_log", a->run->theta + param_at(P_ALOG) }, { "ht", a->run->ht },
        { "dt_bias", a->run->theta + param_at(P_DT) }, { "dh0", a->run->dh0 },
        { "cu", a->ctx->cu }, { "cn", a->ctx->cn }, { "sc", a->ctx->sc },
        { "cu_seqlens", a->run->text->cu },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name)) return (void *)rows[i].at;
    return NULL;
}

/* Fills a stage's args with the layer's sizes and options, and with all fields that
 * layer_field finds. */
static void args_fill(const struct rank *a, const char *stage, void *args)
{
    const struct kcp_stage *s = kcp_stage_find(stage);
    const struct kcp_call c = layer_call(a);
    memset(args, 0, s->args);
    memcpy(args, &c, sizeof c);
    for (int i = 0; i < s->nfields; i++) {
        void *at = layer_field(a, s->fields[i].name);
        memcpy((char *)args + s->fields[i].at, &at, sizeof at);
    }
}

/* Runs the convolutions of q, k and v. In backward, every rank gets the weights'
 * gradients, summed over the ranks; only the last rank stores these sums. */
int layer_conv(struct rank *a, enum kcp_pass pass)
{
    int status = KCP_OK;
    for (int i = 0; i < 3 && !status; i++) {
        const struct shape *w = &param_shape[P_CQ + i];
        double *dw = malloc(sizeof *dw * w->rows * w->cols);
        struct kcp_conv conv;
        args_fill(a, "14", &conv);
        conv.pass = pass;
        conv.D = w->rows;
        conv.x = a->t[PQ + i];
        conv.weight = a->run->theta + param_at(P_CQ + i);
        conv.y = a->t[Q_ + i];
        conv.dy = a->t[DQ + i];
        conv.dx = a->t[DPQ + i];
        conv.dweight = dw;
        status = dw ? ref_conv(&conv) : KCP_NO_MEMORY;
        if (!status && pass == KCP_BACKWARD && a->comm->r == a->comm->R - 1)
            memcpy(a->run->grad + param_at(P_CQ + i), dw,
                   sizeof *dw * w->rows * w->cols);
        free(dw);
    }
    return status;
}

/* ---- chapters 08 and 13 */

/* Computes M of every segment for the report; the layer needs some of these M. */
static int keep_maps(struct rank *a, const struct kcp_forward *f)
{
    const int64_t map = VALUE_HEADS * KEY * (VALUE + KEY), M = VALUE_HEADS * KEY * KEY;
    const int NS = a->ctx->NS;
    int *want = malloc(sizeof *want * (NS + 1));
    double *maps = malloc(sizeof *maps * (NS * map + 1));
    struct kcp_affine x;
    args_fill(a, "05", &x);
    x.want = want;
    x.map = maps;
    x.kg = kcp_saved_at(f->saved, "kg");
    x.w = kcp_saved_at(f->saved, "w");
    x.u = kcp_saved_at(f->saved, "u");
    x.G = kcp_saved_at(f->saved, "G");
    for (int s = 0; want && s < NS; s++) want[s] = KCP_WANT_M;
    const int status = want && maps ? ref_affine(&x) : KCP_NO_MEMORY;
    for (int64_t s = 0; !status && s < NS; s++)
        for (int64_t i = 0; i < VALUE_HEADS * KEY; i++)
            memcpy(a->run->M + (a->ctx->seg0 + s) * M + i * KEY,
                   maps + s * map + i * (VALUE + KEY) + VALUE, sizeof *maps * KEY);
    free(want);
    free(maps);
    return status;
}

int layer_forward(struct rank *a)
{
    const struct run *run = a->run;
    struct kcp_forward f;
    args_fill(a, "08", &f);
    f.saved_bytes = a->saved_bytes = kcp_saved_bytes(&f);
    f.saved = a->saved = malloc(f.saved_bytes);
    if (!f.saved) return KCP_NO_MEMORY;
    int status = ref_forward(&f);
    if (!status && run->keep_maps) {
        struct lane *lane = trace_on(NULL);
        status = keep_maps(a, &f);
        trace_on(lane);
    }
    return status;
}

int layer_backward(struct rank *a)
{
    struct run *run = a->run;
    double dA[VALUE_HEADS], ddt[VALUE_HEADS * KEY];
    struct kcp_backward b;
    args_fill(a, "13", &b);
    b.dA_log = dA;
    b.ddt_bias = ddt;
    b.saved = a->saved;
    b.saved_bytes = a->saved_bytes;
    const int status = ref_backward(&b);
    free(a->saved);
    a->saved = NULL;
    if (!status && a->comm->r == a->comm->R - 1) {
        memcpy(run->grad + param_at(P_ALOG), dA, sizeof dA);
        memcpy(run->grad + param_at(P_DT), ddt, sizeof ddt);
    }
    return status;
}

/* ---- chapter 01: the token recurrence, without chunks, maps and ranks */

/* Copies the stage's inputs to the set or, if `back` is 1, outputs of the set to the
 * run. Fields that are not in the run are results of the other stage. */
static void copy_fields(struct tensor_set *set, const struct rank *a,
                        const struct kcp_stage *s, const struct kcp_call *c, int back)
{
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        void *at = layer_field(a, f->name);
        if (!at || field_in(f) == back) continue;
        const struct tensor *t = back ? tensor_find(set, f->name)
            : tensor_add(set, f->name, f->shape, f->store, c);
        if (t && back) memcpy(at, t->p, tensor_bytes(t));
        else if (t) memcpy(t->p, at, tensor_bytes(t));
    }
}

/* Adds all rows of tensor `name`, which are partial sums of a gradient, to `grad`. */
static void add_rows(const struct tensor_set *set, const char *name, double *grad)
{
    const struct tensor *t = tensor_find(set, name);
    for (int64_t i = 0; t && i < t->n; i++)
        grad[i % (t->n / t->dim[0])] += ((double *)t->p)[i];
}

int oracle_layer(struct rank *a, enum kcp_pass pass)
{
    const struct kcp_stage *gate = kcp_stage_find("02"), *step = kcp_stage_find("01");
    struct tensor_set set = { 0 };
    struct kcp_call c = layer_call(a);
    copy_fields(&set, a, gate, &c, 0);
    copy_fields(&set, a, step, &c, 0);
    int status = reference_run(&set, gate, &c);
    c.pass = pass;
    if (!status) status = reference_run(&set, step, &c);
    if (!status && pass == KCP_BACKWARD) status = reference_run(&set, gate, &c);
    if (!status) {
        copy_fields(&set, a, gate, &c, 1);
        copy_fields(&set, a, step, &c, 1);
        add_rows(&set, "dA_part", a->run->grad + param_at(P_ALOG));
        add_rows(&set, "ddt_part", a->run->grad + param_at(P_DT));
    }
    tensor_set_free(&set);
    return status;
}
