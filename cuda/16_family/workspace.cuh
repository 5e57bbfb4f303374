// workspace.cuh -- arrays of a DPLR, GDN-2 or GLA call, and its kernels' interface.
// Book: chapter 16, "Code: kernels".
#pragma once

#include "cuda/host/workspace.cuh"
#include "cuda/host/mapops.cuh"
#include "cuda/host/stages_v1.cuh"

// The call and the arrays of its form: rows (u, w, kg, qg, Aqk) that the kernels of
// chapters 04 to 11 process. Row e of the form belongs to token e / m. All rows of a
// token have the same G. A chunk has C tokens and C m rows, at most CMAX.
struct family {
    struct kcp_family a;
    int m, C, NC, spread;                // spread: the result of crosses()
    const int *cu, *cn, *sc;             // the call's tables, for the form's rows
    float *G, *L, *B;                    // G [mT,HV,K]; L (v2: A), B = Aak [T,HV,C]
    void *u, *w, *kg, *qg, *Aqk;
    const void *v_new, *h, *dh, *dAqk, *dU;
    float *z, *dL, *dB;                  // v1: [T,HV,V], 2 x [T,HV,C]; v2: z [2,T,H,K]
};

// Returns the first token and the number of tokens of chunk c.
static __device__ __forceinline__ struct token_range tokens(const struct family &x,
                                                            int c)
{
    const int s = x.sc[c];
    const int64_t t = x.cu[s] / x.m + (int64_t)(c - x.cn[s]) * x.C;
    const int64_t left = x.cu[s + 1] / x.m - t;
    return { t, left < x.C ? (int)left : x.C };
}

// The kernels of one version. `form` and `back` compute the form and its backward. `t`
// has the kernels of chapters 04, 05, 09 and 11, which process rows of the form. If
// `whole` is set, chunks have CMAX rows for any chunk size of the plan, and backward
// keeps its intermediate results in shared memory.
struct program;
struct engine {
    struct stages t;
    int (*form)(const struct family *), (*back)(const struct family *);
    int whole;
    int (*scan)(const struct program *), (*local)(const struct program *);
    int (*reverse)(const struct program *);     // for m = 2, or NULL
};

// Bound: the sum of the stages' bounds. Only the form, its backward and v2's scans of
// DPLR are specific to a model. KDA's kernels compute the rest on rows of the form.
struct program {
    struct family f;
    struct engine by;
    struct kcp_call form;                // the call, with the form's rows as tokens
    struct arena r;
    int *cu, *cn, *sc, *want;
    void *states, *ends, *maps, *o, *v_new, *h, *h_out;
    void *dO, *dAqk, *dv_local, *dU, *dh, *dh_in;
    struct kcp_exchange e;
};

#define FORM(type, name)                                                              \
    struct type name = {};                                                            \
    memcpy((void *)&name, &x->form, sizeof(struct kcp_call));                         \
    name.cu = x->cu;                                                                  \
    name.cn = x->cn;                                                                  \
    name.sc = x->sc

// Returns the number of chunks of this rank, with C tokens per chunk.
static int chunks_of(const struct kcp_family *a, int C)
{
    const struct kcp_context *ctx = &a->plan->ctx[a->r];
    int n = 0;
    for (int s = 0; s < ctx->NS; s++) n += (ctx->cu[s + 1] - ctx->cu[s] + C - 1) / C;
    return n;
}

// Returns whether another rank needs a map (h_ext or M) of this rank (chapters 05, 11).
static int crosses(const struct kcp_family *a)
{
    const int seg0 = a->plan->ctx[a->r].seg0;
    int want = 0;
    for (int s = 0; s < a->NS; s++)
        want |= kcp_plan_want(a->plan, seg0 + s, 0) |
                kcp_plan_want(a->plan, seg0 + s, 1);
    return want != 0;
}

template <class X>
static size_t family_layout(struct program *x, const struct kcp_family *args,
                            const struct engine &by)
{
    *x = {};
    struct family *f = &x->f;
    struct kcp_family *a = &f->a;
    *a = *args;
    x->by = by;
    f->m = a->model == KCP_DPLR ? 2 : 1;
    f->spread = crosses(a);
    f->C = a->C * f->m <= CMAX && !by.whole ? a->C : CMAX / f->m;
    f->NC = chunks_of(a, f->C);
    const int64_t R = a->T * f->m * a->HV, S = a->T * a->HV * f->C, n4 = sizeof(float);
    const int64_t KV = (int64_t)a->HV * a->K * a->V, KK = (int64_t)a->HV * a->K * a->K;
    const int64_t x4 = sizeof(X), CR = (int64_t)f->C * f->m;
    struct arena *r = &x->r;
    memcpy(&x->form, a, sizeof x->form);
    x->form.model = KCP_KDA;
    x->form.KG = a->K;
    x->form.T = a->T * f->m;
    x->form.C = (int)CR;
    x->form.NC = f->NC;
    x->form.reuse_M = 0;
    r->base = (char *)a->work;
    x->cu = (int *)arena_take(r, a->NS + 1, 4);
    x->cn = (int *)arena_take(r, a->NS + 1, 4);
    x->sc = (int *)arena_take(r, f->NC, 4);
    x->want = (int *)arena_take(r, a->NS, 4);
    f->cu = x->cu;
    f->cn = x->cn;
    f->sc = x->sc;
    f->G = (float *)arena_take(r, R * a->K, n4);
    f->L = (float *)arena_take(r, S, n4);
    f->B = (float *)arena_take(r, S, n4);
    f->u = arena_take(r, R * a->V, x4);
    f->w = arena_take(r, R * a->K, x4);
    f->kg = arena_take(r, R * a->K, x4);
    f->qg = arena_take(r, R * a->K, x4);
    f->Aqk = arena_take(r, R * CR, x4);
    x->states = arena_take(r, a->NS * KV, n4);
    x->ends = arena_take(r, a->NS * KV, n4);
    x->maps = arena_take(r, a->NS * (KV + KK), n4);
    x->o = a->o;
    if (f->m == 2 && !by.scan) x->o = arena_take(r, R * a->V, x4);
    f->v_new = x->v_new = arena_take(r, R * a->V, x4);
    f->h = x->h = arena_take(r, f->NC * KV, x4);
    x->h_out = arena_take(r, a->NS * KV, n4);
    if (a->pass == KCP_BACKWARD) {
        x->dO = f->m == 1 ? (void *)a->do_ : arena_take(r, R * a->V, x4);
        x->dv_local = arena_take(r, R * a->V, x4);
        f->dAqk = x->dAqk = arena_take(r, R * CR, x4);
        f->dU = x->dU = arena_take(r, R * a->V, x4);
        f->dh = x->dh = arena_take(r, f->NC * KV, x4);
        x->dh_in = arena_take(r, a->NS * KV, n4);
    }
    if (a->pass == KCP_BACKWARD && by.whole && a->HV > a->H)
        f->z = (float *)arena_take(r, 2 * a->T * a->H * a->K, n4);
    if (a->pass == KCP_BACKWARD && !by.whole) {
        f->z = (float *)arena_take(r, R * a->V, n4);
        f->dL = (float *)arena_take(r, S, n4);
        f->dB = (float *)arena_take(r, S, n4);
    }
    x->e = { a->form, 0, a->blocks, 0, a->HV, a->K, a->V, a->plan, a->comm,
             a->ops ? a->ops : &cuda_mapops, x->maps, x->states, NULL, NULL,
             a->stream };
    struct kcp_exchange back = x->e; // one workspace for both directions
    back.backward = 1;
    const size_t ahead = kcp_exchange_work(&x->e), behind = kcp_exchange_work(&back);
    x->e.work = arena_take(r, ahead > behind ? ahead : behind, 1);
    return r->used;
}
