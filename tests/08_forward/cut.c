/* cut.c -- computes a rank's map and applies other ranks' maps, with deliberate errors.
 * Book: chapter 08. */
#include "wrong.h"

#include <math.h>
#include <string.h>

/* Returns kg[t][n][i]. `last` is the last token of t's chunk. */
static double key(const struct fore *x, int64_t t, int64_t last, int n, int i)
{
    const struct kcp_forward *a = x->a;
    const int H = a->H, HV = a->HV, K = a->K;
    const double (*kg)[HV][K] = (void *)x->kg, (*k)[H][K] = (void *)x->k;
    const double (*G)[HV] = (void *)x->G;
    if (a->model == KCP_KDA) return kg[t][n][i];
    return k[t][n / (HV / H)][i] * (x->f & UNGATED ? 1 : exp2(G[last][n] - G[t][n]));
}

/* Applies one chunk to columns [c0,c1) of X [K,ld]. In columns c < V, also adds
 * `u`. If pre is 1, X is a map, and x->f selects errors. UNGATED acts always. */
static void chunk(const struct fore *x, int n, int64_t t0, int64_t t1, int c0, int c1,
                  int ld, double *X_, double *row, int pre)
{
    const struct kcp_forward *a = x->a;
    const int HV = a->HV, K = a->K, V = a->V, KG = a->KG, f = pre ? x->f : 0;
    const double (*w)[HV][K] = (void *)x->w, (*u)[HV][V] = (void *)x->u;
    const double (*G)[HV][KG] = (void *)x->G;
    const int64_t by = f & STALE_GATE && t1 - t0 > 1 ? t1 - 2 : t1 - 1;
    double (*X)[ld] = (double (*)[ld])X_, (*v_new)[ld] = (double (*)[ld])row;

    for (int i = 0; i < K && f & DECAY_FIRST; i++)
        for (int v = c0; v < c1; v++) X[i][v] *= exp2(G[by][n][KG == 1 ? 0 : i]);
    for (int64_t t = t0; t < t1; t++)
        for (int v = c0; v < c1; v++) {
            v_new[t - t0][v] = v < V ? u[t][n][v] : 0;
            for (int i = 0; i < K; i++) v_new[t - t0][v] -= w[t][n][i] * X[i][v];
        }
    for (int i = 0; i < K; i++)
        for (int v = c0; v < c1; v++) {
            const int done = f & DECAY_FIRST || (f & M_DECAY && v >= V);
            if (!done) X[i][v] *= exp2(G[by][n][KG == 1 ? 0 : i]);
            for (int64_t t = t0; t < t1; t++)
                X[i][v] += key(x, t, t1 - 1, n, i) * v_new[t - t0][v];
        }
}

/* Applies token t to X, but computes the delta from the undecayed state (errata 1). */
static void undecayed(const struct fore *x, int n, int64_t t, int ld, double *X_)
{
    const struct kcp_forward *a = x->a;
    const int H = a->H, HV = a->HV, K = a->K, V = a->V, KG = a->KG, m = n / (HV / H);
    const double (*k)[H][K] = (void *)x->k, (*g)[HV][KG] = (void *)x->g;
    const double (*v_)[HV][V] = a->v, (*beta)[HV] = (void *)x->beta;
    double (*X)[ld] = (double (*)[ld])X_;
    for (int v = 0; v < ld; v++) {
        double e = v < V ? v_[t][n][v] : 0;
        for (int i = 0; i < K; i++) e -= k[t][m][i] * X[i][v];
        for (int i = 0; i < K; i++)
            X[i][v] = exp(g[t][n][KG == 1 ? 0 : i]) * X[i][v] +
                      beta[t][n] * k[t][m][i] * e;
    }
}

/* Computes the map of segment s from two halves of s, with one error. WINDOWS_TURNED
 * applies the second half first. WINDOW_LEFT omits the second half. With WINDOW_EARLY,
 * each chunk of the second half uses the previous chunk's factors. */
static void windows(const struct fore *x, int n, int s, int ld, double *X, double *row)
{
    const int64_t begin = x->ctx->cu[s], end = x->ctx->cu[s + 1], C = x->a->C;
    const int64_t half = begin + (end - begin + C - 1) / C / 2 * C;
    const int turned = (x->f & WINDOWS_TURNED) != 0;
    for (int i = 0; i < 2; i++) {
        const int later = i != turned;
        const int64_t stop = later ? end : half;
        if (later && x->f & WINDOW_LEFT) continue;
        for (int64_t t = later ? half : begin; t < stop; t += C) {
            const int early = later && x->f & WINDOW_EARLY && t > begin;
            const int64_t t0 = early ? t - C : t, t1 = t + C < stop ? t + C : stop;
            chunk(x, n, t0, early ? t : t1, 0, ld, ld, X, row, 1);
        }
    }
}

void fore_advance(const struct fore *x, int n, int s, int c0, int c1, int ld,
                    double *X, double *row, int pre)
{
    const struct kcp_forward *a = x->a;
    const int *cu = x->ctx->cu;
    int64_t t = cu[s];
    if (pre && x->f & (WINDOWS_TURNED | WINDOW_LEFT | WINDOW_EARLY))
        return windows(x, n, s, ld, X, row);
    if (pre && x->f & UNDECAYED)
        for (; t < cu[s + 1]; t++) undecayed(x, n, t, ld, X);
    if (pre && x->f & LAST_CHUNK && t < cu[s + 1])
        t += (cu[s + 1] - 1 - t) / a->C * a->C;
    for (; t < cu[s + 1]; t += a->C) {
        const int64_t end = t + a->C < cu[s + 1] ? t + a->C : cu[s + 1];
        chunk(x, n, t, end, c0, c1, ld, X, row, pre);
    }
}

void fore_state(const struct fore *x, int out, int n, int head, double *S_, int ld)
{
    const struct kcp_forward *a = x->a;
    const int K = a->K, V = a->V, turned = a->layout == KCP_VK && !(x->f & NO_LAYOUT);
    const double *h0 = a->h0;
    double (*S)[ld] = (double (*)[ld])S_, *ht = a->ht;
    const int64_t at = ((int64_t)n * a->HV + head) * K * V;
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            const int64_t e = at + (turned ? (int64_t)v * K + i : (int64_t)i * V + v);
            if (out) ht[e] = S[i][v];
            else S[i][v] = h0 && !(x->f & NO_H0) ? h0[e] : 0;
        }
}

/* Applies this rank's segments of the rank's last sequence to [S0 | I]. S0 is h0 if the
 * sequence starts on this rank, else 0. */
void fore_describe(const struct fore *x, double *map, double *row)
{
    const struct kcp_forward *a = x->a;
    const int K = a->K, V = a->V, ld = V + K, NS = a->NS, f = x->f;
    int s0 = f & FIRST_SEQ ? 0 : NS - 1, s1 = s0;
    while (NS && s0 > 0 && x->seg[s0 - 1].n == x->seg[s0].n) s0--;
    while (NS && s1 < NS && x->seg[s1].n == x->seg[s0].n) s1++;
    for (int n = 0; n < a->HV; n++) {
        double *X = map + (int64_t)n * K * ld;
        for (int i = 0; i < K * ld; i++) X[i] = 0;
        if (NS && x->seg[s0].first && !(f & H0_LATE))
            fore_state(x, 0, x->seg[s0].n, n, X, ld);
        for (int i = 0; i < K * ld && f & H0_TWICE; i++) X[i] *= 2;
        for (int i = 0; i < K; i++)
            X[i * ld + V + i] = !(NS == 0 && f & EMPTY_IS_ZERO);
        for (int s = s0; s < s1; s++) fore_advance(x, n, s, 0, ld, ld, X, row, 1);
    }
}

/* Computes S <- M_j S + h_j for the earlier ranks j in order. */
void fore_fold(const struct fore *x, const double *all, int n, double *S_,
                 double *next_)
{
    const struct kcp_forward *a = x->a;
    const int HV = a->HV, K = a->K, V = a->V, f = x->f, r = a->r;
    const int start = r - x->ctx->pre_num_ranks;
    const int far = start - (f & ONE_MORE && start > 0);
    const double (*map)[HV][K][V + K] = (void *)all;
    double (*S)[V] = (double (*)[V])S_, (*next)[V] = (double (*)[V])next_;
    memset(S_, 0, sizeof(double) * K * V);
    for (int e = far; e < r - (f & ONE_LESS ? 1 : 0); e++) {
        const int j = f & OUTWARD ? far + r - 1 - e : e;
        const int m = f & WRONG_HEAD ? n / (HV / a->H) : n;
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) {
                next[i][v] = map[j][m][i][v];
                for (int p = 0; p < K && !(f & NO_M) && e > far; p++)
                    next[i][v] += (f & TURNED ? map[j][m][p][V + i]
                                              : map[j][m][i][V + p]) * S[p][v];
            }
        memcpy(S_, next_, sizeof(double) * K * V);
    }
}
