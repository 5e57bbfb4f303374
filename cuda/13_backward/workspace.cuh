// room.cuh -- where the arrays of a whole backward lie.
// Book: chapter 13, "Code: kernels".
// Checked by: tests/13_backward/checks.c.
// Next: program.cuh.
#include "cuda/host/workspace.cuh"
#include "cuda/host/mapops.cuh"
#include "cuda/host/segment_sum.cuh"
#include "cuda/host/stages_v1.cuh"
#include "cuda/host/split_sequence.cuh"

struct backward {
    struct kcp_backward a;               // the caller's, its ops filled in
    struct stages t;
    struct room r;
    void *q, *k, *beta, *Aqk, *A, *h_kept;                // in the saved block
    void *G, *w, *u, *qg, *kg, *v_new, *h;                // there, or made again
    void *dAqk, *dv_local, *dU, *dh, *dh_in;              // chapter 09
    void *dmap, *states;                                  // 11, 07
    void *dq, *dk, *dbeta, *dg;                           // 10
    float *dA_part, *ddt_part, *all;                      // 02, summed over the ranks
    void *A_again, *h_start;                              // of recompute alone
    void *work_10, *work_02;
    int *want, *differs;
    struct strips p;                     // backward's; recompute has them first
    struct kcp_exchange e;
};

#define STAGE(type, name)                                                             \
    struct type name = {};                                                            \
    memcpy((void *)&name, &x->a, sizeof(struct kcp_call));                            \
    name.cu = x->a.cu, name.cn = x->a.cn, name.sc = x->a.sc

// What forward left, and what it made and did not leave.
template <class X>
static void place_forward(struct backward *x)
{
    const struct kcp_backward *a = &x->a;
    const int64_t TV = a->T * a->HV, f = sizeof(float);
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    struct room *r = &x->r;

    x->q = take_named(r, "q", 0, 1), x->k = take_named(r, "k", 0, 1);
    x->beta = take_named(r, "beta", 0, 1), x->h_kept = take_named(r, "h_kept", 0, 1);
    x->Aqk = take_named(r, "Aqk", 0, 1), x->A = take_named(r, "A", 0, 1);
    x->G = take_named(r, "G", TV * a->KG, f);
    x->u = take_named(r, "u", TV * a->V, sizeof(X));
    x->w = take_named(r, "w", TV * a->K, sizeof(X));
    if (a->model == KCP_KDA) {
        x->kg = take_named(r, "kg", TV * a->K, sizeof(X));
        x->qg = take_named(r, "qg", TV * a->K, sizeof(X));
    }
    x->v_new = take_named(r, "v_new", TV * a->V, sizeof(X));
    x->h = take_named(r, "h", a->NC * KV, sizeof(X));
    if (a->save == KCP_SAVE_ALL) return;
    x->A_again = take(r, TV * a->C, sizeof(X));
    x->h_start = take(r, a->NS * KV, f);
}

// What backward makes. The parts of the parameters have padded rows.
template <class X>
static void place_backward(struct backward *x)
{
    const struct kcp_backward *a = &x->a;
    const int64_t TH = a->T * a->H, TV = a->T * a->HV, f = sizeof(float);
    const int64_t KV = (int64_t)a->HV * a->K * a->V, KK = (int64_t)a->HV * a->K * a->K;
    const int64_t rows = padded_rows(a->plan), gate = (int64_t)a->HV * a->KG;
    struct room *r = &x->r;

    x->dAqk = take(r, TV * a->C, sizeof(X)), x->dh = take(r, a->NC * KV, sizeof(X));
    x->dv_local = take(r, TV * a->V, sizeof(X)), x->dU = take(r, TV * a->V, sizeof(X));
    x->dh_in = take(r, a->NS * KV, f), x->states = take(r, a->NS * KV, f);
    x->dmap = take(r, a->NS * (KV + KK), f);
    x->dq = take(r, TH * a->K, sizeof(X)), x->dk = take(r, TH * a->K, sizeof(X));
    x->dbeta = take(r, TV, f), x->dg = take(r, TV * a->KG, f);
    x->dA_part = (float *)take(r, rows * a->HV, f);
    x->ddt_part = (float *)take(r, rows * gate, f);
    x->all = (float *)take(r, a->plan->R * rows * gate, f);
    x->want = (int *)take(r, a->NS, sizeof(int));
    x->differs = (int *)take(r, 1, sizeof(int));
    const struct strips whole = { 0, a->NS, (int *)a->cu, (int *)a->cn, x->want,
                                  x->dmap, x->states, x->dh_in, NULL };
    x->p = place_strips((struct kcp_call *)a, r, &whole);

    x->e = { a->form, 1, a->blocks, a->reuse_M, a->HV, a->K, a->V, a->plan, a->comm,
             a->ops, x->dmap, x->states, NULL, NULL, a->stream };
    if (a->reuse_M) x->e.kept = take_named(r, "kept", 0, 1);
    x->e.work = take(r, kcp_exchange_work(&x->e), 1);
}

template <class X>
static size_t place(struct backward *x, const struct kcp_backward *args,
                    const struct stages &t)
{
    *x = {};
    x->a = *args, x->t = t;
    if (!x->a.ops) x->a.ops = &cuda_mapops;
    x->r.base = (char *)x->a.work, x->r.saved = (char *)x->a.saved;
    kcp_saved_layout_of(&x->r.head, (struct kcp_call *)&x->a, t.path->format, t.name,
                        sizeof(X), sizeof(float));
    place_forward<X>(x);
    place_backward<X>(x);
    STAGE(kcp_wy_backward, wy);
    STAGE(kcp_gate, gate);
    gate.pass = KCP_BACKWARD;
    x->work_10 = take(&x->r, t.wy_backward_work(&wy), 1);
    x->work_02 = take(&x->r, t.gate_work(&gate), 1);
    return x->r.used;
}
