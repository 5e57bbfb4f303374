/* gla_mutants.c -- computes GLA with one error per flag, and correctly without flag.
 * Book: chapter 16. */
#include "mutants.h"
#include <stdlib.h>

enum { V_ONCE_MORE = SHARED, NOTHING = 2 * SHARED, DV_LOCAL = 4 * SHARED };

static void form(const struct family_chunk *x)
{
    for (int i = 0; i < x->c; i++)
        for (int v = 0; v < x->V; v++) drow(x->u, i)[v] = row(x->v, i)[v];
    if (flags & V_ONCE_MORE)
        for (int p = 0; p < x->K; p++) drow(x->w, 0)[p] = row(x->k, 0)[p];
    write_(x, x->k, 0);
    read_(x);
}

static void form_back(const struct family_chunk *x)
{
    for (int i = 0; i < x->c; i++)
        for (int v = 0; v < x->V; v++) drow(x->v, i)[v] += row(x->dU, i)[v];
    if (flags & DV_LOCAL)                      /* without the state's gradient */
        for (int i = 0; i < x->c; i++)
            for (int p = 0; p < x->K; p++)
                for (int v = 0; v < x->V; v++)
                    drow(x->v, i)[v] -= drow(x->kg, i)[p] * x->dh[p * x->V + v];
    write_back(x, x->k, 0);
    family_read_back(x);
}

static const struct family_model model = { "gla", 1, NULL, NULL, form, form_back };

#define GLA(ident, flag, why) WRONG(KCP_GLA, model, ident, flag, why)
GLA(twin, 0, "correct: runs GLA")
GLA(mutant_gla_undecayed, WRITE_UNDECAYED, "adds k, not kg, to the state")
GLA(mutant_gla_early, WRITE_EARLY, "k v also decays by the gate of its own token")
GLA(mutant_gla_strict, READ_STRICT, "the output of a token omits its own k v")
GLA(mutant_gla_read_early, READ_EARLY, "q multiplies the undecayed state")
GLA(mutant_gla_no_scale, NO_SCALE, "a chunk's Aqk omits scale")
GLA(mutant_gla_dk_local, NO_STATE_IN_DK, "dk omits the term of the state")
GLA(mutant_gla_dv_local, DV_LOCAL, "dv omits the term of the state")
GLA(mutant_gla_twice, DECAYED_TWICE, "kg squares the decay")
GLA(mutant_gla_looks, V_ONCE_MORE, "applies the delta rule to a chunk's first token")

/* The next mutants change the arguments of ref_family. */
static int no_h0(void *args)
{
    struct kcp_family a = *(struct kcp_family *)args;
    a.h0 = NULL;
    return ref_family(&a);
}
static int no_dht(void *args)
{
    struct kcp_family a = *(struct kcp_family *)args;
    a.dht = NULL;
    return ref_family(&a);
}
static int alone(void *args)
{
    struct kcp_family *a = args, b = *a;
    struct kcp_plan *p = NULL;
    int64_t cu[2] = { 0, a->T };
    if (a->N != 1) return ref_family(a);
    if (a->T < 1)                        /* an empty rank has no work */
        return KCP_OK;
    const int bad = kcp_plan_make(&p, 1, cu, 1, NULL, a->plan->L, a->C, 0, NULL);
    if (bad) return bad;
    b.plan = p; b.R = 1; b.r = 0; b.NS = p->ctx[0].NS; b.NC = p->ctx[0].NC;
    b.cu = p->ctx[0].cu; b.cn = p->ctx[0].cn; b.sc = p->ctx[0].sc; b.comm = NULL;
    void *rows = calloc((size_t)a->HV * a->K * a->V, sizeof(double));
    if (a->plan->ht_rank[0] != a->r) {
        b.ht = rows;
        b.dht = NULL;
    }
    if (a->plan->h0_rank[0] != a->r) {
        b.dh0 = rows;
        b.h0 = NULL;
    }
    const int status = rows ? ref_family(&b) : KCP_NO_MEMORY;
    free(rows);
    kcp_plan_free(p);
    return status;
}
static int nothing(void *args)
{
    return KCP_OK;
}
#define AROUND(ident, f, why)                                                         \
    KCP_VARIANT(family_##ident) = { "16_family", #ident, why, KCP_F64, KCP_HOST,      \
                                    "any", f, NULL };
AROUND(mutant_no_h0, no_h0, "ignores h0")
AROUND(mutant_no_dht, no_dht, "ignores dht")
AROUND(mutant_alone, alone, "each rank computes as if no other rank existed")
AROUND(mutant_nothing, nothing, "writes nothing")
