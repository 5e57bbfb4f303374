/* shorter.c -- computes chapter 10's gradients, with a shorter formula for the adjoint
 * of (I + L)^-1.
 * Book: chapter 18c.
 *
 * The formula uses A^T dU instead of dA, w and u, but divides by beta. Chapter 13's
 * mutants therefore keep |beta| at 2^-40 or more (flag FLOOR). Sums over pairs of
 * rows use exact operands. Mutant UNROUNDED sums rounded operands, as the fast
 * kernels do, but then multiplies the sums by unrounded operands. */
#include "kcp.h"
#include "base/bf16.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_TURNED = 1, LAST_ROW = 2, UNROUNDED = 4, SPAN = 16, MOST_SPAN = 96 };

static double bf16(double x) { return bf16_value(bf16_of(x)); }

/* One chunk of value head n. Row i of every array belongs to the chunk's token i. */
struct short_chunk {
    const struct kcp_wy_backward *a;
    int n, m, c, rows, flags;
    int64_t t0;
    double *dv;                          /* [C,V] */
    double *B;                           /* beta dL [C,C] */
};

static double G_of(const struct short_chunk *x, int i, int d)
{
    const struct kcp_wy_backward *a = x->a;
    const double (*G)[a->HV][a->KG] = a->G;
    return G[x->t0 + i][x->n][a->KG == 1 ? 0 : d];
}

/* Computes dv = beta A^T dU and B = beta dL = -tril(dv v_new^T, -1). Also computes
 * dbeta, the diagonal of dv v_new^T divided by beta^2. */
static void solve(const struct short_chunk *x)
{
    const struct kcp_wy_backward *a = x->a;
    const int HV = a->HV, V = a->V, C = a->C, n = x->n;
    const double (*A)[HV][C] = a->A, (*dU)[HV][V] = a->dU, (*beta)[HV] = a->beta;
    const double (*v_new)[HV][V] = a->v_new;
    double (*out)[HV][V] = a->dv, (*dbeta)[HV] = a->dbeta, (*dv)[V] = (void *)x->dv;
    double (*B)[C] = (void *)x->B;

    for (int j = 0; j < x->rows; j++)
        for (int p = 0; p < V; p++) {
            double s = 0;
            for (int i = 0; i < x->rows; i++)
                s += dU[x->t0 + i][n][p] * (x->flags & NOT_TURNED
                                                ? A[x->t0 + j][n][i]
                                                : A[x->t0 + i][n][j]);
            out[x->t0 + j][n][p] = dv[j][p] = beta[x->t0 + j][n] * s;
        }
    for (int i = 0; i < x->rows; i++) {
        const double b = beta[x->t0 + i][n];
        for (int j = 0; j <= i; j++) {
            B[i][j] = 0;
            for (int p = 0; p < V; p++)
                B[i][j] -= dv[i][p] * v_new[x->t0 + j][n][p];
        }
        dbeta[x->t0 + i][n] = -B[i][i] / (b * b);
    }
}

/* Contains sums over pairs (i, j), j < i, for one row r and one channel: `q` and `k`
 * over pairs with i = r, `column` over pairs with j = r, and `dG` over both. */
struct sums { double q, k, column, dG; };

static void exact_pairs(const struct short_chunk *x, int d, struct sums *s)
{
    const struct kcp_wy_backward *a = x->a;
    const double (*q)[a->H][a->K] = a->q, (*k)[a->H][a->K] = a->k;
    const double (*dA)[a->HV][a->C] = a->dAqk, (*B)[a->C] = (void *)x->B;

    for (int i = 0; i < x->rows; i++)
        for (int j = 0; j < i; j++) {
            const double D = exp2(G_of(x, i, d) - G_of(x, j, d));
            const double wq = dA[x->t0 + i][x->n][j] * D, wk = B[i][j] * D;
            const double qi = q[x->t0 + i][x->m][d], ki = k[x->t0 + i][x->m][d];
            const double kj = k[x->t0 + j][x->m][d], pair = wq * qi + wk * ki;
            s[i].q += wq * kj;
            s[i].k += wk * kj;
            s[j].column += pair;
            s[i].dG += pair * kj;
            s[j].dG -= pair * kj;
        }
}

/* Computes the sums for mutant UNROUNDED, from operands scaled by powers of two and
 * rounded to bf16. A pair's terms in dG of rows i and j must cancel. Here these
 * terms differ, because sums of rounded operands are multiplied by unrounded
 * operands. Returns 0 if G falls by more than MOST_SPAN in SPAN rows. */
static int rounded_pairs(const struct short_chunk *x, int d, struct sums *s)
{
    const struct kcp_wy_backward *a = x->a;
    const double (*q)[a->H][a->K] = a->q, (*k)[a->H][a->K] = a->k;
    const double (*dA)[a->HV][a->C] = a->dAqk, (*B)[a->C] = (void *)x->B;
    double anchor[64];

    for (int i = 0; i < x->rows; i++) {
        const int first = i / SPAN * SPAN, most = first + SPAN;
        const int last = most < x->rows ? most - 1 : x->rows - 1;
        const double before = first ? G_of(x, first - 1, d) : 0;
        if (before - G_of(x, last, d) > MOST_SPAN) return 0;
        anchor[i] = rint(0.5 * (before + G_of(x, last, d)));
    }
    for (int i = 0; i < x->rows; i++)
        for (int j = 0; j < i; j++) {
            const double f = exp2(G_of(x, i, d) - anchor[i]);
            const double e = exp2(anchor[j] - G_of(x, j, d));
            const double between = exp2(anchor[i] - anchor[j]);
            const double qi = f * q[x->t0 + i][x->m][d];
            const double ki = f * k[x->t0 + i][x->m][d];
            const double kj = e * k[x->t0 + j][x->m][d];
            const double wq = bf16(dA[x->t0 + i][x->n][j]) * between;
            const double wk = bf16(B[i][j]) * between;
            const double column = wq * bf16(qi) + wk * bf16(ki);
            s[i].q += f * wq * bf16(kj);
            s[i].k += f * wk * bf16(kj);
            s[j].column += e * column;
            s[i].dG += (wq * qi + wk * ki) * bf16(kj);
            s[j].dG -= column * kj;
        }
    return 1;
}

/* Contains dot products over V: P = scale dO h^T, Q = -dv h^T, W = v_new dS^T. */
struct through { double P, Q, W; };

static struct through through_states(const struct short_chunk *x, int i, int d)
{
    const struct kcp_wy_backward *a = x->a;
    const int HV = a->HV, V = a->V, n = x->n;
    const double (*dO)[HV][V] = a->do_, (*v_new)[HV][V] = a->v_new;
    const double (*dv)[V] = (void *)x->dv;
    const int64_t state = (((int64_t)x->c * HV + n) * a->K + d) * V;
    const double *h = (const double *)a->h + state, *dS = (const double *)a->dh + state;
    struct through y = { 0 };
    for (int p = 0; p < V; p++) {
        y.P += a->scale * dO[x->t0 + i][n][p] * h[p];
        y.Q -= dv[i][p] * h[p];
        y.W += v_new[x->t0 + i][n][p] * dS[p];
    }
    return y;
}

static double h_dS(const struct short_chunk *x, int d)
{
    const struct kcp_wy_backward *a = x->a;
    const int64_t at = (((int64_t)x->c * a->HV + x->n) * a->K + d) * a->V;
    double s = 0;
    for (int p = 0; p < a->V; p++)
        s += ((const double *)a->h)[at + p] * ((const double *)a->dh)[at + p];
    return s;
}

/* Computes dq and dk of channel d, and adds channel d's terms to dG. */
static void channel(const struct short_chunk *x, int d, double *dG)
{
    const struct kcp_wy_backward *a = x->a;
    const int last = x->rows - 1, H = a->H, K = a->K, m = x->m, e = a->KG == 1 ? 0 : d;
    const int tail = x->flags & LAST_ROW && last > 0 ? last - 1 : last;
    const double (*q)[H][K] = a->q, (*k)[H][K] = a->k, G_last = G_of(x, last, d);
    const double (*dA)[a->HV][a->C] = a->dAqk;
    double (*dq)[H][K] = a->dq, (*dk)[H][K] = a->dk;
    struct sums s[64] = { { 0 } };

    if (!(x->flags & UNROUNDED) || !rounded_pairs(x, d, s)) {
        memset(s, 0, sizeof s);
        exact_pairs(x, d, s);
    }
    dG[tail * a->KG + e] += exp2(G_last) * h_dS(x, d);
    for (int i = 0; i <= last; i++) {
        const struct through y = through_states(x, i, d);
        const double E = exp2(G_of(x, i, d)), to_end = exp2(G_last - G_of(x, i, d));
        const double qi = q[x->t0 + i][m][d], ki = k[x->t0 + i][m][d];
        const double own = dA[x->t0 + i][x->n][i];
        const double star = i < last ? ki * to_end * y.W : 0;
        dq[x->t0 + i][m][d] += E * y.P + s[i].q + own * ki;
        dk[x->t0 + i][m][d] += E * y.Q + s[i].k + s[i].column + to_end * y.W + own * qi;
        dG[i * a->KG + e] += qi * E * y.P + ki * E * y.Q + s[i].dG - star;
        dG[tail * a->KG + e] += star;
    }
}

static int shorter(const struct kcp_wy_backward *a, int flags)
{
    const int C = a->C, KG = a->KG, *cu = a->cu, *cn = a->cn;
    double *p = malloc(sizeof(double) * C * (a->V + C + KG)), *dG = p + C * (a->V + C);
    double (*dg)[a->HV][KG] = a->dg;
    struct short_chunk x = { .a = a, .flags = flags, .dv = p, .B = p + C * a->V };
    if (!p || C > 64) {
        free(p);
        return p ? KCP_NA : KCP_NO_MEMORY;
    }
    if (a->T) memset(a->dq, 0, sizeof(double) * a->T * a->H * a->K);
    if (a->T) memset(a->dk, 0, sizeof(double) * a->T * a->H * a->K);
    for (int s = 0; s < a->NS; s++)
        for (x.c = cn[s]; x.c < cn[s + 1]; x.c++)
            for (x.n = 0; x.n < a->HV; x.n++) {
                x.m = x.n / (a->HV / a->H);
                x.t0 = cu[s] + (int64_t)(x.c - cn[s]) * C;
                x.rows = cu[s + 1] - x.t0 < C ? (int)(cu[s + 1] - x.t0) : C;
                memset(dG, 0, sizeof(double) * C * KG);
                solve(&x);
                for (int d = 0; d < a->K; d++) channel(&x, d, dG);
                for (int i = x.rows - 1; i >= 0; i--)
                    for (int e = 0; e < KG; e++) {
                        const double after =
                            i + 1 < x.rows ? dg[x.t0 + i + 1][x.n][e] : 0;
                        dg[x.t0 + i][x.n][e] = after + dG[i * KG + e];
                    }
            }
    free(p);
    return KCP_OK;
}

#define SHORTER(ident, flags)                                                         \
    static int run_##ident(void *args) { return shorter(args, flags); }               \
    extern const struct kcp_variant m10_##ident;                                      \
    const struct kcp_variant m10_##ident = { "10_wy_backward", #ident, "", KCP_F64,    \
                                             KCP_HOST, "C to 64", run_##ident, NULL }
SHORTER(shorter, 0);
SHORTER(shorter_not_turned, NOT_TURNED);
SHORTER(shorter_last_row, LAST_ROW);
SHORTER(shorter_unrounded, UNROUNDED);
