/* mutants.c -- computes the gradients of chapter 10 with one deliberate error per flag.
 * Book: chapter 10.
 * The code is a copy of the reference, because mutants must not call it. */
#include "kcp.h"
#include "base/bf16.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MUTANTS(MUTANT)                                                               \
    MUTANT(beta_outside, BETA_OUTSIDE, "errata 34: dk_j uses beta_j, not beta_i")     \
    MUTANT(diagonal, DIAGONAL,                                                        \
           "errata 38: dG has terms i = j that do not cancel in bf16")                \
    MUTANT(last_row, LAST_ROW,                                                        \
           "errata 38: dG contains the last row's k dk_s, which does not cancel "     \
           "in bf16")                                                                 \
    MUTANT(undecayed, UNDECAYED, "errata 1: the delta rule uses the undecayed state") \
    MUTANT(no_decay, NO_DECAY, "errata 31: dG_last omits exp2(G_last) sum_v h dS")    \
    MUTANT(no_rows, NO_ROWS, "errata 31: dG_last omits the sum of k dk_s over rows")  \
    MUTANT(dL_sign, DL_SIGN, "dL = + A^T dA A^T")                                     \
    MUTANT(dL_no_A, DL_NO_A, "dL = - A^T dA, without the right factor A^T")           \
    MUTANT(dA_beta_i, BETA_I,                                                         \
           "dA = diag(beta) (dU v^T + dw k~^T): beta on the wrong side")              \
    MUTANT(no_dk_s, NO_DKS, "dk omits the term of the state")                         \
    MUTANT(no_dw, NO_DW, "omits the gradient of w")                                   \
    MUTANT(wrong_head, WRONG_HEAD, "HV > H: reads q and k of head n % H")             \
    MUTANT(overwrites, OVERWRITE,                                                     \
           "HV > H: dq, dk omit the group's other value heads")                       \
    MUTANT(first_key, FIRST_KEY,                                                      \
           "GDN: dg is channel 0's term, not the sum over channels")                  \
    MUTANT(exclusive, EXCLUSIVE,                                                      \
           "off by one: dg of token t sums rows after t, without t")                  \
    MUTANT(base_2, BASE_2, "dg is the gradient of g in base 2, not in base e")        \
    MUTANT(no_scale, NO_SCALE, "errata 27: omits scale in dq1")                       \
    MUTANT(dbeta_short, DBETA_SHORT, "dbeta omits the sum of dk2 k over channels")    \
    MUTANT(stale_gate, STALE_GATE,                                                    \
           "off by one: reads G_last from the chunk's last row but one")              \
    MUTANT(wrong_chunk, ONE_CHUNK, "off by one: uses h and dS of the previous chunk") \
    MUTANT(h_turned, H_TURNED,                                                        \
           "errata 29: computes dO S, because it reads h as [V,K]")                   \
    MUTANT(divided, DIVIDED,                                                          \
           "errata 32: multiplies dbeta by beta / (beta + 1e-10), which is 0 at "     \
           "beta = 0")                                                                \
    MUTANT(writes_nothing, NOTHING, "returns at once")
#include "tests/mutants.h"
enum { ROUNDED = 1 << 30 };         /* not in the list: its record names other shapes */

static double bf16(double x) { return bf16_value(bf16_of(x)); }

/* A chunk with tokens t0 to t0+rows-1 of value head n, and scratch matrices. */
struct cut {
    int n, m, c, rows, flags;
    int64_t t0;
    double *E, *dq1, *dks, *dw, *dkgb, *dq2, *dk2, *dkt, *dvb, *dA, *X, *dL;
};

/* Returns G of the chunk's row i and channel d, or 0 for i = -1 (flag UNDECAYED). */
static double gate(const struct kcp_wy_backward *a, const struct cut *x, int i, int d)
{
    const double (*G)[a->HV][a->KG] = a->G;
    if (i < 0) return 0;
    return G[x->t0 + i][x->n][a->model == KCP_KDA ? d : 0];
}

static void states(const struct kcp_wy_backward *a, const struct cut *x)
{
    const int HV = a->HV, K = a->K, V = a->V, n = x->n, f = x->flags;
    const int last = x->rows - 1, end = f & STALE_GATE && last > 0 ? last - 1 : last;
    const double (*dO)[HV][V] = a->do_, (*v_new)[HV][V] = a->v_new;
    const double (*dU)[HV][V] = a->dU, scale = f & NO_SCALE ? 1 : a->scale;
    const double *h = (const double *)a->h + ((int64_t)x->c * HV + n) * K * V;
    const double *dS = (const double *)a->dh + ((int64_t)x->c * HV + n) * K * V;

    for (int i = 0; i <= last; i++)
        for (int d = 0; d < K; d++) {
            double sq = 0, sk = 0, sw = 0;
            for (int v = 0; v < V; v++) {
                const int at = f & H_TURNED ? (d * V + v) % K * V + (d * V + v) / K
                                            : d * V + v;
                sq += dO[x->t0 + i][n][v] * h[at];
                sk += v_new[x->t0 + i][n][v] * dS[d * V + v];
                sw += dU[x->t0 + i][n][v] * h[d * V + v];
            }
            x->E[i * K + d] = exp2(gate(a, x, f & UNDECAYED ? i - 1 : i, d));
            x->dq1[i * K + d] = scale * sq * exp2(gate(a, x, i, d));
            x->dks[i * K + d] = f & NO_DKS ? 0 : sk * exp2(gate(a, x, end, d)
                                                           - gate(a, x, i, d));
            x->dw[i * K + d] = f & NO_DW ? 0 : -sw;
        }
}

static void through_A(const struct kcp_wy_backward *a, const struct cut *x)
{
    const int HV = a->HV, K = a->K, V = a->V, C = a->C, n = x->n, f = x->flags;
    const double (*A)[HV][C] = a->A, (*dU)[HV][V] = a->dU, (*v)[HV][V] = a->v;
    const double (*k)[a->H][K] = a->k, (*beta)[HV] = a->beta;

    for (int i = 0; i < x->rows; i++)
        for (int j = 0; j <= i; j++) {
            const double A_ij = A[x->t0 + i][n][j];
            double s = 0;
            for (int p = 0; p < V; p++) {
                x->dvb[j * V + p] += A_ij * dU[x->t0 + i][n][p];
                s += dU[x->t0 + i][n][p] * v[x->t0 + j][n][p];
            }
            for (int p = 0; p < K; p++) {
                x->dkgb[j * K + p] += A_ij * x->dw[i * K + p];
                s += x->dw[i * K + p] * x->E[j * K + p] * k[x->t0 + j][x->m][p];
            }
            const double b = beta[x->t0 + (f & BETA_I ? i : j)][n];
            x->dA[i * C + j] = i == j ? 0 : s * b;
            if (f & ROUNDED) x->dA[i * C + j] = bf16(x->dA[i * C + j]);
        }
    for (int i = 0; i < x->rows; i++)
        for (int j = 0; j < i; j++) {
            for (int p = 0; p <= j; p++)
                x->X[i * C + j] += x->dA[i * C + p] * A[x->t0 + j][n][p];
            if (f & ROUNDED) x->X[i * C + j] = bf16(x->X[i * C + j]);
        }
    for (int i = 0; i < x->rows; i++)
        for (int j = 0; j < i; j++)
            for (int p = i; p < x->rows; p++) {
                const double d = A[x->t0 + p][n][i]
                               * (f & DL_NO_A ? x->dA : x->X)[p * C + j];
                x->dL[i * C + j] += f & DL_SIGN ? d : -d;
            }
}

static void pairs(const struct kcp_wy_backward *a, const struct cut *x)
{
    const int HV = a->HV, K = a->K, C = a->C, n = x->n, f = x->flags;
    const double (*q)[a->H][K] = a->q, (*k)[a->H][K] = a->k;
    const double (*beta)[HV] = a->beta, (*dAqk)[HV][C] = a->dAqk;

    for (int i = 0; i < x->rows; i++)
        for (int j = 0; j < i; j++)
            for (int d = 0; d < K; d++) {
                const int64_t ti = x->t0 + i, tj = x->t0 + j;
                const double s = dAqk[ti][n][j], l = x->dL[i * C + j];
                const double b = beta[f & BETA_OUTSIDE ? tj : ti][n];
                const double Gj = gate(a, x, j, d), D = exp2(gate(a, x, i, d) - Gj);
                const double Dl = f & UNDECAYED ? exp2(gate(a, x, i - 1, d) - Gj) : D;
                const double kd = k[ti][x->m][d];
                x->dq2[i * K + d] += s * k[tj][x->m][d] * D;
                x->dk2[i * K + d] += l * k[tj][x->m][d] * Dl;
                x->dkt[j * K + d] += s * q[ti][x->m][d] * D + l * b * kd * Dl;
            }
}

/* Returns dG of row i and channel d, and adds that row's term of dG_last to *last. */
static double dG_row(const struct kcp_wy_backward *a, const struct cut *x, int i, int d,
                     double *last)
{
    const double (*q)[a->H][a->K] = a->q, (*k)[a->H][a->K] = a->k;
    const double (*beta)[a->HV] = a->beta, (*dAqk)[a->HV][a->C] = a->dAqk;
    const int e = i * a->K + d, f = x->flags, end = x->rows - 1;
    const int64_t t = x->t0 + i;
    const double qd = q[t][x->m][d], kd = k[t][x->m][d], b = beta[t][x->n];
    const double ii = dAqk[t][x->n][i], dq1 = x->dq1[e], dk2 = x->dk2[e];
    double dq2 = x->dq2[e], dkt = x->dkt[e], dks = i < end ? x->dks[e] : 0, sum = dks;
    if (f & DIAGONAL) {
        dq2 = bf16(dq2 + ii * kd);
        dkt = bf16(dkt + ii * qd);
    }
    if (f & LAST_ROW) {
        dks = bf16(x->dks[e]);
        sum = x->dks[e];
    }
    *last += f & NO_ROWS ? 0 : kd * sum;
    return qd * (dq1 + dq2) - kd * dks
         + kd * (b * (x->E[e] * x->dkgb[e] + dk2) - dkt);
}

static void gather(const struct kcp_wy_backward *a, const struct cut *x)
{
    const int HV = a->HV, K = a->K, V = a->V, C = a->C, KG = a->KG, n = x->n, m = x->m;
    const int end = x->rows - 1, f = x->flags;
    const double (*q)[a->H][K] = a->q, (*k)[a->H][K] = a->k, (*v)[HV][V] = a->v;
    const double (*beta)[HV] = a->beta, (*dAqk)[HV][C] = a->dAqk;
    const double (*h)[HV][K][V] = a->h, (*dS)[HV][K][V] = a->dh;
    double (*dq)[a->H][K] = a->dq, (*dk)[a->H][K] = a->dk, (*dv)[HV][V] = a->dv;
    double (*dbeta)[HV] = a->dbeta, (*dg)[HV][KG] = a->dg;

    for (int i = 0; i <= end; i++) {
        const int64_t t = x->t0 + i;
        const double b = beta[t][n], ii = dAqk[t][n][i], keep = !(f & OVERWRITE);
        dbeta[t][n] = 0;
        for (int p = 0; p < V; p++) {
            dv[t][n][p] = b * x->dvb[i * V + p];
            dbeta[t][n] += x->dvb[i * V + p] * v[t][n][p];
        }
        for (int d = 0; d < K; d++) {
            const int e = i * K + d;
            const double kd = k[t][m][d], Edkgb = x->E[e] * x->dkgb[e];
            dq[t][m][d] = keep * dq[t][m][d] + x->dq1[e] + x->dq2[e] + ii * kd;
            dk[t][m][d] = keep * dk[t][m][d] + x->dks[e] + b * (Edkgb + x->dk2[e])
                        + x->dkt[e] + ii * q[t][m][d];
            dbeta[t][n] += Edkgb * kd + (f & DBETA_SHORT ? 0 : x->dk2[e] * kd);
        }
        if (f & DIVIDED) dbeta[t][n] *= b / (b + 1e-10);
    }
    for (int e = 0; e < KG; e++) {
        double sum = 0, last = 0, hdS = 0;
        const int d1 = KG == K || f & FIRST_KEY ? e + 1 : K;
        for (int i = 0; i <= end; i++) dg[x->t0 + i][n][e] = 0;
        for (int d = e; d < d1; d++) {
            for (int v = 0; v < V; v++)
                hdS += h[x->c][n][d][v] * dS[x->c][n][d][v];
            for (int i = end; i >= 0; i--)
                dg[x->t0 + i][n][e] += dG_row(a, x, i, d, &last);
        }
        if (!(f & NO_DECAY)) last += exp2(gate(a, x, end, e)) * hdS;
        dg[x->t0 + end][n][e] += last;
        for (int i = end; i >= 0; i--) {
            double *at = &dg[x->t0 + i][n][e];
            const double after = sum;
            sum += *at;
            *at = (f & BASE_2 ? log(2) : 1) * (f & EXCLUSIVE ? after : sum);
        }
    }
}

static int mutate(struct kcp_wy_backward *a, int flags)
{
    const int64_t K = a->K, V = a->V, C = a->C, qk = sizeof(double) * a->T * a->H * K;
    const size_t bytes = sizeof(double) * C * (8 * K + V + 3 * C);
    const int *cu = a->cu, *cn = a->cn;
    double *p = malloc(bytes), *s = p + 8 * C * K, *z = s + C * V;
    struct cut x = {
        .flags = flags, .E = p, .dq1 = p + C * K, .dks = p + 2 * C * K, .dvb = s,
        .dw = p + 3 * C * K, .dkgb = p + 4 * C * K, .dq2 = p + 5 * C * K, .dA = z,
        .dk2 = p + 6 * C * K, .dkt = p + 7 * C * K, .X = z + C * C,
        .dL = z + 2 * C * C };
    if (!p) return KCP_NO_MEMORY;
    if (a->T > 0 && !(flags & NOTHING)) {
        memset(a->dq, 0, qk);
        memset(a->dk, 0, qk);
    }
    for (int j = 0; j < a->NS && !(flags & NOTHING); j++)
        for (int c = cn[j]; c < cn[j + 1]; c++)
            for (x.n = 0; x.n < a->HV; x.n++) {
                x.t0 = cu[j] + (c - cn[j]) * C;
                x.rows = cu[j + 1] - x.t0 < C ? (int)(cu[j + 1] - x.t0) : (int)C;
                x.m = flags & WRONG_HEAD ? x.n % a->H : x.n / (a->HV / a->H);
                x.c = flags & ONE_CHUNK && c > 0 ? c - 1 : c;
                memset(p, 0, bytes);
                states(a, &x);
                through_A(a, &x);
                pairs(a, &x);
                gather(a, &x);
            }
    free(p);
    return KCP_OK;
}

#define MUTANT_STAGE m10, "10_wy_backward", "any shape", mutate
MUTANTS(MUTANT)
MUTANT_TWIN
/* Mutant `rounded` is not judged in bf16, because correct bf16 kernels round A and dU,
 * and this rounding causes errors of equal size. */
MUTANT_RECORD(m10, "10_wy_backward", "any shape, float only", mutate, rounded,
              "mutant_rounded", ROUNDED,
              "computes dL from dA and dA A^T rounded to bf16")
