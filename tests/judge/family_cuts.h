/* family_cuts.h -- cuts a batch in many ways; compares each run with the uncut run.
 *
 * Book: chapters 13, 15, 16.  Checked by: what includes it.
 * Next: tests/16_family/run.h.
 * Include this file after the definitions of struct batch, draw, go, apart and drop. */
#ifndef KCP_TEST_FAMILY_CUTS_H
#define KCP_TEST_FAMILY_CUTS_H

/* ---- functions that the stage's test defines */
/* Selects the model or the masks with index `kind`. Returns 0 if `kind` is too
 * large. */
static int take_kind(struct batch *x, int kind);
/* Sets options that depend on form, R and cuts; these three are set before the call. */
static void take_options(struct batch *x);
/* Writes a name of the run; form, R and L are printed separately. */
static void name_run(const struct batch *x, char name[40]);
/* Checks properties of a run other than its outputs. */
static void hold_more(struct kcp_report *rep, const struct batch *x, const char *what);

/* Runs x and compares outputs with run `to`: bit by bit if tol < 0, else within tol. */
static int hold(struct kcp_report *rep, struct batch x, const struct batch *to,
                double tol, const char *what)
{
    char why[160], name[40];
    int worst = 0;
    const int status = go(&x, why);
    const double err = status ? NAN : apart(&x, to, &worst);
    name_run(&x, name);
    EXPECT(rep, !status, "%s, %s, R = %d: status %d, %s", what, name, x.R, status, why);
    EXPECT(rep, status || err <= tol, "%s, %s %s, R = %d, L = %lld: %s differs by %.2g",
           what, name, kcp_form_names[x.form], x.R, (long long)x.L, out_name[worst],
           err);
    if (!status)
        hold_more(rep, &x, what);
    drop(&x);
    return status == KCP_NO_MEMORY ? status : KCP_OK;
}

/* For each kind, draws inputs, runs x, and passes x and the run to function `with`. */
static int each(struct kcp_report *rep, struct batch x,
                int (*with)(struct kcp_report *, struct batch, const struct batch *))
{
    int status = KCP_OK;
    for (int kind = 0; !status && take_kind(&x, kind); kind++) {
        char why[160] = "", name[40];
        status = draw(&x);
        struct batch one = x;
        status = status ? status : go(&one, why);
        name_run(&x, name);
        EXPECT(rep, !status, "%s to compare with: status %d, %s", name, status, why);
        status = status ? status : with(rep, x, &one);
        drop(&one);
        drop_inputs(&x);
    }
    return status;
}

/* Runs every form on the given cuts and compares each run with run `one`. */
static int cut_at(struct kcp_report *rep, struct batch x, const struct batch *one,
                  int R, const int64_t *cuts, const char *what)
{
    int status = KCP_OK;
    for (int form = 0; form < KCP_FORMS && !status; form++) {
        x.form = form; x.R = R; x.cuts = cuts;
        take_options(&x);
        status = hold(rep, x, one, 1e-12, what);
    }
    return status;
}

/* Tries even cuts for `from` to 12 ranks, then uneven cuts with empty ranks. */
static int cut_anyhow(struct kcp_report *rep, struct batch x, const struct batch *one,
                      int from, const char *what)
{
    int status = KCP_OK;
    for (int R = from; R <= MOST && !status; R += R < 5 ? 1 : 7)
        status = cut_at(rep, x, one, R, NULL, what);
    if (!status) status = cut_at(rep, x, one, 7, uneven, "uneven cuts, an empty rank");
    return status ? status : cut_at(rep, x, one, 6, late, "empty ranks at both ends");
}

static int cut_canonically(struct kcp_report *rep, struct batch x,
                           const struct batch *one)
{
    static const int R[] = { 1, 2, 3, 4, 8 };
    int status = KCP_OK;
    for (int form = 0; form < KCP_FORMS && !status; form++)
        for (int j = 0; j < 5 && !status && kcp_form_in_order(form); j++) {
            x.form = form; x.R = R[j];
            take_options(&x);
            status = hold(rep, x, one, -1, "canonical segments");
        }
    x.form = KCP_ALL_GATHER; x.R = 7; x.cuts = uneven;
    take_options(&x);
    return status ? status : hold(rep, x, one, -1, "canonical segments, moved cuts");
}

#endif
