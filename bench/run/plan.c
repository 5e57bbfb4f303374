/* plan.c -- makes the plan from files and options.
 * Book: chapter 06. */
#include "run.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Loads cu_seqlens [N+1]. Without this file, all tokens are one sequence. */
int plan_read(struct run *x)
{
    if (array_exists(x, "cu_seqlens"))
        return array_load(x, &x->size, "cu_seqlens", "cu_seqlens", "N+1", KCP_I64);
    x->size.N = 1;
    return 0;
}

/* Reads --cuts, such as "0,5,12". kcp_plan_make checks that the cuts are in order. */
static int read_cuts(struct run *x, int64_t **cuts, int *count)
{
    const char *s = x->o.cuts;
    int64_t *cut = malloc(sizeof *cut * (strlen(s) / 2 + 2));
    int n = 0;
    *cuts = cut;
    if (!cut) return run_error(x, RUN_FAILED, "--cuts", "out of memory");
    for (int more = 1; more; more = *s++ == ',') {
        char *end;
        errno = 0;
        const long long at = strtoll(s, &end, 10);
        if (!isdigit((unsigned char)*s) || errno || (*end && *end != ','))
            return run_error(x, RUN_BAD, "--cuts", "found '%.60s', expected R+1 "
                             "whole numbers separated by commas, such as 0,5,12",
                             x->o.cuts);
        cut[n++] = at;
        s = end;
    }
    if (n < 2 || n - 1 > MOST_RANKS || (x->o.ranks && x->o.ranks != n - 1))
        return run_error(x, RUN_BAD, "--cuts", "found %d boundaries, expected R+1 = %s%"
                         PRId64, n, x->o.ranks ? "" : "2 to ",
                         1 + (x->o.ranks ? x->o.ranks : MOST_RANKS));
    *count = n;
    return 0;
}

/* Fills x->call, the first member of every stage's args, from sizes and options. */
static int call_make(struct run *x)
{
    struct kcp_call *z = &x->size;
    const struct options *o = &x->o;
    struct kcp_call *c = &x->call;
    if (z->HV % z->H)
        return run_error(x, RUN_BAD, "v.npy", "found HV = %d value heads, expected a "
                         "multiple of H = %d", z->HV, z->H);
    if (o->blocks > z->V)
        return run_error(x, RUN_BAD, "--blocks", "found %d, expected at most V = %d",
                         o->blocks, z->V);
#define SIZE(name) .name = z->name < 0 ? 0 : z->name
    *c = (struct kcp_call){
        SIZE(T), SIZE(N), SIZE(NS), SIZE(NC), SIZE(R), SIZE(H), SIZE(HV), SIZE(K),
        SIZE(V), SIZE(C), SIZE(D), SIZE(Wc), .model = o->model,
        .part = KCP_LOCAL | KCP_REVERSE | (o->sum ? KCP_SUM_LOCAL : 0),
        .gate = o->gate, .beta_form = o->beta,
        .q_type = o->dtype == 2 ? KCP_TYPE_F16 : KCP_AS_Q,
        .g_type = o->g_type, .beta_type = o->beta_type,
        .act = o->act, .layout = o->layout,
        .save = o->save, .form = o->form, .blocks = o->blocks,
        .l2norm = o->l2norm, .reuse_M = o->reuse_M,
        .lower_bound = o->lower_bound, .ops = &ref_mapops,
    };
#undef SIZE
    c->KG = kcp_gates_of(c);
    c->scale = o->scale;
    if (isnan(o->scale)) c->scale = 1 / sqrt(c->K > 0 ? c->K : 1);
    return 0;
}

int plan_make(struct run *x)
{
    const struct tensor *given = tensor_find(&x->a, "cu_seqlens");
    const int64_t all[2] = { 0, x->size.T };
    const int64_t *cu = given ? given->p : all;
    int64_t *cuts = NULL;
    int count = 0;
    const char *why = NULL;
    if (cu[x->size.N] != all[1])
        return run_error(x, RUN_BAD, "cu_seqlens.npy", "the last boundary is %" PRId64
                         ", expected T = %" PRId64, cu[x->size.N], all[1]);
    struct kcp_owners owners = { 0 };
    if (x->size.C < 0) x->size.C = x->o.chunk ? x->o.chunk : 64;
    int bad = x->o.cuts && read_cuts(x, &cuts, &count) != 0;
    int R = x->o.ranks ? (int)x->o.ranks : 1;
    if (count) R = count - 1;
    if (!bad && x->o.spread &&
        kcp_owners_make(&owners, x->o.spread, x->size.N, cu, R,
                        x->o.stripe ? x->o.stripe : x->size.C, &why))
        bad = run_error(x, RUN_BAD, "--layout", "%s", why);
    x->size.R = R;
    int Wc = 0;
    for (int i = 0; i < x->a.n; i++)
        if (strcmp(x->a.t[i].shape, "D Wc") == 0 && x->a.t[i].dim[1] > Wc)
            Wc = (int)x->a.t[i].dim[1];
    if (owners.B && !bad)
        kcp_plan_owned(&x->plan, x->size.N, cu, R, &owners, x->o.canonical,
                       x->size.C, Wc, &why);
    else if (!bad)
        kcp_plan_make(&x->plan, x->size.N, cu, R, cuts, x->o.canonical,
                      x->size.C, Wc, &why);
    kcp_owners_free(&owners);
    free(cuts);
    if (bad) return -1;
    if (!x->plan)
        return run_error(x, RUN_BAD, x->o.cuts ? "--cuts" : "plan", "%s", why);
    x->report = calloc((size_t)R, sizeof *x->report);
    if (!x->report) return run_error(x, RUN_FAILED, "plan", "out of memory");
    return call_make(x);
}
