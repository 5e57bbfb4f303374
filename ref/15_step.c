/* 15_step.c -- Spike-KDA token by token, and its adjoint: the oracle of chapter 15.
 * Book: chapter 15.
 *
 * The oracle uses no ranks, tiles or maps, and stores the states of all tokens of a
 * head. */
#include "15_scan.h"

#include <stdlib.h>
#include <string.h>

/* Computes the outputs of one head of one sequence. A dropped token repeats `last`,
 * which is o0 on entry and ot on return. S [t1-t0+1][K V] receives the state before
 * each token, then the last state. */
static void head_outputs(const struct kcp_scan *a, int n, int64_t t0, int64_t t1,
                         double *S, double *last, double *alpha)
{
    const int64_t KV = (int64_t)a->K * a->V;
    const size_t row = sizeof(double) * a->V;
    for (int64_t t = t0; t < t1; t++, S += KV) {
        const struct spike_token x = spike_token(a, t, n, NULL, NULL, NULL, alpha);
        memcpy(S + KV, S, sizeof *S * KV);
        spike_step(&x, S + KV);
        if (a->pass == KCP_BACKWARD) continue;
        if (x.emits) spike_read(&x, S + KV, last);
        memcpy((double *)a->o + (t * a->HV + n) * a->V, last, row);
    }
}

/* Computes the gradients of one head, from the last token to the first. A dropped token
 * repeats an earlier output, so the dropped token's do_ is added, through `last`, to
 * do_ of the token that computed this output. */
static void head_gradients(const struct kcp_scan *a, int n, int64_t t0, int64_t t1,
                           const double *S, double *dS, double *last, double *dO,
                           double *dW, double *dw, double *alpha)
{
    const int64_t KV = (int64_t)a->K * a->V;
    for (int64_t t = t1 - 1; t >= t0; t--) {
        const double *own = (const double *)a->do_ + (t * a->HV + n) * a->V;
        double *sum = dO + (t * a->HV + n) * a->V;
        for (int v = 0; v < a->V; v++) {
            sum[v] = last[v] += own[v];
            last[v] = spike_dropped(a, t) ? last[v] : 0;
        }
        const struct spike_token x = spike_token(a, t, n, dO, dW, dw, alpha);
        spike_gradients(&x, S + (t - t0) * KV, dS);
        spike_back(&x, dS);
    }
}

static void given(const double *from, int64_t at, int64_t numbers, double *to)
{
    for (int64_t e = 0; e < numbers; e++) to[e] = from ? from[at + e] : 0;
}

/* Computes head n of sequence s, where j = s * HV + n. */
static void head(const struct kcp_scan *a, int j, double *S, double *dS, double *row,
                 double *dO)
{
    const int V = a->V, K = a->K, s = j / a->HV, n = j % a->HV;
    const int64_t KV = (int64_t)K * V, *cu = a->plan->cu_seqlens;
    double *last = row, *alpha = row + V;
    struct kcp_call one;
    memcpy(&one, a, sizeof one);
    one.HV = 1;                                        /* ref_state copies one head */
    given(a->h0, j * KV, KV, dS);
    ref_state(&one, 0, dS, S);
    given(a->o0, j * V, V, last);
    head_outputs(a, n, cu[s], cu[s + 1], S, last, alpha);
    if (a->pass == KCP_FORWARD) {
        ref_state(&one, 1, S + (cu[s + 1] - cu[s]) * KV, (double *)a->ht + j * KV);
        memcpy((double *)a->ot + j * V, last, sizeof *last * V);
        return;
    }
    double *end = S + (cu[s + 1] - cu[s]) * KV;        /* reuses the last state */
    given(a->dht, j * KV, KV, end);
    ref_state(&one, 0, end, dS);
    given(a->dot, j * V, V, last);
    head_gradients(a, n, cu[s], cu[s + 1], S, dS, last, dO, a->dW_alpha, a->dw_beta,
                   alpha);
    ref_state(&one, 1, dS, (double *)a->dh0 + j * KV);
    memcpy((double *)a->do0 + j * V, last, sizeof *last * V);
}

/* Computes all sequences on one rank; plan->R must be 1. An empty sequence has ht = h0,
 * ot = o0, dh0 = dht and do0 = dot. */
int ref_scan_step(struct kcp_scan *a)
{
    const int refused = kcp_begin("15_scan", KCP_HOST, a, "cu cn sc");
    if (refused) return refused;
    if (a->plan->R != 1)
        return kcp_refuse(KCP_BAD, "15_scan: the plan has R = %d ranks, but the oracle "
                          "needs R = 1", a->plan->R);
    const int64_t KV = (int64_t)a->K * a->V, W = (int64_t)a->HV * a->K * a->D;
    double *S = calloc((a->T + 2) * KV + a->V + a->K, sizeof *S);
    double *dO = calloc(a->T * a->HV * a->V + 1, sizeof *dO);
    const int status = S && dO ? KCP_OK : KCP_NO_MEMORY;
    if (!status && a->pass == KCP_BACKWARD) {
        spike_clear(a);
        memset(a->dW_alpha, 0, sizeof(double) * W);
        memset(a->dw_beta, 0, sizeof(double) * a->HV * a->D);
    }
    double *dS = S ? S + (a->T + 1) * KV : NULL;
    for (int j = 0; j < a->N * a->HV && !status; j++)
        head(a, j, S, dS, dS + KV, dO);
    free(S); free(dO);
    return status;
}
