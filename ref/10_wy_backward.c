/* 10_wy_backward.c -- gradients of q, k, v, beta and g through the WY form.
 * Book: chapter 10. */
#include "checked.h"
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One chunk of value head n (query/key head m). Row i of every array except h and dS is
 * the chunk's token i. E = exp2(G), D_ij = exp2(G_i - G_j), k~ = E k. */
struct wy_chunk {
    int n, m, rows, kda, H, HV, K, V, C, KG;
    double scale;
    const void *q, *k, *v, *G, *beta, *A, *v_new, *dO, *dAqk, *dU;    /* inputs */
    const void *h, *dS;     /* [HV,K,V]: state at start, gradient of the state at end */
    void *dq, *dk, *dv, *dbeta, *dg;         /* outputs */
    void *dq1, *dk_s, *dw, *dkgb, *dq2, *dk2, *dkt;          /* scratch [C,K] */
    void *dvb, *dA, *X, *dL, *dG;            /* [C,V], three of [C,C], [C,KG] */
};

/* Computes the gradients through the states at the start and the end of a chunk:
 *   dq1 = scale E (dO h^T)    dk_s = exp2(G_last - G) (v_new dS^T)    dw = -dU h^T */
static void states(const struct wy_chunk *x)
{
    const int HV = x->HV, K = x->K, V = x->V, n = x->n;
    const double (*G)[HV][x->KG] = x->G, *G_last = G[x->rows - 1][n];
    const double (*dO)[HV][V] = x->dO, (*v_new)[HV][V] = x->v_new, (*dU)[HV][V] = x->dU;
    const double (*h)[K][V] = x->h, (*dS)[K][V] = x->dS;
    double (*dq1)[K] = x->dq1, (*dk_s)[K] = x->dk_s, (*dw)[K] = x->dw;

    for (int i = 0; i < x->rows; i++)
        for (int d = 0; d < K; d++) {
            const int e = x->kda ? d : 0;
            double sq = 0, sk = 0, sw = 0;
            for (int v = 0; v < V; v++) {
                sq += dO[i][n][v] * h[n][d][v];
                sk += v_new[i][n][v] * dS[n][d][v];
                sw += dU[i][n][v] * h[n][d][v];
            }
            dq1[i][d] = x->scale * exp2(G[i][n][e]) * sq;
            dk_s[i][d] = exp2(G_last[e] - G[i][n][e]) * sk;
            dw[i][d] = -sw;
        }
}

//> solve
/* Computes the gradients through u = A (beta v) and w = A (beta k~):
 *   dvb = A^T dU     dkgb = A^T dw     dA = tril((dU v^T + dw k~^T) diag(beta), -1) */
static void factors(const struct wy_chunk *x)
{
    const int HV = x->HV, K = x->K, V = x->V, C = x->C, n = x->n, m = x->m;
    const double (*G)[HV][x->KG] = x->G, (*beta)[HV] = x->beta, (*A)[HV][C] = x->A;
    const double (*k)[x->H][K] = x->k, (*v)[HV][V] = x->v, (*dU)[HV][V] = x->dU;
    const double (*dw)[K] = x->dw;
    double (*dvb)[V] = x->dvb, (*dkgb)[K] = x->dkgb, (*dA)[C] = x->dA;

    for (int i = 0; i < x->rows; i++)
        for (int j = 0; j <= i; j++) {
            for (int p = 0; p < V; p++) dvb[j][p] += A[i][n][j] * dU[i][n][p];
            for (int p = 0; p < K; p++) dkgb[j][p] += A[i][n][j] * dw[i][p];
        }
    for (int j = 0; j < x->rows; j++) {
        double E_k[K];
        for (int p = 0; p < K; p++)
            E_k[p] = exp2(G[j][n][x->kda ? p : 0]) * k[j][m][p];
        for (int i = j + 1; i < x->rows; i++) {
            double s = 0;
            for (int p = 0; p < V; p++) s += dU[i][n][p] * v[j][n][p];
            for (int p = 0; p < K; p++) s += dw[i][p] * E_k[p];
            dA[i][j] = s * beta[j][n];
        }
    }
}

/* Backward of A = (I + L)^-1:     X = dA A^T     dL = -tril(A^T X, -1).
 * The diagonal of dA does not affect dL. */
static void inverse(const struct wy_chunk *x)
{
    const int HV = x->HV, C = x->C, n = x->n;
    const double (*A)[HV][C] = x->A, (*dA)[C] = x->dA;
    double (*X)[C] = x->X, (*dL)[C] = x->dL;

    //> inverse
    for (int i = 1; i < x->rows; i++)
        for (int j = 0; j < i; j++) {
            X[i][j] = 0;
            for (int p = 0; p <= j; p++) X[i][j] += dA[i][p] * A[j][n][p];
        }
    for (int p = 1; p < x->rows; p++)
        for (int i = 1; i <= p; i++)
            for (int j = 0; j < i; j++) dL[i][j] -= A[p][n][i] * X[p][j];
    //< inverse
}
//< solve

/* Computes the gradients through the scores Aqk and L, from pairs of tokens j < i, for
 * which the exponents in D are <= 0:
 *   dq2*_i = sum_j dAqk_ij k_j D_ij       dk2_i = sum_j dL_ij k_j D_ij
 *   dkt*_j = sum_i (dAqk_ij q_i + dL_ij beta_i k_i) D_ij
 * The sums with a star omit i = j. For i = j, the terms q dq2 and k dkt are equal and
 * cancel in dG. If these terms were added, they would round away smaller terms. */
static void pairs(const struct wy_chunk *x)
{
    const int HV = x->HV, K = x->K, KG = x->KG, C = x->C, n = x->n, m = x->m;
    const double (*q)[x->H][K] = x->q, (*k)[x->H][K] = x->k, (*G)[HV][KG] = x->G;
    const double (*beta)[HV] = x->beta, (*dAqk)[HV][C] = x->dAqk, (*dL)[C] = x->dL;
    double (*dq2)[K] = x->dq2, (*dk2)[K] = x->dk2, (*dkt)[K] = x->dkt, D[KG];

    //> pairs
    for (int i = 1; i < x->rows; i++)
        for (int j = 0; j < i; j++) {
            const double s = dAqk[i][n][j], l = dL[i][j], lb = l * beta[i][n];
            for (int d = 0; d < KG; d++) D[d] = exp2(G[i][n][d] - G[j][n][d]);
            for (int d = 0; d < K; d++) {
                const double e = D[x->kda ? d : 0];
                dq2[i][d] += s * k[j][m][d] * e;
                dk2[i][d] += l * k[j][m][d] * e;
                dkt[j][d] += (s * q[i][m][d] + lb * k[i][m][d]) * e;
            }
        }
    //< pairs
}

/* Adds up the gradients, row by row, including the terms of i = j, for which D_ii = 1:
 *   dq += dq1 + dq2              dk += dk_s + beta E dkgb + beta dk2 + dkt
 *   dv = beta dvb                dbeta = sum_v dvb v + sum_k (dkgb k~ + dk2 k)
 *   dG = q dq1 - k dk_s* + beta k~ dkgb + q dq2* + (beta dk2 - dkt*) k
 *   dG_last += sum over rows of k dk_s*,  where dk_s* is 0 in the last row */
static void gather(const struct wy_chunk *x)
{
    const int HV = x->HV, K = x->K, V = x->V, KG = x->KG, C = x->C, n = x->n, m = x->m;
    const double (*q)[x->H][K] = x->q, (*k)[x->H][K] = x->k, (*v)[HV][V] = x->v;
    const double (*G)[HV][KG] = x->G, (*beta)[HV] = x->beta, (*dAqk)[HV][C] = x->dAqk;
    const double (*dq1)[K] = x->dq1, (*dk_s)[K] = x->dk_s, (*dkgb)[K] = x->dkgb;
    const double (*dq2)[K] = x->dq2, (*dk2)[K] = x->dk2, (*dkt)[K] = x->dkt;
    const double (*dvb)[V] = x->dvb;
    double (*dq)[x->H][K] = x->dq, (*dk)[x->H][K] = x->dk, (*dv)[HV][V] = x->dv;
    double (*dbeta)[HV] = x->dbeta, (*dG)[KG] = x->dG;
    const int last = x->rows - 1;

    for (int i = 0; i <= last; i++) {
        const double b = beta[i][n], dAqk_ii = dAqk[i][n][i];
        dbeta[i][n] = 0;
        for (int p = 0; p < V; p++) {
            dv[i][n][p] = b * dvb[i][p];
            dbeta[i][n] += dvb[i][p] * v[i][n][p];
        }
        for (int d = 0; d < K; d++) {
            const int e = x->kda ? d : 0;
            const double qd = q[i][m][d], kd = k[i][m][d], E = exp2(G[i][n][e]);
            const double k_dk_s = i < last ? kd * dk_s[i][d] : 0;
            dq[i][m][d] += dq1[i][d] + dq2[i][d] + dAqk_ii * kd;
            dk[i][m][d] += dk_s[i][d] + b * (E * dkgb[i][d] + dk2[i][d])
                         + dkt[i][d] + dAqk_ii * qd;
            dbeta[i][n] += dkgb[i][d] * E * kd + dk2[i][d] * kd;
            dG[i][e] += qd * (dq1[i][d] + dq2[i][d]) - k_dk_s
                      + kd * (b * (E * dkgb[i][d] + dk2[i][d]) - dkt[i][d]);
            dG[last][e] += k_dk_s;
        }
    }
}

/* Adds the gradient of the chunk's decay to dG, then computes dg from dG:
 *   dG_last += exp2(G_last) sum_v h dS          dg_t = sum of dG over rows t .. last.
 * dG is the derivative with respect to G ln 2, so dg needs no factor of ln 2. */
static void gates(const struct wy_chunk *x)
{
    const int HV = x->HV, K = x->K, V = x->V, KG = x->KG, n = x->n, last = x->rows - 1;
    const double (*G)[HV][KG] = x->G, (*h)[K][V] = x->h, (*dS)[K][V] = x->dS;
    double (*dG)[KG] = x->dG, (*dg)[HV][KG] = x->dg;

    for (int d = 0; d < K; d++) {
        const int e = x->kda ? d : 0;
        double s = 0;
        for (int v = 0; v < V; v++) s += h[n][d][v] * dS[n][d][v];
        dG[last][e] += exp2(G[last][n][e]) * s;
    }
    for (int i = last; i >= 0; i--)
        for (int d = 0; d < KG; d++)
            dg[i][n][d] = dG[i][d] + (i < last ? dg[i + 1][n][d] : 0);
}

/* Sets the pointers of x to the chunk that begins at token t. */
static void at_chunk(struct wy_chunk *x, const struct kcp_wy_backward *a, int64_t t,
                     int c)
{
    const int64_t qk = t * a->H * a->K, vo = t * a->HV * a->V, tri = t * a->HV * a->C;
    const int64_t gate = t * a->HV * a->KG, one = t * a->HV;
    const int64_t state = (int64_t)c * a->HV * a->K * a->V;
#define AT(name, offset) x->name = (double *)a->name + (offset)
    AT(q, qk); AT(k, qk); AT(v, vo); AT(G, gate); AT(beta, one); AT(A, tri);
    AT(v_new, vo); AT(dAqk, tri); AT(dU, vo); AT(h, state);
    AT(dq, qk); AT(dk, qk); AT(dv, vo); AT(dbeta, one); AT(dg, gate);
#undef AT
    x->dO = (const double *)a->do_ + vo;
    x->dS = (const double *)a->dh + state;
}

/* Computes dq, dk [T,H,K], dv [T,HV,V], dbeta [T,HV] and dg [T,HV,KG] of this rank's
 * tokens from the outputs of chapters 03, 04 and 09. dq and dk are sums over the value
 * heads of each query/key head. For GDN, dg is a sum over the K channels. */
int ref_wy_backward(struct kcp_wy_backward *a)
{
    const int refused = kcp_begin("10_wy_backward", KCP_HOST, a, NULL);
    if (refused) return refused;
    const size_t K = a->K, V = a->V, C = a->C, KG = a->KG, CK = C * K;
    const size_t bytes = sizeof(double) * C * (7 * K + V + 3 * C + KG);
    const size_t qk = sizeof(double) * a->T * a->H * K;
    const int *cu = a->cu, *cn = a->cn;
    double *scratch = malloc(bytes), *s7 = scratch + 7 * CK, *s8 = s7 + C * V;

    if (!scratch) return KCP_NO_MEMORY;
    struct wy_chunk x = {
        .kda = a->model == KCP_KDA, .H = a->H, .HV = a->HV, .K = a->K, .V = a->V,
        .C = a->C, .KG = a->KG, .scale = a->scale,
        .dq1 = scratch, .dk_s = scratch + CK, .dw = scratch + 2 * CK,
        .dkgb = scratch + 3 * CK, .dq2 = scratch + 4 * CK, .dk2 = scratch + 5 * CK,
        .dkt = scratch + 6 * CK, .dvb = s7, .dA = s8, .X = s8 + C * C,
        .dL = s8 + 2 * C * C, .dG = s8 + 3 * C * C,
    };
    if (a->T > 0) {
        memset(a->dq, 0, qk);
        memset(a->dk, 0, qk);
    }
    for (int s = 0; s < a->NS; s++)
        for (int c = cn[s]; c < cn[s + 1]; c++) {
            const int64_t t = cu[s] + (int64_t)(c - cn[s]) * a->C;
            x.rows = cu[s + 1] - t < a->C ? cu[s + 1] - t : a->C;
            at_chunk(&x, a, t, c);
            for (x.n = 0; x.n < a->HV; x.n++) {
                x.m = x.n / (a->HV / a->H);
                memset(scratch, 0, bytes);
                states(&x);
                factors(&x);
                inverse(&x);
                pairs(&x);
                gather(&x);
                gates(&x);
            }
        }
    free(scratch);
    return KCP_OK;
}
