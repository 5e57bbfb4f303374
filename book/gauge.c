/* gauge.c -- runs the worked example; scales the state as the one-kernel forward does.
 * Book: chapter 18b. */
#include "example.h"

enum { STEP = 2 };

/* Writes running sums of n tokens' log2 decays to G's rows. Returns row 0. */
static const double *sum_gates(int t0, int n, double G[STEP][K])
{
    for (int i = 0; i < n; i++)
        for (int p = 0; p < K; p++)
            G[i][p] = ex_log2_decay[t0 + i][p] + (i ? G[i - 1][p] : 0);
    return G[0];
}

//> gauge
/* Computes a step of n tokens. S_hat: 2^a S on entry (a = G[0]), 2^next S on return. */
static void gauge_step(int t0, int n, const double next[K], double S_hat[K][V],
                       double out[STEP][V])
{
    double G[STEP][K], qf[STEP][K], kf[STEP][K], kb[STEP][K], v_new[STEP][V];
    const double *a = sum_gates(t0, n, G);
    for (int i = 0; i < n; i++)
        for (int p = 0; p < K; p++) {
            qf[i][p] = exp2(G[i][p] - a[p]) * ex_q[t0 + i][p];
            kf[i][p] = exp2(G[i][p] - a[p]) * ex_k[t0 + i][p];
            kb[i][p] = exp2(a[p] - G[i][p]) * ex_k[t0 + i][p];
        }
    for (int i = 0; i < n; i++)
        for (int v = 0; v < V; v++) {
            double found = 0, read = 0;
            for (int p = 0; p < K; p++) {
                found += kf[i][p] * S_hat[p][v];
                read += qf[i][p] * S_hat[p][v];
                for (int j = 0; j < i; j++) found += kf[i][p] * kb[j][p] * v_new[j][v];
            }
            v_new[i][v] = ex_beta[t0 + i] * (ex_v[t0 + i][v] - found);
            for (int p = 0; p < K; p++)
                for (int j = 0; j <= i; j++) read += qf[i][p] * kb[j][p] * v_new[j][v];
            out[i][v] = read;
        }
    for (int p = 0; p < K; p++)
        for (int v = 0; v < V; v++) {
            for (int i = 0; i < n; i++) S_hat[p][v] += kb[i][p] * v_new[i][v];
            S_hat[p][v] *= exp2(G[n - 1][p] - a[p] + next[p]);
        }
}
//< gauge

int main(void)
{
    double S_hat[K][V] = { { 0 } }, out[T][V], G[STEP][K];
    char name[16];
    recurrence(T);
    printf("== 18-gauge\n");
    for (int t = 0; t < T; t += STEP) {
        const int n = t + STEP < T ? STEP : T - t, after = t + n;
        snprintf(name, sizeof name, "S_hat, %d", t / STEP);
        const double zero[K] = { 0 };
        show(name, S_hat[0], K, V);
        const double *next = after < T ? sum_gates(after, 1, G) : zero;
        gauge_step(t, n, next, S_hat, out + t);
        show("o", out[t], n, V);
    }
    show("S", S_hat[0], K, V);
    same(out[0], o[0], T * V, "gauge: o");
    same(S_hat[0], ht[0], K * V, "gauge: S");
    return 0;
}
