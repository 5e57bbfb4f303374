/* checks.c -- each model: its adjoint by differences; equal results for all cuts.
 *
 * Book: chapter 16.  Checked by: itself, it can fail.
 * Next: tests/16_family/relatives.c.
 */
#include "run.h"

static const enum kcp_model models[] = { KCP_DPLR, KCP_GDN2, KCP_GLA };

/* Runs x and compares it with `to`, bit by bit or within tol. */
static int hold(struct kcp_report *rep, struct batch x, const struct batch *to,
                double tol, const char *what)
{
    char why[160];
    int worst = 0;
    const int status = go(&x, why);
    const double err = status ? NAN : apart(&x, to, &worst);
    EXPECT(rep, !status, "%s, R = %d: status %d, %s", what, x.R, status, why);
    EXPECT(rep, status || err <= tol, "%s, %s %s, R = %d, L = %lld: %s differs by %.2g",
           what, model_name[x.model], kcp_form_names[x.form], x.R, (long long)x.L,
           out_name[worst], err);
    for (int r = 0; r < x.R && !status; r++)
        EXPECT(rep, x.walk || x.traffic[r].bytes == x.formula[r].bytes,
               "%s, rank %d sent %lld bytes, not %lld", what, r,
               (long long)x.traffic[r].bytes, (long long)x.formula[r].bytes);
    drop(&x);
    return status == KCP_NO_MEMORY ? status : KCP_OK;
}

/* Calls the check with one reference run per model. */
static int each(struct kcp_report *rep, struct batch x,
                int (*with)(struct kcp_report *, struct batch, const struct batch *))
{
    int status = KCP_OK;
    for (int j = 0; j < 3 && !status; j++) {
        char why[160];
        x.model = models[j];
        status = draw(&x);
        struct batch one = x;
        one.cuts = NULL;
        status = status ? status : go(&one, why);
        EXPECT(rep, !status, "%s to compare with: status %d", model_name[x.model],
               status);
        status = status ? status : with(rep, x, &one);
        drop(&one);
        drop_inputs(&x);
    }
    return status;
}


static int cut_anyhow(struct kcp_report *rep, struct batch x, const struct batch *one)
{
    int status = KCP_OK;
    x.walk = 0;
    for (int form = 0; form < KCP_FORMS && !status; form++)
        for (int R = 1; R <= MOST && !status; R += R < 5 ? 1 : 7) {
            x.form = form; x.R = R; x.cuts = NULL;
            status = hold(rep, x, one, 1e-12, "even cuts against token by token");
        }
    for (int form = 0; form < KCP_FORMS && !status; form++) {
        x.form = form; x.R = 7; x.cuts = uneven; x.keep = 0;
        status = hold(rep, x, one, 1e-12, "uneven cuts, an empty rank");
        x.R = 6; x.cuts = late; x.keep = 1;
        status = status ? status : hold(rep, x, one, 1e-12, "empty ranks at both ends");
    }
    return status;
}

static int every_cut(struct kcp_report *rep)
{
    return each(rep, (struct batch){ .R = 1, .walk = 1 }, cut_anyhow);
}
KCP_CHECK(check_16_every_cut) = { "16_family", "every_cut",
    "1..12 ranks, uneven, empty, every form: o, ht, all gradients within 1e-12 of the "
    "token recurrence", every_cut };

static int cut_canonically(struct kcp_report *rep, struct batch x,
                           const struct batch *one)
{
    static const int R[] = { 1, 2, 3, 4, 8 };
    int status = KCP_OK;
    for (int form = 0; form < KCP_FORMS && !status; form++)
        for (int j = 0; j < 5 && !status && kcp_form_in_order(form); j++) {
            x.form = form;
            x.R = R[j];
            x.keep = j & 1;
            status = hold(rep, x, one, -1, "canonical segments");
        }
    x.form = KCP_ALL_GATHER; x.R = 7; x.cuts = uneven;
    return status ? status : hold(rep, x, one, -1, "canonical segments, moved cuts");
}

static int canonical(struct kcp_report *rep)
{
    return each(rep, (struct batch){ .R = 1, .L = 48 }, cut_canonically);
}
KCP_CHECK(check_16_canonical) = { "16_family", "canonical",
    "canonical segments: the same bits for R = 1, 2, 3, 4, 8, with h_kept and without",
    canonical };

static int same_again(struct kcp_report *rep, struct batch x, const struct batch *one)
{
    int status = hold(rep, x, one, -1, "the same cuts again");
    x.keep = 1;
    return status ? status : hold(rep, x, one, -1, "h_kept against a second exchange");
}

static int kept(struct kcp_report *rep)
{
    return each(rep, (struct batch){ .R = 5 }, same_again);
}
KCP_CHECK(check_16_kept) = { "16_family", "kept",
    "run twice, and with the initial states kept by chapter 12: the same bits", kept };

/* loss = sum o do + sum ht dht, token by token */
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
                   "%s: %s[%d] is %.12g, by differences %.12g", model_name[x.model],
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
    "the adjoint token by token, and chunk by chunk, against differences of the loss",
    differences };
