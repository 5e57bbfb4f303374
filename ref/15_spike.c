/* 15_spike.c -- the gates and the map of one Spike-KDA token, and the adjoints of both.
 * Book: chapter 15. */
#include "15_scan.h"
#include "sigmoid.h"

#include <string.h>

int spike_dropped(const struct kcp_scan *a, int64_t t)
{
    return a->drop ? a->drop[t] : 0;
}

/* alpha_i = sigma(alpha_base_i + sum_d W_id spike_d)
 * beta    = sigma(beta_base + sum_d w_d spike_d)
 * A masked token has alpha = 1 and beta = 0. */
static void gates(const struct kcp_scan *a, int64_t t, int n, struct spike_token *x)
{
    const int HV = a->HV, K = a->K, D = a->D;
    const double (*alpha_base)[HV][K] = a->alpha_base, (*beta_base)[HV] = a->beta_base;
    const double (*W)[D] = (const void *)x->W;
    //> gates
    double b = beta_base[t][n];
    for (int d = 0; d < D; d++) b += x->w[d] * x->spike[d];
    x->beta = x->acts ? sigmoid(b) : 0;
    for (int i = 0; i < K; i++) {
        double y = alpha_base[t][n][i];
        for (int d = 0; d < D; d++) y += W[i][d] * x->spike[d];
        x->alpha[i] = x->acts ? sigmoid(y) : 1;
    }
    //< gates
}

static double *at(const void *p, int64_t numbers)
{
    return p ? (double *)p + numbers : NULL;
}

struct spike_token spike_token(const struct kcp_scan *a, int64_t t, int n,
                               const double *dO, double *dW, double *dw,
                               double *alpha)
{
    const int K = a->K, V = a->V, D = a->D;
    const int64_t m = t * a->H + n / (a->HV / a->H), row = t * a->HV + n;
    const int dropped = spike_dropped(a, t), back = a->pass == KCP_BACKWARD;
    struct spike_token x = {
        .K = K, .V = V, .D = D, .emits = !dropped,
        .acts = !dropped && (!a->active || a->active[row]),
        .q = at(a->q, m * K), .k = at(a->k, m * K), .v = at(a->v, row * V),
        .spike = at(a->spike, row * D), .W = at(a->W_alpha, (int64_t)n * K * D),
        .w = at(a->w_beta, n * D), .dO = at(dO, row * V), .alpha = alpha };
    if (back) {
        x.dq = at(a->dq, m * K); x.dk = at(a->dk, m * K); x.dv = at(a->dv, row * V);
        x.dspike = at(a->dspike, row * D); x.dbeta_base = at(a->dbeta_base, row);
        x.dalpha_base = at(a->dalpha_base, row * K);
        x.dW = at(dW, (int64_t)n * K * D);
        x.dw = at(dw, n * D);
    }
    gates(a, t, n, &x);
    return x;
}

/* S <- diag(alpha) S;  e = v - S^T k;  S <- S + beta k e^T */
void spike_step(const struct spike_token *x, double *S)
{
    const int K = x->K, V = x->V;
    double e[V];
    memcpy(e, x->v, sizeof e);
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++)
            e[v] -= (S[i * V + v] *= x->alpha[i]) * x->k[i];
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) S[i * V + v] += x->beta * x->k[i] * e[v];
}

/* o = S^T q */
void spike_read(const struct spike_token *x, const double *S, double *o)
{
    memset(o, 0, sizeof *o * x->V);
    for (int i = 0; i < x->K; i++)
        for (int v = 0; v < x->V; v++) o[v] += S[i * x->V + v] * x->q[i];
}

/* dS += q dO^T;  z = dS^T k;  dS <- diag(alpha) (dS - beta k z^T) */
void spike_back(const struct spike_token *x, double *dS)
{
    const int K = x->K, V = x->V;
    double z[V];
    memset(z, 0, sizeof z);
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            dS[i * V + v] += x->emits ? x->q[i] * x->dO[v] : 0;
            z[v] += dS[i * V + v] * x->k[i];
        }
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++)
            dS[i * V + v] = x->alpha[i] * (dS[i * V + v] - x->beta * x->k[i] * z[v]);
}

/* Adjoint of the gates, where dpre is the gradient of the argument of sigma:
 *   dpre_i = dalpha_i alpha_i (1 - alpha_i)      dpre_beta = dbeta beta (1 - beta)
 *   dW_id += dpre_i spike_d      dspike_d = sum_i dpre_i W_id + dpre_beta w_d */
static void gates_back(const struct spike_token *x, const double *dalpha, double dbeta)
{
    const double b = x->acts ? dbeta * x->beta * (1 - x->beta) : 0;
    *x->dbeta_base = b;
    for (int d = 0; d < x->D; d++) {
        x->dspike[d] = b * x->w[d];
        x->dw[d] += b * x->spike[d];
    }
    for (int i = 0; i < x->K; i++) {
        const double y = x->acts ? dalpha[i] * x->alpha[i] * (1 - x->alpha[i]) : 0;
        x->dalpha_base[i] = y;
        for (int d = 0; d < x->D; d++) {
            x->dspike[d] += y * x->W[i * x->D + d];
            x->dW[i * x->D + d] += y * x->spike[d];
        }
    }
}

/* With S_d = diag(alpha) S, e = v - S_d^T k, F = dS + q dO^T, z = F^T k:
 *   dq = S' dO, S' = S_d + beta k e^T      dbeta = e . z        dv = beta z
 *   dk = beta (F e - S_d z)                dalpha_i = sum_v (F - beta k z^T) S */
void spike_gradients(const struct spike_token *x, const double *S, const double *dS)
{
    const int K = x->K, V = x->V;
    double e[V], z[V], F[V], dalpha[K], dbeta = 0;
    memset(z, 0, sizeof z);
    for (int v = 0; v < V; v++) e[v] = x->v[v];
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            e[v] -= x->alpha[i] * S[i * V + v] * x->k[i];
            z[v] += x->k[i] * (dS[i * V + v] + (x->emits ? x->q[i] * x->dO[v] : 0));
        }
    for (int v = 0; v < V; v++) {
        dbeta += e[v] * z[v];
        x->dv[v] = x->beta * z[v];
    }
    for (int i = 0; i < K; i++) {
        const double b = x->beta * x->k[i];
        double dq = 0, dk = 0, da = 0;
        for (int v = 0; v < V; v++) {
            const double Sd = x->alpha[i] * S[i * V + v];
            F[v] = dS[i * V + v] + (x->emits ? x->q[i] * x->dO[v] : 0);
            dq += x->emits ? (Sd + b * e[v]) * x->dO[v] : 0;
            dk += F[v] * e[v] - Sd * z[v];
            da += (F[v] - b * z[v]) * S[i * V + v];
        }
        x->dq[i] += dq;
        x->dk[i] += x->beta * dk;
        dalpha[i] = da;
    }
    gates_back(x, dalpha, dbeta);
}

void spike_clear(const struct kcp_scan *a)
{
    const size_t n = sizeof(double) * a->T * a->H * a->K;
    if (n) {
        memset(a->dq, 0, n);
        memset(a->dk, 0, n);
    }
}
