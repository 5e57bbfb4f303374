/* relatives.c -- checks that models agree where one model is a special case of another.
 *
 * Book: chapter 16.  Checked by: itself, it can fail.  Next: tests/16_family/mutants.h.
 * Chapter 01, which shares no code with chapter 16, computes KDA's expected results.
 */
#include "run.h"

/* Computes o and ht of the batch with KDA's recurrence (chapter 01). */
static int kda(const struct batch *x, const double *beta, double *o, double *ht)
{
    struct kcp_step a = { .T = T, .N = N, .H = H, .HV = HV, .K = K, .V = V, .KG = K,
        .model = KCP_KDA, .scale = 0.4, .cu_seqlens = cu, .q = x->in[Q],
        .k = x->in[KEY],
        .v = x->in[VAL], .g = x->in[G], .beta = beta, .h0 = x->in[H0], .o = o,
        .ht = ht };
    return ref_step(&a);
}

/* Sets inputs with which x->model equals KDA. For DPLR, a = exp(g) k, b = -beta k, and
 * v is multiplied by beta. For GDN-2, b = omega = beta. */
static void set_inputs(struct batch *x, const double *beta)
{
    for (int t = 0; t < T; t++)
        for (int n = 0; n < HV; n++) {
            const double be = beta[t * HV + n];
            for (int p = 0; p < K; p++) {
                const int e = (t * HV + n) * K + p;
                const double k = x->in[KEY][(t * H + n / (HV / H)) * K + p];
                x->in[A][e] = exp(x->in[G][e]) * k;
                x->in[B][e] = x->model == KCP_DPLR ? -be * k : be;
            }
            for (int v = 0; v < V; v++) {
                const int e = (t * HV + n) * V + v;
                x->in[OMEGA][e] = be;
                if (x->model == KCP_DPLR) x->in[VAL][e] *= be;
            }
        }
}

static int relatives(struct kcp_report *rep)
{
    const char *const name[] = { "DPLR", "GDN-2" };
    double *beta = malloc(sizeof *beta * T * HV), *o = malloc(sizeof *o * VALUES);
    double *ht = malloc(sizeof *ht * STATES);
    int status = beta && o && ht ? KCP_OK : KCP_NO_MEMORY;
    struct stream s = stream_of(16, "relatives");
    for (int e = 0; e < T * HV && !status; e++) beta[e] = 1.5 * uniform(&s);
    for (int j = 0; j < 2 && !status; j++) {
        struct batch x = { .model = j ? KCP_GDN2 : KCP_DPLR, .R = 3,
                           .form = KCP_CHAIN };
        char why[160];
        status = draw(&x);
        for (int e = 0; e < KEYS; e++) x.in[G][e] *= 20;      /* noticeable decay */
        status = status ? status : kda(&x, beta, o, ht);
        set_inputs(&x, beta);
        status = status ? status : go(&x, why);
        const double eo = status ? NAN : rms_apart(x.out[O], o, VALUES);
        const double eh = status ? NAN : rms_apart(x.out[HT], ht, STATES);
        EXPECT(rep, eo < 1e-12 && eh < 1e-12, "KDA as %s: o %.2g, ht %.2g", name[j],
               eo, eh);
        drop(&x);
        drop_inputs(&x);
    }
    free(beta); free(o); free(ht);
    return status;
}
KCP_CHECK(check_16_relatives) = { "16_family", "relatives",
    "KDA, written as DPLR and as GDN-2, agrees on 3 ranks with chapter 01 to "
    "1e-12", relatives };

static int degenerate(struct kcp_report *rep)
{
    static const int shared[] = { O, HT, DQ, DK, DV, DG, DH0 };
    struct batch gla = { .model = KCP_GLA, .R = 4 };
    char why[160];
    int status = draw(&gla);
    status = status ? status : go(&gla, why);
    EXPECT(rep, !status, "GLA: status %d", status);
    for (int j = 0; j < 2 && !status; j++) {
        struct batch x = { .model = j ? KCP_GDN2 : KCP_DPLR, .R = 4 };
        status = draw(&x);
        for (int e = 0; e < KEYS; e++) x.in[B][e] = 0;
        for (int e = 0; e < VALUES; e++) x.in[OMEGA][e] = 1;
        status = status ? status : go(&x, why);
        for (int i = 0; i < 7 && !status; i++) {
            const double e = rms_apart(x.out[shared[i]], gla.out[shared[i]],
                                       out_size[shared[i]]);
            EXPECT(rep, e < 1e-12, "%s with b = 0 is not GLA: %s differs by %.2g",
                   j ? "GDN-2" : "DPLR", out_name[shared[i]], e);
        }
        drop(&x);
        drop_inputs(&x);
    }
    drop(&gla);
    drop_inputs(&gla);
    return status;
}
KCP_CHECK(check_16_degenerate) = { "16_family", "degenerate",
    "DPLR and GDN-2 with b = 0 equal GLA on 4 ranks in both passes", degenerate };
