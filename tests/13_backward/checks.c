/* checks.c -- checks that forward and backward agree for all cuts, forms and modes.
 *
 * Book: chapters 12 and 13.  Checked by: itself, it can fail.  Next: ref/14_conv.c.
 * The judge compares single runs with the token recurrence. This file compares runs
 * with each other, mostly bit for bit.
 */
#include "batch.h"
#include "core/split.h"
#include "tests/judge/family_cuts.h"

static int take_kind(struct batch *x, int kind)
{
    x->model = kind ? KCP_GDN : KCP_KDA;
    return kind < 2;
}

static void take_options(struct batch *x) { }

static void name_run(const struct batch *x, char name[40])
{
    snprintf(name, 40, "%s", model_name[x->model]);
}

static void hold_more(struct kcp_report *rep, const struct batch *x, const char *what)
{
    const int params = HV * (1 + wide(x));
    for (int r = 1; r < x->R; r++)
        EXPECT(rep, !memcmp(x->params + r * params, x->params, sizeof(double) * params),
               "%s: rank %d and rank 0 have different parameter gradients", what, r);
    for (int r = 0; r < x->R && !x->reuse_M; r++)
        EXPECT(rep, !memcmp(&x->ahead[r], &x->formula[0][r], sizeof x->ahead[r]),
               "%s: rank %d: forward sent %lld bytes, formula %lld", what, r,
               (long long)x->ahead[r].bytes, (long long)x->formula[0][r].bytes);
}

static int against_one(struct kcp_report *rep, struct batch x, const struct batch *one)
{
    return cut_anyhow(rep, x, one, 2, "even cuts and one rank");
}

static int one_rank(struct kcp_report *rep)
{
    return each(rep, (struct batch){ .R = 1 }, against_one);
}
KCP_CHECK(check_13_one_rank) = { "13_backward", "one_rank",
    "all forms on 2 to 12 ranks, with uneven cuts and empty ranks, agree with one"
    " rank to 1e-12", one_rank };

static int save_canonically(struct kcp_report *rep, struct batch x,
                            const struct batch *one)
{
    int status = cut_canonically(rep, x, one);
    x.form = KCP_ALL_GATHER; x.R = 7; x.cuts = uneven;
    x.save = KCP_SAVE_ALL;
    status = status ? status : hold(rep, x, one, -1, "canonical segments, save-all");
    x.save = KCP_SAVE_LIGHT;
    status = status ? status : hold(rep, x, one, -1, "canonical segments, light");
    x.form = KCP_SCAN;
    return status ? status : hold(rep, x, one, 1e-12, "canonical segments, scan");
}

static int canonical(struct kcp_report *rep)
{
    return each(rep, (struct batch){ .R = 1, .L = 48 }, save_canonically);
}
KCP_CHECK(check_13_canonical) = { "13_backward", "canonical",
    "canonical segments give equal bits for R = 1, 2, 3, 4 and 8, also of dA_log "
    "and ddt_bias", canonical };

static int keep_more(struct kcp_report *rep, struct batch x, const struct batch *one)
{
    int status = hold(rep, x, one, -1, "a second run");
    x.save = KCP_SAVE_ALL;
    status = status ? status : hold(rep, x, one, -1, "save-all and recompute");
    x.save = KCP_SAVE_LIGHT;
    status = status ? status : hold(rep, x, one, -1, "light and recompute");
    for (int i = 0; i < 12 && !status; i++) {
        x.form = (enum kcp_form)(i % 4); x.reuse_M = 1; x.save = (enum kcp_save)(i / 4);
        status = hold(rep, x, one, 1e-12, "reuse_M and M computed twice");
    }
    return status;
}

static int modes(struct kcp_report *rep)
{
    const struct batch x = { .R = 5, .layout = KCP_VK };
    return each(rep, x, keep_more);
}
KCP_CHECK(check_13_modes) = { "13_backward", "modes",
    "a second run and all memory modes give equal bits, and reuse_M agrees to "
    "1e-12", modes };

static int traffic(struct kcp_report *rep)
{
    int64_t sent[2] = { 0, 0 };
    for (int j = 0; j < 8; j++) {
        struct batch x = { .R = 4, .form = j % 4, .reuse_M = j / 4 };
        char why[160] = "";
        int status = draw(&x);
        status = status ? status : go(&x, why);
        const int64_t sums = (x.R - 1) * sizeof(double) * HV * (1 + K);
        EXPECT(rep, !status, "status %d, %s", status, why);
        int most = 1;
        for (int r = 0; r < x.R && !status; r++)
            most = x.plan->ctx[r].NS > most ? x.plan->ctx[r].NS : most;
        for (int r = 0; r < x.R && !status; r++) {
            EXPECT(rep, x.traffic[r].bytes == x.formula[1][r].bytes + most * sums,
                   "%s, reuse_M %d: rank %d sent %lld bytes, formula %lld + %lld",
                   kcp_form_names[x.form], x.reuse_M, r, (long long)x.traffic[r].bytes,
                   (long long)x.formula[1][r].bytes, (long long)(most * sums));
            sent[x.reuse_M] += x.form == KCP_ALL_GATHER ? x.formula[1][r].bytes : 0;
        }
        drop(&x);
        drop_inputs(&x);
    }
    EXPECT(rep, sent[1] * (K + V) == sent[0] * V, "reuse_M sends %lld of %lld bytes, "
           "not a share of V / (K+V)", (long long)sent[1], (long long)sent[0]);
    return KCP_OK;
}
KCP_CHECK(check_13_traffic) = { "13_backward", "traffic",
    "bytes equal the exchange's formula plus the parameter sums, and reuse_M "
    "sends no M", traffic };

/* Checks which scans of rank r the first and the second GPU launch run. Each segment
 * must have exactly one reverse scan and one scan of states (no scan of states with
 * save-all). The first launch must compute all results that earlier ranks need. */
static void launches(struct kcp_report *rep, const struct kcp_plan *p, int r,
                     enum kcp_save save, int processors)
{
    const struct kcp_call c = { .K = 128, .V = 128, .HV = 32, .KG = 128, .C = 64,
        .NS = p->ctx[r].NS, .NC = p->ctx[r].NC, .R = p->R, .r = r, .save = save,
        .plan = p };
    const int alone = kcp_alone(&c);
    for (int s = 0; s < c.NS; s++) {
        const int first = kcp_scan_jobs(&c, alone, s, 0, processors);
        const int second = kcp_scan_jobs(&c, alone, s, 1, processors);
        const int needed = kcp_plan_want(p, p->ctx[r].seg0 + s, 1) & KCP_WANT_H;
        const int states = save != KCP_SAVE_ALL ? KCP_JOB_STATES : 0;
        const int given = p->seg[p->ctx[r].seg0 + s].last;
        EXPECT(rep, !(first & second) &&
               ((first | second) & ~KCP_JOB_DH_EXT) == (states | KCP_JOB_REVERSE),
               "rank %d segment %d: jobs %d in launch 1, %d in 2", r, s, first, second);
        EXPECT(rep, !needed || first & (KCP_JOB_DH_EXT | KCP_JOB_REVERSE),
               "rank %d segment %d: jobs %d compute no dh_ext", r, s, first);
        EXPECT(rep, alone || !(first & KCP_JOB_REVERSE) || given,
               "rank %d segment %d: reverse scan before its dS arrives", r, s);
    }
}

static int jobs(struct kcp_report *rep)
{
    static const int64_t cu[] = { 0, 70, 71, 300, 1000, 1003 };
    for (int i = 0; i < 32; i++) {
        struct kcp_plan *p = NULL;
        const int R = 1 + i / 8, L = i % 2 ? 128 : 0;
        if (kcp_plan_make(&p, 5, cu, R, NULL, L, 64, 0, NULL)) return KCP_NO_MEMORY;
        for (int r = 0; r < R; r++)
            launches(rep, p, r, i / 2 % 2 ? KCP_SAVE_ALL : KCP_RECOMPUTE,
                     i / 4 % 2 ? 132 : 1000);
        kcp_plan_free(p);
    }
    return KCP_OK;
}
KCP_CHECK(check_13_jobs) = { "13_backward", "jobs",
    "each scan of a segment runs once, before or after the exchange", jobs };
