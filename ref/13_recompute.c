/* 13_recompute.c -- reads the saved block and recomputes missing tensors.
 *
 * Book: chapter 13.  Checked by: tests/13_backward/checks.c and its mutants.
 * Next: ref/13_backward.c. */
#include "13_backward.h"

/* Checks the saved block and sets pointers to its tensors. */
int backward_open(struct backward_rank *x)
{
    const struct kcp_backward *a = x->a;
    const struct kcp_saved *s = a->saved;
    char why[160] = "";
    const int status = kcp_saved_check(s, a->saved_bytes, (const struct kcp_call *)a,
                                       "ref", sizeof(double), sizeof(double), why,
                                       sizeof why);
    if (status)
        return kcp_refuse(status, "13_backward: %s", why);
    if (a->reuse_M && (!s->reuse_M || s->form != (int)a->form))
        return kcp_refuse(KCP_MISMATCH, "13_backward: saved block: has no M for this "
                          "form");
    double **at[] = { &x->q, &x->k, &x->beta, &x->Aqk, &x->A, &x->G, &x->w, &x->u,
                      &x->qg, &x->kg, &x->v_new, &x->h };
    static const char *const name[] = { "q", "k", "beta", "Aqk", "A", "G", "w", "u",
                                        "qg", "kg", "v_new", "h" };
    for (int j = 0; j < 12; j++)
        *at[j] = kcp_saved_at(s, name[j]);         /* NULL: not saved */
    return KCP_OK;
}

/* Prepares stage 02 to recompute q and k if the block lacks them (KCP_SAVE_LIGHT). The
 * recomputed q and k have the same bits as in forward. */
static void normalise_again(struct backward_rank *x, struct kcp_gate *gate)
{
    const struct kcp_backward *a = x->a;
    const int64_t TH = a->T * a->H;
    gate->q_raw = a->q_raw; gate->k_raw = a->k_raw;
    gate->q = x->q = rank_zeros(&x->own, TH * a->K);
    gate->k = x->k = rank_zeros(&x->own, TH * a->K);
    gate->rstd_q = rank_zeros(&x->own, TH); gate->rstd_k = rank_zeros(&x->own, TH);
}

/* Recomputes, from the block and the raw inputs, the tensors that forward saves only
 * with KCP_SAVE_ALL. Runs the same functions as forward (stages 02, 03, 04), so the
 * gradients have the same bits for every value of kcp_save. */
int backward_recompute(struct backward_rank *x)
{
    const struct kcp_backward *a = x->a;
    const int64_t TV = a->T * a->HV, size = (int64_t)a->HV * a->K * a->V;
    const double *kept = kcp_saved_at(a->saved, "h_kept");
    double *h_start = rank_zeros(&x->own, a->NS * size);
    int status;

    STAGE(kcp_gate, gate);
    gate.pass = KCP_FORWARD;
    gate.g_raw = a->g_raw; gate.A_log = a->A_log; gate.dt_bias = a->dt_bias;
    gate.g = rank_zeros(&x->own, TV * a->KG);
    gate.G = x->G = rank_zeros(&x->own, TV * a->KG);
    if (!x->q) normalise_again(x, &gate);

    STAGE(kcp_wy, wy);
    wy.q = x->q; wy.k = x->k; wy.v = a->v; wy.G = x->G; wy.beta = x->beta; wy.A = x->A;
    wy.u = x->u = rank_zeros(&x->own, TV * a->V);
    wy.w = x->w = rank_zeros(&x->own, TV * a->K);
    if (a->model == KCP_KDA) {
        wy.kg = x->kg = rank_zeros(&x->own, TV * a->K);
        wy.qg = x->qg = rank_zeros(&x->own, TV * a->K);
    }

    CALL(kcp_h0, h0);
    h0.pass = KCP_BACKWARD; h0.h_start = h_start; h0.h_kept_in = kept;
    h0.h_back = rank_zeros(&x->own, a->NS * size);

    STAGE(kcp_chunk, chunk);
    chunk.q = x->q; chunk.k = x->k; chunk.qg = x->qg; chunk.kg = x->kg;
    chunk.u = x->u; chunk.w = x->w; chunk.Aqk = x->Aqk; chunk.G = x->G;
    chunk.h_in = x->plan->L || x->plan->scattered ? kept : h0.h_back;
    chunk.o = rank_zeros(&x->own, TV * a->V);
    chunk.v_new = x->v_new = rank_zeros(&x->own, TV * a->V);
    chunk.h = x->h = rank_zeros(&x->own, a->NC * size);
    chunk.h_out = rank_zeros(&x->own, a->NS * size);
    if (x->own.full)
        return KCP_NO_MEMORY;
    //> recompute
    rank_enter(a, 0, a->h0, h_start);
    if ((status = ref_gate(&gate)) || (status = ref_wy_factors(&wy)) ||
        (status = ref_h0(&h0)))
        return status;
    return ref_chunk(&chunk);
    //< recompute
}
