/* alive.c -- computes how much of the state that enters a rank is left at its end.
 *
 * Book: chapters 05, 07.  Checked by: tests/cli/run_cli.sh.  Next: print.c.
 * If gates forget everything, a wrong exchange changes no result. Therefore kcp-run
 * prints the share |M|_F / sqrt(K) over all heads, which is 1 if nothing is forgotten.
 */
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Adds the squares of all elements of M to *sum. If v = 0, an initial state that is a
 * unit vector ends as a column of M, so a run of the reference gives V columns. */
static int sum_columns(const struct kcp_stage *s, union pass_args *a, double *h0,
                       const double *ht, double *sum)
{
    const struct kcp_call *c = &a->call;
    const int64_t KV = (int64_t)c->K * c->V;
    for (int j = 0; j < c->K; j += c->V) {
        memset(h0, 0, sizeof *h0 * (size_t)(c->HV * KV));
        for (int n = 0; n < c->HV; n++)
            for (int v = 0; v < c->V && j + v < c->K; v++)
                h0[n * KV + (j + v) * c->V + v] = 1;
        const int status = s->ref(a);
        if (status)
            return status;
        for (int64_t e = 0; e < c->HV * KV; e++)
            *sum += ht[e] * ht[e];
    }
    return KCP_OK;
}

static void set_array(const struct kcp_stage *s, void *args, const char *name, void *p)
{
    for (int i = 0; i < s->nfields; i++)
        if (strcmp(s->fields[i].name, name) == 0)
            memcpy((char *)args + s->fields[i].at, &p, sizeof p);
}

/* Runs the stage's reference on one rank, with only the first local sequence. Sets
 * *alive to -1 if no state enters this rank. */
int rank_alive(struct run *x, const struct kcp_stage *s, const union pass_args *of,
               double *alive)
{
    const struct kcp_context *ctx = &x->plan->ctx[of->call.r];
    union pass_args a = *of;
    struct kcp_call *c = &a.call;
    struct kcp_plan *plan = NULL;
    *alive = -1;
    if (ctx->n_local == 0 || ctx->is_first_rank)
        return KCP_OK;
    const int64_t cu[2] = { 0, ctx->cu_seqlens[1] };
    if (kcp_plan_make(&plan, 1, cu, 1, NULL, 0, c->C, 0, NULL))
        return KCP_NO_MEMORY;
    const size_t state = (size_t)c->HV * (size_t)c->K * (size_t)c->V;
    const size_t value = (size_t)cu[1] * (size_t)c->HV * (size_t)c->V;
    double *v = calloc(2 * value + 2 * state + (size_t)(c->HV * c->V), sizeof *v);
    double *o = v + value, *h0 = o + value, *ht = h0 + state, sum = 0;
    const struct { const char *name; void *p; } arrays[] = {
        { "cu", plan->ctx[0].cu }, { "cn", plan->ctx[0].cn }, { "sc", plan->ctx[0].sc },
        { "v", v }, { "o", o }, { "h0", h0 }, { "ht", ht }, { "o0", NULL },
        { "ot", ht + state },
    };
    kcp_layer_call(&(struct kcp_layer){ .ops = &ref_mapops }, c, plan, NULL);
    c->pass = KCP_FORWARD;
    c->layout = KCP_KV;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        set_array(s, &a, arrays[i].name, arrays[i].p);
    if (s == kcp_stage_find("08"))
        a.forward.saved = NULL;
    if (s == kcp_stage_find("16"))
        a.family.h_kept = NULL;
    const int status = v ? sum_columns(s, &a, h0, ht, &sum) : KCP_NO_MEMORY;
    *alive = sqrt(sum / ((double)c->HV * c->K));
    free(v);
    kcp_plan_free(plan);
    return status;
}
