/* checks.c -- compares norm, gate, beta and their gradients with complex arithmetic.
 * Book: chapter 02.
 * The derivative Im(loss(x + i eps)) / eps of loss = <d, output> needs no subtraction,
 * so it has full precision at eps = 1e-30. */
#include "tests/judge/judge.h"

#include <complex.h>
#include <math.h>
#include <string.h>

enum { T = 23, NS = 3, NC = 7, H = 2, HV = 4, K = 5, C = 4 };
enum { QK = T * H * K, GATES = T * HV * K, BETA = T * HV };

static int cu[NS + 1] = { 0, 10, 11, T }, cn[NS + 1] = { 0, 3, 4, NC };
static int sc[NC] = { 0, 0, 0, 1, 2, 2, 2 };
static const double eps = 1e-30, lb = -3.5;

static struct {
    double q[QK], k[QK], g[GATES], beta[BETA], A_log[HV], dt[HV * K];
    double qn[QK], kn[QK], rq[T * H], rk[T * H], gn[GATES], G[GATES], bn[BETA];
    double dq[QK], dk[QK], dg[GATES], dbeta[BETA];
    double xq[QK], xk[QK], xg[GATES], xbeta[BETA], dA[NS * HV], ddt[NS * HV * K];
} x;

static void draw(void)
{
    struct stream s = stream_of(1, "02_gate");
    for (int e = 0; e < QK; e++) {
        x.q[e] = normal(&s);
        x.k[e] = e < K ? 0 : 1e-3 * normal(&s);
        x.dq[e] = normal(&s);
        x.dk[e] = normal(&s);
    }
    for (int e = 0; e < GATES; e++) {
        x.g[e] = -5 + 12 * uniform(&s);
        x.dg[e] = normal(&s);
    }
    for (int e = 0; e < BETA; e++) {
        x.beta[e] = 4 * normal(&s);
        x.dbeta[e] = normal(&s);
    }
    for (int n = 0; n < HV; n++) x.A_log[n] = log(0.25 + 4 * uniform(&s));
    for (int e = 0; e < HV * K; e++)
        x.dt[e] = log(expm1(0.001 + 0.1 * uniform(&s)));
}

static struct kcp_gate call(enum kcp_model model, enum kcp_gate_form gate,
                            enum kcp_beta_form beta, int l2norm)
{
    return (struct kcp_gate){ .T = T, .N = NS, .NS = NS, .NC = NC, .R = 1, .H = H,
        .HV = HV, .K = K, .V = 1, .C = C, .KG = model == KCP_KDA ? K : 1,
        .model = model, .gate = gate, .beta_form = beta, .l2norm = l2norm,
        .lower_bound = lb, .cu = cu, .cn = cn, .sc = sc, .q_raw = x.q, .k_raw = x.k,
        .g_raw = x.g, .beta_raw = x.beta, .A_log = x.A_log, .dt_bias = x.dt, .q = x.qn,
        .k = x.kn, .rstd_q = x.rq, .rstd_k = x.rk, .g = x.gn, .G = x.G, .beta = x.bn,
        .dq = x.dq, .dk = x.dk, .dg = x.dg, .dbeta = x.dbeta, .dq_raw = x.xq,
        .dk_raw = x.xk, .dg_raw = x.xg, .dbeta_raw = x.xbeta, .dA_part = x.dA,
        .ddt_part = x.ddt };
}

static double complex sigmoid(double complex y)
{
    return 1 / (1 + cexp(-y));
}

static double complex gate(const struct kcp_gate *a, double complex y, double complex A,
                           double complex dt)
{
    if (a->gate == KCP_GATE_RAW) return y;
    return a->gate == KCP_GATE_SOFTPLUS ? -cexp(A) * clog(1 + cexp(y + dt))
                                        : lb * sigmoid(cexp(A) * (y + dt));
}

/* Copies the rows of `in` to `y`, and normalises `y` if `on` is 1. Sets `dx` to the
 * gradient of <d, y> with respect to `in`. */
static void norm(int on, const double *in, const double *d, double *y, double *dx)
{
    for (int row = 0; row < QK; row += K)
        for (int i = 0; i < K; i++) {
            double complex z[K], s = 1e-6, loss = 0;
            for (int p = 0; p < K; p++) {
                z[p] = in[row + p] + (p == i ? eps * I : 0);
                s += z[p] * z[p];
            }
            const double complex r = on ? 1 / csqrt(s) : 1;
            for (int p = 0; p < K; p++) loss += d[row + p] * z[p] * r;
            dx[row + i] = cimag(loss) / eps;
            y[row + i] = creal(z[i] * r);
        }
}

static void hold(struct kcp_report *rep, const struct kcp_gate *a, const char *name,
                 const double *got, const double *want, int n)
{
    const double d = rms_apart(got, want, n);
    EXPECT(rep, d <= 1e-13, "%s differs by %g: KG %d, gate %d, beta %d, l2norm %d",
           name, d, a->KG, a->gate, a->beta_form, a->l2norm);
}

static void gates(struct kcp_report *rep, const struct kcp_gate *a)
{
    static double g[GATES], dx[GATES], dA[NS * HV], ddt[NS * HV * K];
    const int KG = a->KG, W = HV * KG;
    memset(dA, 0, sizeof dA);
    memset(ddt, 0, sizeof ddt);
    for (int s = 0; s < NS; s++)
        for (int e = cu[s] * W; e < cu[s + 1] * W; e++) {
            const double A = x.A_log[e % W / KG], dt = x.dt[e % W];
            g[e] = creal(gate(a, x.g[e], A, dt));
            dx[e] = x.dg[e] * cimag(gate(a, x.g[e] + eps * I, A, dt)) / eps;
            dA[s * HV + e % W / KG] +=
                x.dg[e] * cimag(gate(a, x.g[e], A + eps * I, dt)) / eps;
            ddt[s * W + e % W] +=
                x.dg[e] * cimag(gate(a, x.g[e], A, dt + eps * I)) / eps;
        }
    hold(rep, a, "g", x.gn, g, T * W);
    hold(rep, a, "dg_raw", x.xg, dx, T * W);
    hold(rep, a, "dA_part", x.dA, dA, NS * HV);
    hold(rep, a, "ddt_part", x.ddt, ddt, NS * W);
}

static void rest(struct kcp_report *rep, const struct kcp_gate *a)
{
    static double y[QK], dx[QK], b[BETA], db[BETA];
    const double s = a->beta_form == KCP_BETA_SIGMOID2 ? 2 : 1;
    norm(a->l2norm, x.q, x.dq, y, dx);
    hold(rep, a, "q", x.qn, y, QK);
    hold(rep, a, "dq_raw", x.xq, dx, QK);
    norm(a->l2norm, x.k, x.dk, y, dx);
    hold(rep, a, "k", x.kn, y, QK);
    hold(rep, a, "dk_raw", x.xk, dx, QK);
    for (int e = 0; e < BETA; e++) {
        const double complex z = x.beta[e] + eps * I;
        const double complex f = a->beta_form == KCP_BETA_RAW ? z : s * sigmoid(z);
        b[e] = creal(f);
        db[e] = x.dbeta[e] * cimag(f) / eps;
    }
    hold(rep, a, "beta", x.bn, b, BETA);
    hold(rep, a, "dbeta_raw", x.xbeta, db, BETA);
}

static int complex_step(struct kcp_report *rep)
{
    for (int j = 0; j < 18; j++) {
        struct kcp_gate a = call(j % 2 ? KCP_GDN : KCP_KDA, j / 2 % 3, j / 6,
                                 j % 4 < 2);
        draw();
        int status = ref_gate(&a);
        a.pass = KCP_BACKWARD;
        if (!status) status = ref_gate(&a);
        if (status) return status;
        gates(rep, &a);
        rest(rep, &a);
    }
    return KCP_OK;
}
KCP_CHECK(check_02_complex) = { "02_gate", "complex_step",
    "values and gradients of 3 kinds of gate and 3 kinds of beta, with and without "
    "l2norm, are right to 1e-13", complex_step };

static int absent(struct kcp_report *rep)
{
    static double g[GATES], xg[GATES];
    for (int form = KCP_GATE_RAW; form <= KCP_GATE_BOUNDED; form++)
        for (int pass = KCP_FORWARD; pass <= KCP_BACKWARD; pass++) {
            struct kcp_gate a = call(KCP_KDA, form, 0, 1);
            draw();
            memset(x.A_log, 0, sizeof x.A_log);
            memset(x.dt, 0, sizeof x.dt);
            a.pass = pass;
            int status = ref_gate(&a);
            a.A_log = a.dt_bias = NULL; a.dA_part = a.ddt_part = NULL;
            a.g = g; a.dg_raw = xg;
            if (!status) status = ref_gate(&a);
            if (status) return status;
            EXPECT(rep, pass || !memcmp(g, x.gn, sizeof g), "form %d: NULL is not 0",
                   form);
            EXPECT(rep, !pass || !memcmp(xg, x.xg, sizeof xg), "form %d: dg_raw", form);
        }
    return KCP_OK;
}
KCP_CHECK(check_02_absent) = { "02_gate", "absent",
    "NULL for A_log or dt_bias counts as 0; NULL for dA_part or ddt_part changes "
    "no other output", absent };
