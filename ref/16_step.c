/* 16_step.c -- computes any model of the family token by token: the oracle.
 * Book: chapter 16.
 * The oracle stores the states of all tokens of one head. */
#include "16_family.h"

#include <stdlib.h>
#include <string.h>

static double *at(const void *p, int64_t numbers)
{
    return p ? (double *)p + numbers : NULL;
}

static struct family_token token(const struct kcp_family *a, int64_t t, int n)
{
    const int64_t qk = (t * a->H + n / (a->HV / a->H)) * a->K;
    const int64_t key = (t * a->HV + n) * a->K, value = (t * a->HV + n) * a->V;
    return (struct family_token){
        .K = a->K, .V = a->V,
        .q = at(a->q, qk), .k = at(a->k, qk), .v = at(a->v, value), .g = at(a->g, key),
        .a = at(a->a, key), .b = at(a->b, key), .omega = at(a->omega, value),
        .dq = at(a->dq, qk), .dk = at(a->dk, qk), .dv = at(a->dv, value),
        .dg = at(a->dg, key), .da = at(a->da, key), .db = at(a->db, key),
        .domega = at(a->domega, value) };
}

/* o = S^T (scale q) */
static void output(const struct kcp_family *a, int64_t t, int n, const double *q,
                   const void *S_)
{
    const double (*S)[a->V] = S_;
    double *o = (double *)a->o + (t * a->HV + n) * a->V;
    memset(o, 0, sizeof *o * a->V);
    for (int i = 0; i < a->K; i++)
        for (int v = 0; v < a->V; v++) o[v] += S[i][v] * (a->scale * q[i]);
}

/* dq = scale S do      dS += scale q do^T */
static void output_adjoint(const struct kcp_family *a, int64_t t, int n,
                           const struct family_token *x, const void *S_, void *dS_)
{
    const double (*S)[a->V] = S_;
    const double *dO = (const double *)a->do_ + (t * a->HV + n) * a->V;
    double (*dS)[a->V] = dS_;
    for (int i = 0; i < a->K; i++)
        for (int v = 0; v < a->V; v++) {
            x->dq[i] += a->scale * S[i][v] * dO[v];
            dS[i][v] += a->scale * x->q[i] * dO[v];
        }
}

/* Computes tokens t0 .. t1-1 of head n of a sequence. S [t1-t0+1][K*V] receives the
 * state before each token, then the last state. The caller sets the first state of S
 * and, in backward, dS [K*V], the gradient of the last state. */
static void one_head(const struct family_model *m, const struct kcp_family *a, int n,
                     int64_t t0, int64_t t1, double *S, double *dS)
{
    const int64_t KV = (int64_t)a->K * a->V;
    for (int64_t t = t0; t < t1; t++, S += KV) {
        const struct family_token x = token(a, t, n);
        memcpy(S + KV, S, sizeof *S * KV);
        m->step(&x, S + KV);
        if (a->pass == KCP_FORWARD) output(a, t, n, x.q, S + KV);
    }
    for (int64_t t = t1 - 1; t >= t0 && a->pass == KCP_BACKWARD; t--, S -= KV) {
        const struct family_token x = token(a, t, n);
        output_adjoint(a, t, n, &x, S, dS);
        m->adjoint(&x, S - KV, dS);
    }
}

static void zero(void *p, int64_t numbers)
{
    if (p && numbers) memset(p, 0, sizeof(double) * numbers);
}

void family_clear(const struct kcp_family *a)
{
    const int64_t key = a->T * a->HV * a->K, value = a->T * a->HV * a->V;
    zero(a->dq, a->T * a->H * a->K); zero(a->dk, a->T * a->H * a->K);
    zero(a->dv, value); zero(a->dg, key); zero(a->da, key); zero(a->db, key);
    zero(a->domega, value);
}

/* Computes o and ht (backward: all gradients) of all sequences on one rank; plan->R
 * must be 1. An empty sequence has ht = h0 and dh0 = dht. */
int kcp_family_walk(const struct family_model *m, const struct kcp_family *a)
{
    if (a->plan->R != 1)
        return kcp_refuse(KCP_BAD, "16_family: the plan has R = %d ranks, but the "
                          "oracle needs R = 1", a->plan->R);
    const int64_t KV = (int64_t)a->K * a->V, *cu = a->plan->cu_seqlens;
    const int back = a->pass == KCP_BACKWARD;
    double *S = calloc((a->T + 2) * KV, sizeof *S);
    double *dS = S ? S + (a->T + 1) * KV : NULL;
    if (!S) return KCP_NO_MEMORY;
    if (back) family_clear(a);
    for (int j = 0; j < a->N * a->HV; j++) {
        const int s = j / a->HV, n = j % a->HV;
        struct kcp_call one;
        memcpy(&one, a, sizeof one);
        one.HV = 1;                                    /* ref_state copies one head */
        zero(S, KV); zero(dS, KV);
        if (a->h0) ref_state(&one, 0, at(a->h0, j * KV), S);
        if (back && a->dht) ref_state(&one, 0, at(a->dht, j * KV), dS);
        one_head(m, a, n, cu[s], cu[s + 1], S, dS);
        ref_state(&one, 1, back ? dS : S + (cu[s + 1] - cu[s]) * KV,
                  at(back ? a->dh0 : a->ht, j * KV));
    }
    free(S);
    return KCP_OK;
}
