/* closed.c -- checks chunks with gates so negative that exp(g) is 0.
 *
 * Book: chapter 02.  Checked by: itself.  Next: ref/03_wy.c.
 * G is a running sum of gates. Without a lower limit, one gate of -1e30 would make the
 * sum lose all digits of the others. */
#include "tests/judge/judge.h"

#include <math.h>
#include <string.h>

enum { T = 40, HV = 2, K = 5, V = 3, C = 16, NC = 3 };

/* One sequence. A tenth of the gates are hugely negative, the others are near 0. */
struct layer {
    double q[T][HV][K], k[T][HV][K], v[T][HV][V], g[T * HV * K], beta[T][HV];
    double rstd[T][HV], g_out[T * HV * K], G[T * HV * K], beta_out[T][HV];
    double Aqk[T][HV][C], A[T][HV][C], u[T][HV][V], w[T][HV][K], kg[T][HV][K],
           qg[T][HV][K], v_new[T][HV][V], h[NC][HV][K][V], qn[T][HV][K], kn[T][HV][K];
    double o[T][HV][V], ht[HV][K][V], want_o[T][HV][V], want_ht[HV][K][V];
};

static void draw(struct layer *x, int KG, double far)
{
    struct stream s = stream_of(2, "02_gate_closed");
    for (double *p = &x->q[0][0][0]; p < x->g; p++) *p = normal(&s);
    for (int e = 0; e < T * HV * KG; e++)
        x->g[e] = uniform(&s) < 0.1 ? far : -0.05 * uniform(&s);
    for (double *p = &x->beta[0][0]; p < &x->rstd[0][0]; p++) *p = uniform(&s);
}

/* Runs the references of chapters 02, 03 and 04, then ref_step on the outputs of 02. */
static int run_stages(struct layer *x, enum kcp_model model)
{
    int cu[2] = { 0, T }, cn[2] = { 0, NC }, sc[NC] = { 0 }, status;
    int64_t seq[2] = { 0, T };
    const struct kcp_call call = { .T = T, .N = 1, .NS = 1, .NC = NC, .R = 1, .H = HV,
        .HV = HV, .K = K, .V = V, .C = C, .KG = model == KCP_KDA ? K : 1,
        .model = model, .l2norm = 1, .scale = 0.5 };
    struct kcp_gate gate = { .cu = cu, .cn = cn, .sc = sc, .q_raw = x->q, .k_raw = x->k,
        .g_raw = x->g, .beta_raw = x->beta, .q = x->qn, .k = x->kn, .rstd_q = x->rstd,
        .rstd_k = x->rstd, .g = x->g_out, .G = x->G, .beta = x->beta_out };
    struct kcp_wy wy = { .cu = cu, .cn = cn, .sc = sc, .q = x->qn, .k = x->kn,
        .v = x->v, .G = x->G, .beta = x->beta, .Aqk = x->Aqk, .A = x->A, .u = x->u,
        .w = x->w, .kg = x->kg, .qg = x->qg };
    struct kcp_chunk chunk = { .cu = cu, .cn = cn, .sc = sc, .q = x->qn, .k = x->kn,
        .qg = x->qg, .kg = x->kg, .u = x->u, .w = x->w, .Aqk = x->Aqk, .G = x->G,
        .o = x->o, .v_new = x->v_new, .h = x->h, .h_out = x->ht };
    struct kcp_step step = { .cu_seqlens = seq, .q = x->qn, .k = x->kn, .v = x->v,
        .g = x->g, .beta = x->beta, .o = x->want_o, .ht = x->want_ht };
    memcpy(&gate, &call, sizeof call);
    memcpy(&wy, &call, sizeof call);
    memcpy(&chunk, &call, sizeof call);
    memcpy(&step, &call, sizeof call);
    if ((status = ref_gate(&gate)) || (status = ref_wy(&wy)) ||
        (status = ref_chunk(&chunk)))
        return status;
    return ref_step(&step);
}

static int closed(struct kcp_report *rep)
{
    static const double far[] = { -60, -800, -1e8, -1e30, -1.7e308 };
    static struct layer x;
    for (int j = 0; j < 10; j++) {
        const enum kcp_model model = j % 2 ? KCP_GDN : KCP_KDA;
        draw(&x, model == KCP_KDA ? K : 1, far[j / 2]);
        const int status = run_stages(&x, model);
        if (status)
            return status;
        double err = 0, all = 0;
        const double *got = &x.o[0][0][0], *want = &x.want_o[0][0][0];
        for (int e = 0; e < T * HV * V; e++) {
            err += pow(got[e] - want[e], 2);
            all += pow(want[e], 2);
        }
        EXPECT(rep, sqrt(err / all) <= 1e-11, "%s: o differs by %g with some gates %g",
               j % 2 ? "GDN" : "KDA", sqrt(err / all), far[j / 2]);
    }
    return KCP_OK;
}
KCP_CHECK(check_02_closed) = { "02_gate", "closed",
    "chunks agree with the recurrence where some gates are -60 to -1.7e308", closed };
