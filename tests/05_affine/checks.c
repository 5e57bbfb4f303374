/* checks.c -- checks the affine map S -> M S + h_ext of a stretch (a run of tokens).
 *
 * Book: chapter 05.  Checked by: itself, it can fail.  Next: ref/06_plan.c.
 */
#include "tests/judge/batch.h"

static const double gates[] = { 0, -1, -5, -50 };

static int make(struct batch *x, enum kcp_model model, int C, double gate)
{
    int status = batch_draw(x, model, C, gate);
    status = status ? status : batch_wy(x);
    status = status ? status : batch_chunk(x);
    return status ? status : batch_affine(x, NULL);
}

static int tokens(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int j = 0; j < 16 && !status; j++) {
        struct batch x;
        double worst = 0;
        status = make(&x, j % 2 ? KCP_GDN : KCP_KDA, j / 2 % 2 ? 64 : 4, gates[j / 4]);
        for (int s = 0; s < BATCH_NS && !status; s++)
            for (int n = 0; n < x.c.HV; n++) {
                const int64_t KW = (int64_t)x.c.K * (x.c.K + x.c.V);
                double X[32 * 64];
                batch_identity(&x, X);
                batch_tokens(&x, x.cu[s], x.cu[s + 1], n, X);
                const double d = apart(x.map + (s * x.c.HV + n) * KW, X, KW);
                worst = d > worst || isnan(d) ? d : worst;
            }
        EXPECT(rep, worst <= 1e-12, "%s, C %d, gate %g: map differs by %g",
               j % 2 ? "GDN" : "KDA", x.c.C, gates[j / 4], worst);
        batch_free(&x);
    }
    return status;
}
KCP_CHECK(check_05_tokens) = { "05_affine", "tokens",
    "[h_ext | M] of a segment is the product of its tokens' dense maps", tokens };

static int carries(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int j = 0; j < 8 && !status; j++) {
        struct batch x;
        status = make(&x, j % 2 ? KCP_GDN : KCP_KDA, 16, gates[j / 2]);
        const int K = x.c.K, V = x.c.V, W = V + K, maps = BATCH_NS * x.c.HV;
        double *S = batch_array(&x, (int64_t)maps * K * V);
        for (int e = 0; !status && !x.arrays.full && e < maps * K * V; e++) {
            const double *row = x.map + (int64_t)(e / V) * W;
            S[e] = row[e % V];
            for (int p = 0; p < K; p++)
                S[e] += row[V + p] * x.h0[e / (K * V) * K * V + p * V + e % V];
        }
        status = status ? status : batch_affine(&x, x.h0);
        for (int e = 0; !status; e++) {
            const char *const what[] = { "M S + h_ext", "h_ext from h_start" };
            const double d = apart(S, x.h_out, maps * K * V);
            EXPECT(rep, d <= 1e-13, "%s, gate %g: %s differs from the scan by %g",
                   j % 2 ? "GDN" : "KDA", gates[j / 2], what[e], d);
            if (e)
                break;
            for (int i = 0; i < maps * K * V; i++)
                S[i] = x.map[(int64_t)(i / V) * W + i % V];
        }
        batch_free(&x);
    }
    return status;
}
KCP_CHECK(check_05_carries) = { "05_affine", "carries",
    "M S_in + h_ext, and h_ext computed from S_in, are chapter 04's ht",
    carries };

/* `want[s]` selects h_ext, M, both or neither for stretch s. */
static int wants(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int model = 0; model < 2 && !status; model++) {
        struct batch x;
        status = make(&x, model ? KCP_GDN : KCP_KDA, 16, 0);
        const int K = x.c.K, V = x.c.V, W = V + K, maps = BATCH_NS * x.c.HV;
        double *whole = x.map, *part = x.map = batch_array(&x, (int64_t)maps * K * W);
        for (int s = 0; s < BATCH_NS; s++)
            x.want[s] = s;                             /* nothing, h, M, both */
        for (int e = 0; !status && !x.arrays.full && e < maps * K * W; e++)
            part[e] = 1e300 + e;
        status = status ? status : batch_affine(&x, NULL);
        int touched = 0, differ = 0;
        for (int e = 0; !status && e < maps * K * W; e++) {
            const int s = e / (x.c.HV * K * W);
            const int wanted = s & (e % W < V ? KCP_WANT_H : KCP_WANT_M);
            touched += !wanted && part[e] != 1e300 + e;
            differ += wanted && part[e] != whole[e];
        }
        EXPECT(rep, !touched && !differ, "%s: %d elements overwritten, %d differ",
               model ? "GDN" : "KDA", touched, differ);
        batch_free(&x);
    }
    return status;
}
KCP_CHECK(check_05_wants) = { "05_affine", "wants",
    "parts not in `want` are not written; parts in `want` have equal bits", wants };

/* Computes |M|_F / sqrt(K) of T tokens with gates logsigmoid(N), then with gates -|N| /
 * T and beta = sigmoid(N - 3), where N is normal. M vanishes with logsigmoid gates, so
 * a test of M with logsigmoid gates could not fail. */
static int survival(struct kcp_report *rep)
{
    enum { T = 512, K = 32, C = 64, NC = T / C };
    static double k[T][K], v[T], G[T][K], beta[T], Aqk[T][C], A[T][C], u[T], w[T][K],
                  kg[T][K], qg[T][K], map[K][K + 1];
    int cu[] = { 0, T }, cn[] = { 0, NC }, sc[NC] = { 0 }, want[] = { KCP_WANT_M };
    double alive[2];
    int status;
    for (int j = 0; j < 2; j++) {
        struct stream s = stream_of(3, "survival");
        for (int t = 0; t < T; t++) {
            double size = 0;
            for (int p = 0; p < K; p++) {
                k[t][p] = normal(&s);
                size += k[t][p] * k[t][p];
            }
            for (int p = 0; p < K; p++) {
                const double g = j ? -fabs(normal(&s)) / T : -log1p(exp(-normal(&s)));
                k[t][p] /= sqrt(size);
                G[t][p] = g / log(2) + (t % C ? G[t - 1][p] : 0);
            }
            beta[t] = 1 / (1 + exp(3 * j - normal(&s)));
        }
        const struct kcp_call call = { .T = T, .N = 1, .NS = 1, .NC = NC, .R = 1,
            .H = 1, .HV = 1, .K = K, .V = 1, .C = C, .KG = K, .model = KCP_KDA,
            .scale = 1 };
        struct kcp_wy y = { .cu = cu, .cn = cn, .sc = sc, .q = k, .k = k, .v = v,
            .G = G, .beta = beta, .Aqk = Aqk, .A = A, .u = u, .w = w, .kg = kg,
            .qg = qg };
        struct kcp_affine f = { .cu = cu, .cn = cn, .sc = sc, .want = want, .kg = kg,
            .w = w, .u = u, .G = G, .map = map };
        memcpy(&y, &call, sizeof call);
        memcpy(&f, &call, sizeof call);
        if ((status = ref_wy(&y)) || (status = ref_affine(&f)))
            return status;
        alive[j] = 0;
        for (int i = 0; i < K; i++)
            for (int p = 0; p < K; p++)
                alive[j] += map[i][1 + p] * map[i][1 + p] / K;
        alive[j] = sqrt(alive[j]);
    }
    EXPECT(rep, alive[0] < 1e-30, "logsigmoid gates: |M| = %g", alive[0]);
    EXPECT(rep, alive[1] > 0.1 && alive[1] < 1, "-|N| / T: |M| = %g", alive[1]);
    return KCP_OK;
}
KCP_CHECK(check_05_survival) = { "05_affine", "survival",
    "|M| vanishes with logsigmoid gates and stays above 0.1 with -|N| / T",
    survival };
