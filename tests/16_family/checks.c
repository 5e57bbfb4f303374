/* checks.c -- checks each model's gradients by differences, and that all cuts agree.
 *
 * Book: chapter 16.  Checked by: itself, it can fail.
 * Next: tests/16_family/relatives.c.
 */
#include "run.h"
#include "tests/judge/family_cuts.h"

static int take_kind(struct batch *x, int kind)
{
    if (kind < 3)
        x->model = models[kind];
    return kind < 3;
}

/* Sets x->keep, which passes h_kept, for some values of R and some cuts. */
static void take_options(struct batch *x)
{
    x->walk = 0;
    x->keep = x->L ? x->R == 2 || x->R == 4 : x->cuts == late;
}

static void name_run(const struct batch *x, char name[40])
{
    snprintf(name, 40, "%s", model_name[x->model]);
}

static void hold_more(struct kcp_report *rep, const struct batch *x, const char *what)
{
    for (int r = 0; r < x->R; r++)
        EXPECT(rep, x->walk || x->traffic[r].bytes == x->formula[r].bytes,
               "%s, rank %d sent %lld bytes, not %lld", what, r,
               (long long)x->traffic[r].bytes, (long long)x->formula[r].bytes);
}

static int against_tokens(struct kcp_report *rep, struct batch x,
                          const struct batch *one)
{
    return cut_anyhow(rep, x, one, 1, "even cuts and token recurrence");
}

static int every_cut(struct kcp_report *rep)
{
    return each(rep, (struct batch){ .R = 1, .walk = 1 }, against_tokens);
}
KCP_CHECK(check_16_every_cut) = { "16_family", "every_cut",
    "on 1 to 12 ranks with any cuts and forms, outputs and gradients agree with "
    "the token recurrence to 1e-12", every_cut };

static int canonical(struct kcp_report *rep)
{
    return each(rep, (struct batch){ .R = 1, .L = 48 }, cut_canonically);
}
KCP_CHECK(check_16_canonical) = { "16_family", "canonical",
    "canonical segments give equal bits for R = 1, 2, 3, 4 and 8, with and "
    "without h_kept", canonical };

static int same_again(struct kcp_report *rep, struct batch x, const struct batch *one)
{
    int status = hold(rep, x, one, -1, "a second run");
    x.keep = 1;
    return status ? status : hold(rep, x, one, -1, "h_kept against a second exchange");
}

static int kept(struct kcp_report *rep)
{
    return each(rep, (struct batch){ .R = 5 }, same_again);
}
KCP_CHECK(check_16_kept) = { "16_family", "kept",
    "a second run and a run with h_kept give equal bits", kept };

/* Returns the loss sum o do + sum ht dht of the batch. */
static double loss(struct batch *x)
{
    struct kcp_comm comm = { .R = 1 };
    struct kcp_family a = call(x, &comm);
    double sum = 0;
    if (ref_family_step(&a))
        return NAN;
    for (int e = 0; e < VALUES; e++) sum += x->out[O][e] * x->in[DO][e];
    for (int e = 0; e < STATES; e++) sum += x->out[HT][e] * x->in[DHT][e];
    return sum;
}

static int some_slopes(struct kcp_report *rep, struct batch x, const struct batch *one)
{
    static const int of[] = { Q, KEY, VAL, G, A, B, OMEGA, H0 };
    static const int grad[] = { DQ, DK, DV, DG, DA, DB, DOMEGA, DH0 };
    struct stream s = stream_of(16, "slopes");
    if (outputs_add(x.out, out_size, OUTPUTS)) return KCP_NO_MEMORY;
    x.plan = one->plan;
    for (int j = 0; j < 8; j++) {
        double r = 0;
        for (int e = 0; e < in_size[of[j]]; e++)
            r += one->out[grad[j]][e] * one->out[grad[j]][e];
        r = sqrt(r / in_size[of[j]]);
        for (int i = 0; i < 25; i++) {
            const int e = (int)(uniform(&s) * in_size[of[j]]);
            const double is = one->out[grad[j]][e];
            const double by = slope(loss, &x, &x.in[of[j]][e]);
            const double tol = of[j] == G ? 1e-8 : 1e-9;     /* exp is not polynomial */
            EXPECT(rep, fabs(is - by) <= tol * fmax(fmax(r, fabs(by)), 1e-3),
                   "%s: %s[%d] is %.12g, finite difference %.12g", model_name[x.model],
                   out_name[grad[j]], e, is, by);
        }
    }
    x.plan = NULL;
    drop(&x);
    return KCP_OK;
}

static int differences(struct kcp_report *rep)
{
    const int status = each(rep, (struct batch){ .R = 1, .walk = 1 }, some_slopes);
    return status ? status : each(rep, (struct batch){ .R = 1 }, some_slopes);
}
KCP_CHECK(check_16_differences) = { "16_family", "differences",
    "gradients by tokens and by chunks agree with finite differences of the loss",
    differences };
