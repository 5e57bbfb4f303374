/* mutants.c -- computes the WY form with one deliberate error per flag.
 * Book: chapter 03, appendix A.
 * The code is a copy of the reference, because mutants must not call it.
 */
#include "kcp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MUTANTS(MUTANT)                                                               \
    MUTANT(w_ungated, W_UNGATED, "errata 4: w = A (k beta) omits exp2(G)")            \
    MUTANT(kg_from_start, KG_FROM_START, "errata 4: kg = k exp2(G) omits G_last")     \
    MUTANT(no_scale, NO_SCALE, "errata 27: omits scale in Aqk")                       \
    MUTANT(qg_scale, QG_SCALE, "scales qg, which chapter 04 scales again")            \
    MUTANT(natural, NATURAL, "errata 12: uses exp instead of exp2")                   \
    MUTANT(factored, FACTORED,                                                        \
           "errata 35, 36: splits exp2(G_i - G_j) at G_last into two factors, in "    \
           "fp32")                                                                    \
    MUTANT(no_beta, NO_BETA, "omits beta in L")                                       \
    MUTANT(beta_j, BETA_J, "row i of L uses beta_j of the column, not beta_i")        \
    MUTANT(no_diagonal, NO_DIAGONAL, "omits the diagonal of Aqk")                     \
    MUTANT(with_diagonal, WITH_DIAGONAL, "L in I + L has a nonzero diagonal")         \
    MUTANT(no_inverse, NO_INVERSE, "A is I + L instead of its inverse")               \
    MUTANT(two_terms, TWO_TERMS,                                                      \
           "A is I - L, only two terms of the series of (I + L)^-1")                  \
    MUTANT(sign, SIGN, "A = (I - L)^-1")                                              \
    MUTANT(transposed, TRANSPOSED, "writes A transposed")                             \
    MUTANT(wrong_head, WRONG_HEAD, "value head n reads q and k of head n % H")        \
    MUTANT(stale_last, STALE_LAST, "kg decays to the chunk's second-last row")        \
    MUTANT(no_reset, NO_RESET, "a chunk runs on into the next sequence")              \
    MUTANT(writes_nothing, NOTHING, "returns at once")                                \
    MUTANT(one_nan, ONE_NAN, "writes one NaN")
#include "tests/mutants.h"

struct cut { int64_t t0; int rows, n, m; };

static double power(double x, int flags) { return flags & NATURAL ? exp(x) : exp2(x); }

/* Returns exp2(G_i - G_j) of channel p. With flag FACTORED, computes
 * exp2(G_i - G_last) exp2(G_last - G_j), whose first factor overflows. */
static double ratio(const struct kcp_wy *a, struct cut x, int64_t i, int64_t j, int p,
                    int flags)
{
    const double (*G)[a->HV][a->KG] = a->G;
    const int at = a->KG > 1 ? p : 0;
    const double last = G[x.t0 + x.rows - 1][x.n][at];
    if (flags & FACTORED) {                     /* in fp32, as in a kernel */
        const float up = exp2f((float)(G[i][x.n][at] - last));
        const float down = exp2f((float)(last - G[j][x.n][at]));
        return (double)up * down;
    }
    return power(G[i][x.n][at] - G[j][x.n][at], flags);
}

static void scores(const struct kcp_wy *a, struct cut x, int flags, double *L)
{
    const int K = a->K, C = a->C;
    const double (*q)[a->H][K] = a->q, (*k)[a->H][K] = a->k, (*beta)[a->HV] = a->beta;
    double (*Aqk)[a->HV][C] = a->Aqk;
    for (int i = 0; i < x.rows; i++)
        for (int j = 0; j < C; j++) {
            const int64_t ti = x.t0 + i, tj = x.t0 + (j < x.rows ? j : 0);
            double qk = 0, kk = 0;
            for (int p = 0; p < K && j <= i; p++) {
                const double D = ratio(a, x, ti, tj, p, flags);
                qk += q[ti][x.m][p] * k[tj][x.m][p] * D;
                kk += k[ti][x.m][p] * k[tj][x.m][p] * D;
            }
            const int64_t tb = flags & BETA_J ? tj : ti;
            const double b = flags & NO_BETA ? 1 : beta[tb][x.n];
            const double scale = flags & NO_SCALE ? 1 : a->scale;
            Aqk[ti][x.n][j] = j < i + !(flags & NO_DIAGONAL) ? qk * scale : 0;
            L[i * C + j] = j < i + !!(flags & WITH_DIAGONAL) ? b * kk : 0;
        }
}

static void invert(const struct kcp_wy *a, struct cut x, int flags, const double *L)
{
    const int C = a->C;
    double (*A)[a->HV][C] = a->A;
    for (int i = 0; i < x.rows; i++)
        for (int j = 0; j < C; j++) {
            double s = i == j;
            for (int p = j; p < i && !(flags & (NO_INVERSE | TWO_TERMS)); p++)
                s -= L[i * C + p] * A[x.t0 + p][x.n][j];
            if (flags & NO_INVERSE) s += L[i * C + j];
            if (flags & TWO_TERMS) s -= j < i ? L[i * C + j] : 0;
            if (flags & WITH_DIAGONAL) s /= 1 + L[i * C + i];
            A[x.t0 + i][x.n][j] = flags & SIGN && i != j ? -s : s;
        }
    for (int i = 0; i < x.rows && flags & TRANSPOSED; i++)
        for (int j = 0; j < i; j++) {
            A[x.t0 + j][x.n][i] = A[x.t0 + i][x.n][j];
            A[x.t0 + i][x.n][j] = 0;
        }
}

static void rest(const struct kcp_wy *a, struct cut x, int flags)
{
    const int K = a->K, V = a->V, C = a->C, KG = a->KG;
    const double (*q)[a->H][K] = a->q, (*k)[a->H][K] = a->k, (*beta)[a->HV] = a->beta;
    const double (*val)[a->HV][V] = a->v, (*G)[a->HV][KG] = a->G, (*A)[a->HV][C] = a->A;
    double (*u)[a->HV][V] = a->u, (*w)[a->HV][K] = a->w;
    double (*kg)[a->HV][K] = a->kg, (*qg)[a->HV][K] = a->qg;
    const int64_t end = x.t0 + x.rows - (flags & STALE_LAST && x.rows > 1 ? 2 : 1);
    for (int i = 0; i < x.rows; i++) {
        const int64_t t = x.t0 + i;
        memset(u[t][x.n], 0, sizeof(double) * V);
        memset(w[t][x.n], 0, sizeof(double) * K);
        for (int j = 0; j < x.rows; j++) {
            const int64_t s = x.t0 + j;
            const double Ab = A[t][x.n][j] * beta[s][x.n];
            for (int v = 0; v < V; v++) u[t][x.n][v] += Ab * val[s][x.n][v];
            for (int p = 0; p < K; p++) {
                const double gate = power(G[s][x.n][KG > 1 ? p : 0], flags);
                w[t][x.n][p] += Ab * k[s][x.m][p] * (flags & W_UNGATED ? 1 : gate);
            }
        }
        for (int p = 0; p < K && a->model == KCP_KDA; p++) {
            const double g = G[t][x.n][KG > 1 ? p : 0];
            const double last = G[end][x.n][KG > 1 ? p : 0];
            kg[t][x.n][p] = k[t][x.m][p] *
                (flags & KG_FROM_START ? power(g, flags) : power(last - g, flags));
            qg[t][x.n][p] = q[t][x.m][p] * power(g, flags) *
                            (flags & QG_SCALE ? a->scale : 1);
        }
    }
}

static int wrong(void *args, int flags)
{
    const struct kcp_wy *a = args;
    const int *cu = a->cu;
    double *L = malloc(sizeof(double) * a->C * a->C);
    if (!L) return KCP_NO_MEMORY;
    const int whole[] = { 0, (int)a->T }, merged = flags & NO_RESET;
    for (int s = 0; s < (merged ? 1 : a->NS) && !(flags & NOTHING); s++) {
        const int *c = merged ? whole : cu + s;
        for (int64_t t = c[0]; t < c[1]; t += a->C)
            for (int n = 0; n < a->HV; n++) {
                const int rows = c[1] - t < a->C ? (int)(c[1] - t) : a->C;
                const int m = flags & WRONG_HEAD ? n % a->H : n / (a->HV / a->H);
                const struct cut x = { t, rows, n, m };
                scores(a, x, flags, L);
                invert(a, x, flags, L);
                rest(a, x, flags);
            }
    }
    free(L);
    if (flags & ONE_NAN) ((double *)a->w)[0] = NAN;
    return KCP_OK;
}

#define MUTANT_STAGE m03, "03_wy", "any", wrong
MUTANTS(MUTANT)
MUTANT_TWIN
