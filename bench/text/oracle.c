/* oracle.c -- runs the layer by the token recurrence, without chunks, maps and ranks.
 * Book: chapter 01. */
#include "text.h"
#include "layer.h"
#include "base/tensor_set.h"
#include <stdlib.h>
#include <string.h>

/* The run's tensors with one row per token, and their names in stages 01 and 02. */
static const struct { const char *name, *shape; enum activation t; } inputs[] = {
    { "q_raw", "T H K", Q_ }, { "k_raw", "T H K", K_ }, { "v", "T HV V", V_ },
    { "g_raw", "T HV K", GRAW }, { "beta_raw", "T HV", BRAW }, { "do_", "T HV V", DO },
};
static const struct { const char *name; enum activation t; } outputs[] = {
    { "o", O }, { "dv", DV }, { "dq_raw", DQ }, { "dk_raw", DK }, { "dg_raw", DG },
    { "dbeta_raw", DB },
};

static void add_input(struct tensor_set *set, const char *name, const char *shape,
                      enum kcp_store store, const void *from, const struct kcp_call *c)
{
    const struct tensor *t = tensor_add(set, name, shape, store, c);
    memcpy(t->p, from, tensor_bytes(t));
}

static void add_inputs(struct tensor_set *set, const struct rank *a,
                       const struct kcp_call *c)
{
    const double *theta = a->run->theta;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        add_input(set, inputs[i].name, inputs[i].shape, KCP_ACTV, a->t[inputs[i].t], c);
    add_input(set, "A_log", "HV", KCP_ACC, theta + param_at(P_ALOG), c);
    add_input(set, "dt_bias", "HV K", KCP_ACC, theta + param_at(P_DT), c);
    add_input(set, "cu", "NS+1", KCP_I32, a->ctx->cu, c);
    add_input(set, "cn", "NS+1", KCP_I32, a->ctx->cn, c);
    add_input(set, "sc", "NC", KCP_I32, a->ctx->sc, c);
    add_input(set, "cu_seqlens", "N+1", KCP_I64, a->run->text->cu, c);
}

static void copy_output(const struct tensor_set *set, const char *name, double *to)
{
    const struct tensor *t = tensor_find(set, name);
    if (t) memcpy(to, t->p, sizeof *to * (size_t)t->n);
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
    add_inputs(&set, a, &c);
    int status = reference_run(&set, gate, &c);
    c.pass = pass;
    if (!status) status = reference_run(&set, step, &c);
    if (!status && pass == KCP_BACKWARD) status = reference_run(&set, gate, &c);
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs && !status; i++)
        copy_output(&set, outputs[i].name, a->t[outputs[i].t]);
    if (!status) {
        copy_output(&set, "ht", a->run->ht);
        copy_output(&set, "dh0", a->run->dh0);
        add_rows(&set, "dA_part", a->run->grad + param_at(P_ALOG));
        add_rows(&set, "ddt_part", a->run->grad + param_at(P_DT));
    }
    tensor_set_free(&set);
    return status;
}
