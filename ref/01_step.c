/* 01_step.c -- computes the gated delta rule token by token, and its adjoint.
 * Book: chapter 01.
 *
 * The tests compare the chunked passes (chapters 04 to 13) with this recurrence. */
#include "checked.h"
#include "ref.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Copies a caller's state [K,V] or [V,K] to S [K,V]. If `from` is NULL, sets S to 0. */
static void read_state(int K, int V, enum kcp_layout layout, const double *from,
                       double S[K][V])
{
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            const int at = layout == KCP_KV ? i * V + v : v * K + i;
            S[i][v] = from ? from[at] : 0;
        }
}

static void write_state(int K, int V, enum kcp_layout layout, double S[K][V],
                        double *to)
{
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++)
            to[layout == KCP_KV ? i * V + v : v * K + i] = S[i][v];
}

/* Computes one token of one head (the argument `x` is the token's v):
 *   S <- diag(exp g) S      e = v - S^T k      S <- S + k (beta e)^T
 * If Sd [K,V] is not NULL, stores in Sd the state between decay and update, because
 * the adjoint needs this state. e [V] is always written. */
static void step(int K, int V, int KG, double S[K][V], const double *k, const double *x,
                 const double *g, double beta, double *Sd, double *e)
{
    //> step
    for (int i = 0; i < K; i++) {
        const double decay = exp(g[KG == 1 ? 0 : i]);
        for (int v = 0; v < V; v++) S[i][v] *= decay;
    }
    for (int v = 0; v < V; v++) e[v] = x[v];
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) e[v] -= S[i][v] * k[i];

    if (Sd) memcpy(Sd, S, sizeof(double) * K * V);
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) S[i][v] += beta * k[i] * e[v];
    //< step
}

/* Computes o_t = S_t^T (scale q_t) and the last state of one head of one sequence. */
static int head_forward(const struct kcp_step *a, int n, int head)
{
    const int H = a->H, HV = a->HV, K = a->K, V = a->V, KG = a->KG, m = head / (HV / H);
    const int64_t *cu = a->cu_seqlens;
    const double (*q)[H][K] = a->q, (*k)[H][K] = a->k, (*x)[HV][V] = a->v;
    const double (*g)[HV][KG] = a->g, (*beta)[HV] = a->beta;
    const double (*h0)[HV][K * V] = a->h0;
    double (*o)[HV][V] = a->o, (*ht)[HV][K * V] = a->ht;
    double (*S)[V] = malloc(sizeof(double) * K * V), *e = malloc(sizeof(double) * V);

    if (S && e) {
        read_state(K, V, a->layout, h0 ? h0[n][head] : NULL, S);
        for (int64_t t = cu[n]; t < cu[n + 1]; t++) {
            step(K, V, KG, S, k[t][m], x[t][head], g[t][head], beta[t][head], NULL, e);
            for (int v = 0; v < V; v++) o[t][head][v] = 0;
            for (int i = 0; i < K; i++)
                for (int v = 0; v < V; v++)
                    o[t][head][v] += S[i][v] * (a->scale * q[t][m][i]);
        }
        write_state(K, V, a->layout, S, ht[n][head]);
    }
    free(S); free(e);
    return S && e ? KCP_OK : KCP_NO_MEMORY;
}

/* The values of one token that the adjoint reads. S is the state after the token.
 * step() computes Sd and e. */
struct trace { void *S, *Sd, *e; };

/* Computes the adjoint of one token. On entry dS is the gradient of S_t through later
 * tokens; on return dS is the gradient of S_{t-1}:
 *   dS += scale q do^T          dq = scale S do
 *   dbeta = e . dS^T k          de = beta dS^T k     dv = de
 *   dk = beta dS e - Sd de      dSd = dS - k de^T
 *   dg = sum_v dSd Sd           dS <- diag(exp g) dSd */
static void step_adjoint(const struct kcp_step *a, int64_t t, int head,
                         const struct trace *z, void *dS_, double *de)
{
    const int H = a->H, HV = a->HV, K = a->K, V = a->V, KG = a->KG, m = head / (HV / H);
    const double (*S)[V] = z->S, (*Sd)[V] = z->Sd, *e = z->e;
    const double (*qs)[H][K] = a->q, (*ks)[H][K] = a->k, (*gs)[HV][KG] = a->g;
    const double (*douts)[HV][V] = a->do_, (*betas)[HV] = a->beta;
    double (*dqs)[H][K] = a->dq, (*dks)[H][K] = a->dk, (*dv)[HV][V] = a->dv;
    double (*dgs)[HV][KG] = a->dg, (*dbetas)[HV] = a->dbeta, (*dS)[V] = dS_;
    const double *q = qs[t][m], *k = ks[t][m], *g = gs[t][head], *dout = douts[t][head];
    const double beta = betas[t][head];
    double *dq = dqs[t][m], *dk = dks[t][m], *dg = dgs[t][head], dbeta = 0;

    for (int v = 0; v < V; v++) de[v] = 0;
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            dq[i] += a->scale * S[i][v] * dout[v];
            dS[i][v] += a->scale * q[i] * dout[v];
            de[v] += dS[i][v] * k[i];
        }
    for (int v = 0; v < V; v++) {
        dbeta += e[v] * de[v];
        de[v] *= beta;
    }
    for (int i = 0; i < K; i++) {
        const double decay = exp(g[KG == 1 ? 0 : i]);
        for (int v = 0; v < V; v++) {
            dk[i] += beta * dS[i][v] * e[v] - Sd[i][v] * de[v];
            dS[i][v] -= k[i] * de[v];
            dg[KG == 1 ? 0 : i] += dS[i][v] * Sd[i][v];
            dS[i][v] *= decay;
        }
    }
    memcpy(dv[t][head], de, sizeof(double) * V);
    dbetas[t][head] = dbeta;
}

/* Runs tokens t0 .. t1-1 of one head from state S. If z is not NULL, z receives one
 * trace per token. */
static void replay(const struct kcp_step *a, int head, int64_t t0, int64_t t1,
                   void *S, double *e, struct trace *z)
{
    const int H = a->H, HV = a->HV, K = a->K, V = a->V, KG = a->KG, m = head / (HV / H);
    const double (*k)[H][K] = a->k, (*x)[HV][V] = a->v;
    const double (*g)[HV][KG] = a->g, (*beta)[HV] = a->beta;
    for (int64_t t = t0; t < t1; t++) {
        struct trace *y = z ? &z[t - t0] : NULL;
        step(K, V, KG, S, k[t][m], x[t][head], g[t][head], beta[t][head],
             y ? y->Sd : NULL, y ? y->e : e);
        if (y) memcpy(y->S, S, sizeof(double) * K * V);
    }
}

/* Computes the backward pass of one head of one sequence. First recomputes all states
 * and keeps every B-th state, where B = ceil(sqrt(length)). Then recomputes the states
 * of B tokens at a time, last tokens first, so memory grows as sqrt(length). */
static int head_backward(const struct kcp_step *a, int n, int head)
{
    const int HV = a->HV, K = a->K, V = a->V;
    const int64_t *cu = a->cu_seqlens, T0 = cu[n], L = cu[n + 1] - T0;
    const int64_t B = L ? ceil(sqrt(L)) : 1, blocks = (L + B - 1) / B;
    const size_t kv = (size_t)K * V, one = 2 * kv + V;
    const double (*h0)[HV][kv] = a->h0, (*dht)[HV][kv] = a->dht;
    double (*dh0)[HV][kv] = a->dh0;
    double *kept = malloc(sizeof(double) * kv * (blocks + 1));
    double *store = malloc(sizeof(double) * one * B), *e = malloc(sizeof(double) * V);
    void *S = malloc(sizeof(double) * kv), *dS = malloc(sizeof(double) * kv);
    struct trace *z = malloc(sizeof *z * B);
    const int ok = kept && store && dS && S && e && z;

    if (ok) {
        for (int64_t j = 0; j < B; j++)
            z[j] = (struct trace){ store + j * one, store + j * one + kv,
                                   store + j * one + 2 * kv };
        read_state(K, V, a->layout, h0 ? h0[n][head] : NULL, S);
        for (int64_t b = 0; b < blocks; b++) {
            memcpy(kept + b * kv, S, sizeof(double) * kv);
            const int64_t t0 = T0 + b * B, t1 = b + 1 < blocks ? t0 + B : T0 + L;
            replay(a, head, t0, t1, S, e, NULL);
        }
        read_state(K, V, a->layout, dht ? dht[n][head] : NULL, dS);
        for (int64_t b = blocks - 1; b >= 0; b--) {
            const int64_t t0 = T0 + b * B, t1 = b + 1 < blocks ? t0 + B : T0 + L;
            replay(a, head, t0, t1, kept + b * kv, e, z);
            for (int64_t t = t1 - 1; t >= t0; t--)
                step_adjoint(a, t, head, &z[t - t0], dS, e);
        }
        write_state(K, V, a->layout, dS, dh0[n][head]);
    }
    free(kept); free(store); free(dS); free(S); free(e); free(z);
    return ok ? KCP_OK : KCP_NO_MEMORY;
}

/* Forward writes o [T,HV,V] and ht [N,HV,K,V]. Backward reads do_ and dht and writes dq
 * and dk [T,H,K] (sums over the value heads of a query/key head), dv, dg, dbeta and
 * dh0. An empty sequence has ht = h0 and dh0 = dht. */
int ref_step(struct kcp_step *a)
{
    const int refused = kcp_begin("01_step", KCP_HOST, a, NULL);
    if (refused) return refused;
    int status = KCP_OK;
    if (a->pass == KCP_BACKWARD && a->T) {
        memset(a->dq, 0, sizeof(double) * a->T * a->H * a->K);
        memset(a->dk, 0, sizeof(double) * a->T * a->H * a->K);
        memset(a->dg, 0, sizeof(double) * a->T * a->HV * a->KG);
    }
    for (int n = 0; n < a->N && !status; n++)
        for (int head = 0; head < a->HV && !status; head++)
            status = a->pass == KCP_FORWARD ? head_forward(a, n, head)
                                            : head_backward(a, n, head);
    return status;
}
