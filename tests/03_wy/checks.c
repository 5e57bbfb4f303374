/* checks.c -- checks that a chunk's WY form is the product of the tokens' affine maps.
 *
 * Book: chapter 03.  Checked by: itself, it can fail.  Next: ref/04_chunk.c.
 */
#include "tests/judge/batch.h"

static const double gates[] = { 0, -1, -5, -50, -700 };
static const int chunks[] = { 4, 8, 16, 64 };

/* Returns the relative difference between [kg^T u | Lambda - kg^T w] of a chunk and the
 * product of its tokens' affine maps. */
static double chunk_apart(const struct batch *x, int64_t t0, int rows, int n)
{
    const int K = x->c.K, V = x->c.V, W = V + K, HV = x->c.HV, KG = x->c.KG;
    const double *last = x->G + ((t0 + rows - 1) * HV + n) * KG;
    double X[32 * 64], Y[32 * 64];
    batch_identity(x, X);
    batch_tokens(x, t0, t0 + rows, n, X);
    for (int i = 0; i < K; i++)
        for (int j = 0; j < W; j++) {
            const int at = KG > 1 ? i : 0;
            Y[i * W + j] = j == V + i ? exp2(last[at]) : 0;
            for (int64_t t = t0; t < t0 + rows; t++) {
                const int64_t tn = t * HV + n, tm = t * x->c.H + n / (HV / x->c.H);
                const double gate = exp2(last[at] - x->G[tn * KG + at]);
                const double kg = x->k[tm * K + i] * gate;
                Y[i * W + j] += kg * (j < V ? x->u[tn * V + j] : -x->w[tn * K + j - V]);
            }
        }
    return apart(Y, X, K * W);
}

static int tokens(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int j = 0; j < 40 && !status; j++) {
        struct batch x;
        const double gate = gates[j / 8];
        double worst = 0;
        status = batch_draw(&x, j % 2 ? KCP_GDN : KCP_KDA, chunks[j / 2 % 4], gate);
        status = status ? status : batch_wy(&x);
        for (int c = 0; c < x.c.NC && !status; c++)
            for (int n = 0; n < x.c.HV; n++) {
                const int s = x.sc[c], t0 = x.cu[s] + (c - x.cn[s]) * x.c.C;
                const int left = x.cu[s + 1] - t0;
                const double d = chunk_apart(&x, t0, left < x.c.C ? left : x.c.C, n);
                worst = d > worst || isnan(d) ? d : worst;
            }
        EXPECT(rep, worst <= 1e-12, "%s, C = %d, gate %g: map of a chunk is off by %g",
               j % 2 ? "GDN" : "KDA", x.c.C, gate, worst);
        batch_free(&x);
    }
    return status;
}
KCP_CHECK(check_03_tokens) = { "03_wy", "tokens",
    "Lambda - kg^T w, kg^T u equal the product of the tokens' dense maps",
    tokens };

/* Compares Aqk with sums in long double. Checks that (I + L) A = I, and that Aqk and A
 * are 0 above the diagonal and past the chunk's end. */
static void triangles(struct kcp_report *rep, const struct batch *x, double gate)
{
    const int K = x->c.K, HV = x->c.HV, KG = x->c.KG, C = x->c.C, H = x->c.H;
    double worst_qk = 0, worst_A = 0;
    int outside = 0;
    for (int64_t t = 0; t < x->c.T; t++)
        for (int n = 0; n < HV; n++) {
            const int m = n / (HV / H);
            const int s = (t >= x->cu[1]) + (t >= x->cu[2]) + (t >= x->cu[3]);
            const int row = (int)(t - x->cu[s]) % C;
            const double *Aqk = x->Aqk + (t * HV + n) * C, *A = x->A + (t * HV + n) * C;
            long double sum[256] = { 0 };
            for (int j = 0; j < C; j++) {
                outside += j > row && (Aqk[j] != 0 || A[j] != 0);
                long double qk = 0, kk = 0, size = 1e-280L;
                const int64_t tj = t - row + j;
                for (int p = 0; p < K && j <= row; p++) {
                    const int at = KG > 1 ? p : 0;
                    const double y = x->G[(t * HV + n) * KG + at];
                    const long double D = exp2l((long double)y -
                                                x->G[(tj * HV + n) * KG + at]);
                    qk += D * x->q[(t * H + m) * K + p] * x->k[(tj * H + m) * K + p];
                    kk += D * x->k[(t * H + m) * K + p] * x->k[(tj * H + m) * K + p];
                    size += D;
                }
                const double d = fabs((double)(x->c.scale * qk - Aqk[j]));
                worst_qk = !(d <= worst_qk * size) ? d / size : worst_qk;
                for (int i = 0; i <= j && j < row; i++)
                    sum[i] += x->beta[t * HV + n] * kk * x->A[(tj * HV + n) * C + i];
            }
            for (int i = 0; i < C; i++) {
                const double d = fabs((double)(sum[i] + A[i] - (i == row)));
                worst_A = !(d <= worst_A) ? d : worst_A;
            }
        }
    EXPECT(rep, worst_qk <= 1e-13, "Aqk: relative error %g, C %d, gate %g",
           worst_qk, C, gate);
    EXPECT(rep, worst_A <= 1e-13, "(I + L) A - I: error %g, C %d, gate %g", worst_A, C,
           gate);
    EXPECT(rep, outside == 0, "%d elements above the diagonal are not 0", outside);
}

static int definition(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int j = 0; j < 20 && !status; j++) {
        struct batch x;
        status = batch_draw(&x, j % 2 ? KCP_GDN : KCP_KDA, j / 2 % 2 ? 64 : 8,
                            gates[j / 4]);
        status = status ? status : batch_wy(&x);
        if (!status)
            triangles(rep, &x, gates[j / 4]);
        batch_free(&x);
    }
    return status;
}
KCP_CHECK(check_03_definition) = { "03_wy", "definition",
    "Aqk agrees with long double, (I + L) A = I, A and Aqk are lower triangular",
    definition };

/* GDN and KDA run different code, so this check can fail. */
static int gdn_is_kda(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int j = 0; j < 5 && !status; j++) {
        struct batch x, y = { 0 };
        status = batch_draw(&x, KCP_GDN, 16, gates[j]);
        status = status ? status : batch_repeat(&x, &y, gates[j]);
        if (!status && !(status = batch_wy(&x)) && !(status = batch_wy(&y))) {
            const int64_t n = x.c.T * x.c.HV;
            const double Aqk = apart(x.Aqk, y.Aqk, n * x.c.C);
            const double A = apart(x.A, y.A, n * x.c.C);
            const double u = apart(x.u, y.u, n * x.c.V), w = apart(x.w, y.w, n * x.c.K);
            EXPECT(rep, Aqk <= 1e-14 && A <= 1e-14 && u <= 1e-14 && w <= 1e-14,
                   "gate %g: Aqk, A, u, w differ by %g %g %g %g", gates[j], Aqk, A, u,
                   w);
        }
        batch_free(&x);
        batch_free(&y);
    }
    return status;
}
KCP_CHECK(check_03_gdn_is_kda) = { "03_wy", "gdn_is_kda",
    "GDN equals KDA with equal gates in all channels", gdn_is_kda };
