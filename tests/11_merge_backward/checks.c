/* checks.c -- checks that M^T maps gradients dS, where M maps states S.
 *
 * Book: chapter 11.  Checked by: itself, it can fail.  Next: ref/12_h0.c.
 */
#include "tests/judge/batch.h"

/* Computes dS = M^T dht + dh_ext per stretch and head. */
static void applied(const struct batch *x, const double *dmap, double *dS)
{
    const int K = x->c.K, V = x->c.V;
    for (int n = 0; n < x->c.NS * x->c.HV; n++)
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) {
                const double *map = dmap + (int64_t)n * K * (V + K);
                double s = map[i * (V + K) + v];
                for (int p = 0; p < K; p++)
                    s += map[p * (V + K) + V + i] * x->dht[(n * K + p) * V + v];
                dS[(n * K + i) * V + v] = s;
            }
}

static double columns_apart(const struct batch *x, const double *a, const double *b,
                            int from, int to)
{
    const int ld = x->c.V + x->c.K;
    double d = 0, r = 0;
    for (int64_t e = 0; e < (int64_t)x->c.NS * x->c.HV * x->c.K; e++)
        for (int v = from; v < to; v++) {
            d += (a[e * ld + v] - b[e * ld + v]) * (a[e * ld + v] - b[e * ld + v]);
            r += b[e * ld + v] * b[e * ld + v];
        }
    return sqrt(d / r);
}

static int one(struct kcp_report *rep, struct batch *x, const char *what)
{
    const int64_t ld = x->c.V + x->c.K, rows = (int64_t)x->c.NS * x->c.HV * x->c.K;
    double *map = batch_array(x, rows * ld), *dS = batch_array(x, rows * x->c.V);
    double *two = batch_array(x, rows * ld), err;
    int status;
    if (x->arrays.full)
        return KCP_NO_MEMORY;

    applied(x, x->dmap, dS);
    err = apart(dS, x->dh_in, rows * x->c.V);
    EXPECT(rep, err <= 1e-13, "%s: M^T dht + dh_ext is off the reverse scan by %.2g",
           what, err);

    struct kcp_affine f;
    batch_bind(x, "05_affine", &f);
    f.map = map;
    if ((status = ref_affine(&f)))
        return status;
    err = columns_apart(x, x->dmap, map, x->c.V, (int)ld);
    EXPECT(rep, err <= 1e-13, "%s: M of backward is off forward's M by %.2g", what,
           err);

    struct kcp_merge_backward m;
    batch_bind(x, "11_merge_backward", &m);
    m.dmap = two; m.reuse_M = 1;
    if ((status = ref_merge_backward(&m)))
        return status;
    int touched = 0, differ = 0;
    for (int64_t e = 0; e < rows; e++)
        for (int v = 0; v < ld; v++) {
            touched += v >= x->c.V && !isnan(two[e * ld + v]);
            differ += v < x->c.V && two[e * ld + v] != x->dmap[e * ld + v];
        }
    EXPECT(rep, !touched, "%s: reuse_M, but %d numbers of M written", what, touched);
    EXPECT(rep, !differ, "%s: reuse_M changed %d numbers of dh_ext", what, differ);
    return KCP_OK;
}

static int transpose(struct kcp_report *rep)
{
    static const double gate[] = { 0, -1, -5, -50 };
    int status = KCP_OK;
    for (int model = 0; model < 2; model++)
        for (int j = 0; j < 4 && !status; j++) {
            struct batch x;
            char what[64];
            snprintf(what, sizeof what, "%s, gate %g", model ? "GDN" : "KDA", gate[j]);
            status = batch_forward(&x, model ? KCP_GDN : KCP_KDA, gate[j]);
            status = status ? status : batch_backward(&x);
            status = status ? status : one(rep, &x, what);
            batch_free(&x);
        }
    return status;
}
KCP_CHECK(check_11_transpose) = { "11_merge_backward", "transpose",
    "M^T dht + dh_ext equals dh_in of the reverse scan, M equals chapter 05's, "
    "and reuse_M omits M", transpose };
