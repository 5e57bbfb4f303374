/* relatives.c -- checks that models agree where one model is a special case of another,
 * and that the code of a model is short.
 *
 * Book: chapter 16.  Checked by: itself, it can fail.  Next: tests/16_family/mutants.h.
 * Chapter 01, which shares no code with chapter 16, computes KDA's expected results.
 */
#include "run.h"

#include <stdio.h>

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
static void tell(struct batch *x, const double *beta)
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
        for (int e = 0; e < KEYS; e++) x.in[G][e] *= 20;      /* a decay with effect */
        status = status ? status : kda(&x, beta, o, ht);
        tell(&x, beta);
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
    "KDA as DPLR and as GDN-2 on 3 ranks agrees with chapter 01 to 1e-12",
    relatives };

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
    "DPLR and GDN-2 with b = 0 equal GLA in both passes, on 4 ranks",
    degenerate };

/* Counts the lines of a file from the line that starts with `from` to the next line
 * that starts with `to`, or all lines if both are NULL. A line over 88 columns counts
 * as several lines. Returns -1 if the file or the lines are missing. */
static int lines_of(const char *path, const char *from, const char *to)
{
    FILE *f = fopen(path, "r");
    char line[4096];
    int n = 0, inside = !from;
    while (f && fgets(line, sizeof line, f)) {
        if (inside && to && n && !strncmp(line, to, strlen(to))) break;
        if (from && !strncmp(line, from, strlen(from))) inside = 1;
        if (inside) n += 1 + (int)(strlen(line) / 88);
    }
    if (f) fclose(f);
    return n ? n : -1;
}

static int short_enough(struct kcp_report *rep)
{
    const char *const file[] = { "ref/16_dplr.c", "ref/16_gdn2.c", "ref/16_gla.c" };
    if (lines_of("ref/16_family.c", NULL, NULL) < 0) return KCP_NA;
    for (int j = 0; j < 3; j++) {
        const int n = lines_of(file[j], NULL, NULL);
        EXPECT(rep, n > 0 && n <= 150, "%s: %d lines, not 1 .. 150", file[j], n);
    }
    const int n = lines_of("book/16-family.md", "# The recipe", "# ");
    EXPECT(rep, n > 0 && n <= 50, "the recipe: %d lines, not 1 .. 50", n);
    return KCP_OK;
}
KCP_CHECK(check_16_short) = { "16_family", "short_enough",
    "a model's reference has at most 150 lines, the recipe at most 50", short_enough };
