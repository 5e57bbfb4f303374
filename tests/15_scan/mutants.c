/* mutants.c -- computes Spike-KDA with one error per flag, and correctly without flag.
 * Book: chapter 15.
 *
 * Each rank gathers the whole batch, computes all tokens and keeps its own rows. Flags
 * also select errors that a wrong exchange between ranks would cause. */
#include "mutants.h"

struct token {
    const double *q, *k, *v, *spike;
    double beta;
    int dropped, acts, emits;
};

static struct token token(const struct whole *w, int64_t t, int n, double *alpha)
{
    const struct kcp_scan *a = &w->a;
    const int f = w->flags, K = a->K, D = a->D, HV = a->HV;
    const int m = f & WRONG_GROUP ? n % a->H : n / (HV / a->H);
    const int64_t row = t * HV + n;
    const double (*W)[D] = (void *)((double *)a->W_alpha + (int64_t)n * K * D);
    const double *wb = (double *)a->w_beta + (f & ONE_BETA ? 0 : n) * D;
    struct token x = { w->x[Q] + (t * a->H + m) * K, w->x[KEY] + (t * a->H + m) * K,
                       w->x[VAL] + row * a->V, w->x[SPIKE] + row * D, 0,
                       a->drop && w->x[DROP][t], 0, 0 };
    const int silent = a->active && !w->x[ACTIVE][row] && !(f & TALKS);
    x.acts = !x.dropped && !silent;
    x.emits = (!x.dropped || f & DROP_EMITS) && !(silent && f & SILENT_MUTE);
    double b = w->x[BBASE][row];
    for (int d = 0; d < D && !(f & NO_SPIKES); d++) b += wb[d] * x.spike[d];
    x.beta = x.acts ? 1 / (1 + exp(-b)) : 0;
    for (int i = 0; i < K; i++) {
        double y = w->x[ABASE][row * K + i];
        for (int d = 0; d < D && !(f & NO_SPIKES); d++)
            y += W[i][d] * x.spike[f & SPIKES_TURNED ? D - 1 - d : d];
        const int decays = x.acts || (f & DROP_DECAYS && x.dropped);
        alpha[i] = decays ? 1 / (1 + exp(-y)) : 1;
    }
    return x;
}

static void forward(const struct whole *w, int s, int n)
{
    const int K = w->a.K, V = w->a.V, HV = w->a.HV, f = w->flags;
    const int64_t *cu = w->a.plan->cu_seqlens;
    for (int64_t t = cu[s]; t < cu[s + 1]; t++) {
        double (*S)[V] = (void *)(w->S + (t - cu[s] + 1) * K * V), e[V];
        double *o = w->o + (t * HV + n) * V;
        const struct token x = token(w, t, n, w->alpha);
        memcpy(S, (double *)S - K * V, 8 * K * V);
        for (int v = 0; v < V; v++) e[v] = x.v[v];
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) {
                const double before = S[i][v];
                S[i][v] *= w->alpha[i];
                e[v] -= x.k[i] * (f & UNDECAYED ? before : S[i][v]);
            }
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) S[i][v] += x.beta * x.k[i] * e[v];
        if (f & REPEAT_LOCAL && is_cut(w, t)) memset(w->last, 0, 8 * V);
        for (int v = 0; v < V && x.emits; v++) {
            w->last[v] = 0;
            for (int i = 0; i < K; i++)
                w->last[v] += S[i][v] * x.q[i] * (f & SCALED ? 1 / sqrt(K) : 1);
        }
        for (int v = 0; v < V; v++)
            o[v] = x.dropped && f & DROP_ZERO ? 0 : w->last[v];
        if (f & LAST_IS_LAST && x.dropped) memset(w->last, 0, 8 * V);
    }
}

static void through_gates(const struct whole *w, const struct token *x, int64_t t,
                          int n, const double *dalpha, double dbeta)
{
    const struct kcp_scan *a = &w->a;
    const int K = a->K, D = a->D, f = w->flags;
    const int64_t begin = a->plan->cuts[a->r], own = t - begin, row = own * a->HV + n;
    const int mine = t >= begin && own < a->T;
    const double *W = (double *)a->W_alpha + (int64_t)n * K * D;
    const double *wb = (double *)a->w_beta + n * D;
    double *dW = (double *)a->dW_alpha + (int64_t)n * K * D, ds[D];
    const double slope = f & NO_SIGMA ? 1 : x->beta * (1 - x->beta);
    const double b = x->acts ? dbeta * slope : 0;
    for (int d = 0; d < D; d++) {
        ds[d] = f & NO_BETA_SPIKE ? 0 : b * wb[d];
        if (mine || !(f & LOCAL_SUM))
            ((double *)a->dw_beta)[n * D + d] += b * x->spike[d];
    }
    for (int i = 0; i < K; i++) {
        const double sg = f & NO_SIGMA ? 1 : w->alpha[i] * (1 - w->alpha[i]);
        const double y = x->acts ? dalpha[i] * sg : 0;
        for (int d = 0; d < D; d++) {
            ds[d] += y * W[i * D + d];
            if (mine || !(f & LOCAL_SUM)) dW[i * D + d] += y * x->spike[d];
        }
        if (mine) ((double *)a->dalpha_base)[row * K + i] = y;
    }
    if (!mine) return;
    ((double *)a->dbeta_base)[row] = b;
    memcpy((double *)a->dspike + row * D, ds, 8 * D);
}

/* Computes the adjoint of S' = D + beta k (v - D^T k)^T, where D = diag(alpha) S. */
static void adjoint(const struct whole *w, int64_t t, int n, const double *S_)
{
    const struct kcp_scan *a = &w->a;
    const int K = a->K, V = a->V, m = n / (a->HV / a->H);
    const int64_t own = t - a->plan->cuts[a->r];
    const int mine = own >= 0 && own < a->T;
    const double (*S)[V] = (void *)S_;
    double (*dS)[V] = (void *)w->dS, e[V], z[V], da[K], dbeta = 0;
    const struct token x = token(w, t, n, w->alpha);
    double *dq = (double *)a->dq + (own * a->H + m) * K;
    double *dk = (double *)a->dk + (own * a->H + m) * K;
    for (int v = 0; v < V; v++) {
        e[v] = x.v[v];
        z[v] = 0;
    }
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) e[v] -= w->alpha[i] * S[i][v] * x.k[i];
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            const double after = w->alpha[i] * S[i][v] + x.beta * x.k[i] * e[v];
            if (mine && x.emits) dq[i] += after * w->dO[v];
            if (x.emits) dS[i][v] += x.q[i] * w->dO[v];
            z[v] += dS[i][v] * x.k[i];
        }
    for (int v = 0; v < V; v++) {
        dbeta += z[v] * e[v];
        if (mine) ((double *)a->dv)[(own * a->HV + n) * V + v] = x.beta * z[v];
    }
    for (int i = 0; i < K; i++) {
        da[i] = 0;
        for (int v = 0; v < V; v++) {
            const double Sd = w->alpha[i] * S[i][v];
            if (mine) dk[i] += x.beta * (dS[i][v] * e[v] - Sd * z[v]);
            dS[i][v] -= x.beta * x.k[i] * z[v];
            da[i] += dS[i][v] * S[i][v];
            dS[i][v] *= w->alpha[i];
        }
    }
    through_gates(w, &x, t, n, da, dbeta);
}

static void backward(const struct whole *w, int s, int n)
{
    const int K = w->a.K, V = w->a.V, f = w->flags;
    const int64_t *cu = w->a.plan->cu_seqlens;
    for (int64_t t = cu[s + 1] - 1; t >= cu[s]; t--) {
        const double *dO = w->x[DO] + (t * w->a.HV + n) * V;
        const int dropped = w->a.drop && w->x[DROP][t];
        if (f & OWED_LOCAL && is_cut(w, t + 1)) memset(w->last, 0, 8 * V);
        for (int v = 0; v < V; v++) {
            w->last[v] += dropped && f & NOT_OWED ? 0 : dO[v];
            w->dO[v] = w->last[v];
            if (!dropped) w->last[v] = 0;
        }
        adjoint(w, t, n, w->S + (t - cu[s]) * K * V);
    }
}

static void turn(const struct whole *w, int out, const double *from, double *to)
{
    struct kcp_call one;
    memcpy(&one, &w->a, sizeof one);
    one.HV = 1;
    ref_state(&one, out, from, to);
}

static void one_head(struct whole *w, int s, int n)
{
    const struct kcp_scan *a = &w->a;
    const struct kcp_plan *p = a->plan;
    const int64_t KV = (int64_t)a->K * a->V, j = (int64_t)s * a->HV + n, V = a->V;
    const int64_t len = p->cu_seqlens[s + 1] - p->cu_seqlens[s];
    turn(w, 0, w->h0 + j * KV, w->S);
    if (!(w->flags & RUNS_ON && s)) memcpy(w->last, w->o0 + j * V, 8 * V);
    forward(w, s, n);
    if (a->pass == KCP_FORWARD) {
        if (p->ht_rank[s] != a->r) return;
        turn(w, 1, w->S + len * KV, (double *)a->ht + j * KV);
        memcpy((double *)a->ot + j * V, w->last, 8 * V);
        return;
    }
    turn(w, 0, w->dht + j * KV, w->dS);
    memcpy(w->last, w->dot + j * V, 8 * V);
    backward(w, s, n);
    if (p->h0_rank[s] != a->r) return;
    turn(w, 1, w->dS, (double *)a->dh0 + j * KV);
    memcpy((double *)a->do0 + j * V, w->last, 8 * V);
}

static int mutate(void *args, int flags)
{
    struct whole w = { .a = *(struct kcp_scan *)args, .flags = flags };
    const struct kcp_scan *a = &w.a;
    const int64_t T = a->plan->T;
    if (a->plan->scattered)                        /* rows are not in token order */
        return KCP_NA;
    const int64_t row = (int64_t)a->HV * (a->K + 3 * a->V + a->D + 2) + 1;
    const int64_t KV = (int64_t)a->K * a->V, N = 2 * (int64_t)(a->N + 1) * a->HV;
    double *workspace = calloc(T * (row + 2 * a->H * a->K + KV) + N * (KV + a->V) +
                               4 * KV + 4 * (a->K + a->V), sizeof *workspace);
    int status = workspace ? collect(&w, workspace) : KCP_NO_MEMORY;
    if (!status && a->pass) {
        memset(a->dq, 0, 8 * a->T * a->H * a->K);
        memset(a->dk, 0, 8 * a->T * a->H * a->K);
        memset(a->dW_alpha, 0, 8 * (int64_t)a->HV * a->K * a->D);
        memset(a->dw_beta, 0, 8 * a->HV * a->D);
    }
    for (int n = 0; n < a->HV && !status; n++)
        for (int s = 0; s < a->N; s++) one_head(&w, s, n);
    if (!status && !a->pass)
        memcpy(a->o, w.o + a->plan->cuts[a->r] * a->HV * a->V, 8 * a->T * a->HV * a->V);
    free(workspace);
    return status;
}

#define MUTANT_STAGE spike_mutant, "15_scan", "token by token", mutate
MUTANTS(MUTANT)
MUTANT_TWIN
