/* checks.c -- compares the recurrence with dense matrix products, and gradients with
 * complex-step derivatives.
 * Book: chapter 01.
 * The derivative Im(loss(x + i eps)) / eps needs no subtraction, so it has full
 * precision at eps = 1e-30. loss_of computes S_t = A_t S_{t-1} + B_t with a dense
 * matrix A_t, so equal results prove that ref_step computes this recurrence. */
#include "tests/judge/judge.h"

#include <complex.h>
#include <math.h>
#include <string.h>

enum { T = 17, N = 4, H = 2, HV = 4, K = 5, V = 3 };
enum { QK = T * H * K, VO = T * HV * V, GATES = T * HV * K, BETA = T * HV,
       STATE = N * HV * K * V };

static const int64_t cu[N + 1] = { 0, 9, 9, 10, T };      /* ragged, empty, one token */
static const double eps = 1e-30;

/* Offsets of q, k, v, g, beta and h0 in x.in, the array of all inputs. */
enum { AT_Q, AT_K = QK, AT_V = 2 * QK, AT_G = AT_V + VO, AT_BETA = AT_G + GATES,
       AT_H0 = AT_BETA + BETA, ALL = AT_H0 + STATE };
static struct {
    double complex in[ALL];
    double real[ALL], grad[ALL], want[ALL], o[VO], ht[STATE], dO[VO], dht[STATE];
    double want_o[VO], want_ht[STATE];
} x;

static int state_at(enum kcp_layout layout, int s, int n, int i, int v)
{
    return (s * HV + n) * K * V + (layout == KCP_VK ? v * K + i : i * V + v);
}

/* Returns <dO, o> + <dht, ht>, the loss of sequence s and value head n. */
static double complex loss_of(int s, int n, int KG, double scale,
                              enum kcp_layout layout)
{
    double complex S[K][V], next[K][V], loss = 0;
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++)
            S[i][v] = x.in[AT_H0 + state_at(layout, s, n, i, v)];
    for (int64_t t = cu[s]; t < cu[s + 1]; t++) {
        const double complex *q = x.in + AT_Q + (t * H + n / (HV / H)) * K;
        const double complex *k = q + AT_K, *w = x.in + AT_V + (t * HV + n) * V;
        const double complex *g = x.in + AT_G + (t * HV + n) * KG;
        const double complex beta = x.in[AT_BETA + t * HV + n];
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) {
                next[i][v] = beta * k[i] * w[v];
                for (int p = 0; p < K; p++)
                    next[i][v] += ((i == p) - beta * k[i] * k[p]) *
                                  cexp(g[KG > 1 ? p : 0]) * S[p][v];
            }
        memcpy(S, next, sizeof S);
        for (int v = 0; v < V; v++) {
            double complex o = 0;
            for (int p = 0; p < K; p++) o += S[p][v] * (scale * q[p]);
            x.want_o[(t * HV + n) * V + v] = creal(o);
            loss += x.dO[(t * HV + n) * V + v] * o;
        }
    }
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            x.want_ht[state_at(layout, s, n, i, v)] = creal(S[i][v]);
            loss += x.dht[state_at(layout, s, n, i, v)] * S[i][v];
        }
    return loss;
}

static double complex loss(int KG, double scale, enum kcp_layout layout)
{
    double complex all = 0;
    for (int s = 0; s < N; s++)
        for (int n = 0; n < HV; n++) all += loss_of(s, n, KG, scale, layout);
    return all;
}

static void draw(double gate)
{
    struct stream s = stream_of(1, "01_step");
    for (int e = 0; e < ALL; e++)
        if (e < AT_G || e >= AT_H0) x.real[e] = normal(&s) / sqrt(e < AT_V ? K : 1);
        else if (e >= AT_BETA) x.real[e] = uniform(&s);
        else if (gate < 0) x.real[e] = gate * uniform(&s);
        else x.real[e] = -0.02 * fabs(normal(&s));
    for (int e = 0; e < VO; e++) x.dO[e] = normal(&s);
    for (int e = 0; e < STATE; e++) x.dht[e] = normal(&s);
    for (int e = 0; e < ALL; e++) x.in[e] = x.real[e];
}

static struct kcp_step step(enum kcp_model model, enum kcp_layout layout)
{
    return (struct kcp_step){ .T = T, .N = N, .R = 1, .H = H, .HV = HV, .K = K, .V = V,
        .KG = model == KCP_KDA ? K : 1, .model = model, .layout = layout, .scale = 0.4,
        .cu_seqlens = cu, .q = x.real + AT_Q, .k = x.real + AT_K, .v = x.real + AT_V,
        .g = x.real + AT_G, .beta = x.real + AT_BETA, .h0 = x.real + AT_H0, .o = x.o,
        .ht = x.ht, .do_ = x.dO, .dht = x.dht, .dq = x.grad + AT_Q, .dk = x.grad + AT_K,
        .dv = x.grad + AT_V, .dg = x.grad + AT_G, .dbeta = x.grad + AT_BETA,
        .dh0 = x.grad + AT_H0 };
}

static int one(struct kcp_report *rep, enum kcp_model model, enum kcp_layout layout,
               double gate)
{
    static const char *const name[] = { "dq", "dk", "dv", "dg", "dbeta", "dh0" };
    static const int at[] = { AT_Q, AT_K, AT_V, AT_G, AT_BETA, AT_H0, ALL };
    struct kcp_step a = step(model, layout);
    draw(gate);
    memset(x.grad, 0, sizeof x.grad);
    int status = ref_step(&a);
    a.pass = KCP_BACKWARD;
    if (!status) status = ref_step(&a);
    if (status) return status;
    for (int e = 0; e < ALL; e++) {
        x.in[e] = x.real[e] + eps * I;
        x.want[e] = cimag(loss(a.KG, a.scale, layout)) / eps;
        x.in[e] = x.real[e];
    }
    const double o = rms_apart(x.o, x.want_o, VO);
    const double ht = rms_apart(x.ht, x.want_ht, STATE);
    EXPECT(rep, o <= 1e-13 && ht <= 1e-13, "o differs by %g, ht by %g at gate %g", o,
           ht, gate);
    for (int j = 0; j < 6; j++) {
        const double d = rms_apart(x.grad + at[j], x.want + at[j], at[j + 1] - at[j]);
        EXPECT(rep, d <= 1e-13, "%s, %s: %s differs by %g at gate %g",
               model ? "GDN" : "KDA", layout == KCP_VK ? "[V,K]" : "[K,V]", name[j], d,
               gate);
    }
    return KCP_OK;
}

static int complex_step(struct kcp_report *rep)
{
    static const double gate[] = { 0, -1, -5, -50 };
    int status = KCP_OK;
    for (int j = 0; j < 16 && !status; j++)
        status = one(rep, j & 1 ? KCP_GDN : KCP_KDA, j & 2 ? KCP_VK : KCP_KV,
                     gate[j / 4]);
    return status;
}
KCP_CHECK(check_01_complex) = { "01_step", "complex_step",
    "outputs equal the product of the tokens' dense maps, and gradients equal the"
    " exact derivatives", complex_step };
