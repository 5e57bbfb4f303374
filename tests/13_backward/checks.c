/* checks.c -- one batch with many cuts, forward and backward: results must agree.
 *
 * Book: chapters 12 and 13.  Checked by: itself, it can fail.  Next: ref/14_conv.c.
 * The judge compares single runs with the token recurrence; here runs are compared with
 * each other, most of them bit by bit.
 */
#include "batch.h"
#include "core/split.h"

/* The worst relative RMS of an output against another run's; -1: all bits are equal. */
static double apart(const struct batch *a, const struct batch *b, int *worst)
{
    double most = -1;
    for (int j = 0; j < OUTPUTS; j++) {
        const int64_t n = out_size(a, j);
        double d = 0, r = 0;
        if (memcmp(a->out[j], b->out[j], sizeof(double) * n) == 0)
            continue;
        for (int64_t e = 0; e < n; e++) {
            d += (a->out[j][e] - b->out[j][e]) * (a->out[j][e] - b->out[j][e]);
            r += b->out[j][e] * b->out[j][e];
        }
        const double err = r > 0 ? sqrt(d / r) : NAN;
        if (!(err <= most)) {
            most = err;
            *worst = j;
        }
    }
    return most;
}

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
           what, x.model ? "GDN" : "KDA", kcp_form_names[x.form], x.R, (long long)x.L,
           out_name[worst], err);
    for (int r = 1; !status && r < x.R; r++)
        EXPECT(rep, memcmp(x.params + r * HV * (1 + wide(&x)), x.params,
                           sizeof(double) * HV * (1 + wide(&x))) == 0,
               "%s: rank %d has other parameter gradients than rank 0", what, r);
    drop(&x);
    return status == KCP_NO_MEMORY ? status : KCP_OK;
}

/* Calls each(to) with one reference run of both models. */
static int both(struct kcp_report *rep, struct batch x,
                int (*with)(struct kcp_report *, struct batch, const struct batch *))
{
    int status = KCP_OK;
    for (int model = 0; model < 2 && !status; model++) {
        char why[160];
        x.model = model ? KCP_GDN : KCP_KDA;
        double *inputs = draw(&x);
        struct batch one = x;
        status = inputs ? go(&one, why) : KCP_NO_MEMORY;
        EXPECT(rep, !status, "the run to compare with: status %d, %s", status, why);
        status = status ? status : with(rep, x, &one);
        drop(&one);
        free(inputs);
    }
    return status;
}

static const int64_t uneven[] = { 0, 3, 3, 130, 131, 205, 263, 421 };
static const int64_t late[] = { 0, 0, 0, 64, 400, 421, 421 };

static int cut_anyhow(struct kcp_report *rep, struct batch x, const struct batch *one)
{
    int status = KCP_OK;
    for (int form = 0; form < KCP_FORMS && !status; form++)
        for (int R = 2; R <= MOST && !status; R += R < 5 ? 1 : 7) {
            x.form = form; x.R = R; x.cuts = NULL;
            status = hold(rep, x, one, 1e-12, "even cuts against one rank");
        }
    for (int form = 0; form < KCP_FORMS && !status; form++) {
        x.form = form; x.R = 7; x.cuts = uneven;
        status = hold(rep, x, one, 1e-12, "uneven cuts, an empty rank");
        x.R = 6; x.cuts = late;
        status = status ? status : hold(rep, x, one, 1e-12, "empty ranks at both ends");
    }
    return status;
}

static int one_rank(struct kcp_report *rep)
{
    return both(rep, (struct batch){ .R = 1 }, cut_anyhow);
}
KCP_CHECK(check_13_one_rank) = { "13_backward", "one_rank",
    "2..12 ranks, uneven cuts, empty ranks, every form: within 1e-12 of one rank",
    one_rank };

static int cut_canonically(struct kcp_report *rep, struct batch x,
                           const struct batch *one)
{
    static const int R[] = { 1, 2, 3, 4, 8 };
    int status = KCP_OK;
    for (int form = 0; form < KCP_FORMS && !status; form++)
        for (int j = 0; j < 5 && !status && kcp_form_in_order(form); j++) {
            x.form = form; x.R = R[j];
            status = hold(rep, x, one, -1, "canonical segments");
        }
    x.form = KCP_ALL_GATHER; x.R = 7; x.cuts = uneven;
    status = status ? status : hold(rep, x, one, -1, "canonical segments, moved cuts");
    x.save = KCP_SAVE_ALL;
    status = status ? status : hold(rep, x, one, -1, "canonical segments, save-all");
    x.save = KCP_SAVE_LIGHT;
    status = status ? status : hold(rep, x, one, -1, "canonical segments, light");
    x.form = KCP_SCAN;
    return status ? status : hold(rep, x, one, 1e-12, "canonical segments, scan");
}

static int canonical(struct kcp_report *rep)
{
    return both(rep, (struct batch){ .R = 1, .L = 48 }, cut_canonically);
}
KCP_CHECK(check_13_canonical) = { "13_backward", "canonical",
    "canonical segments: the same bits for R = 1, 2, 3, 4, 8, dA_log, ddt_bias too",
    canonical };

static int keep_more(struct kcp_report *rep, struct batch x, const struct batch *one)
{
    int status = hold(rep, x, one, -1, "the same cuts again");
    x.save = KCP_SAVE_ALL;
    status = status ? status : hold(rep, x, one, -1, "save-all against recompute");
    x.save = KCP_SAVE_LIGHT;
    status = status ? status : hold(rep, x, one, -1, "light against recompute");
    for (int i = 0; i < 12 && !status; i++) {
        x.form = (enum kcp_form)(i % 4); x.reuse_M = 1; x.save = (enum kcp_save)(i / 4);
        status = hold(rep, x, one, 1e-12, "reuse_M against two M chains");
    }
    return status;
}

static int modes(struct kcp_report *rep)
{
    const struct batch x = { .R = 5, .layout = KCP_VK };
    return both(rep, x, keep_more);
}
KCP_CHECK(check_13_modes) = { "13_backward", "modes",
    "run twice and in all memory modes the same bits; reuse_M within 1e-12", modes };

/* dht and h0 in [V,K] layout give the same results as in [K,V]. */
static int layouts(struct kcp_report *rep)
{
    struct batch kv = { .R = 4 }, vk = { .R = 4, .layout = KCP_VK };
    const int64_t n = out_size(&kv, DH0), shift[] = { H0, DHT };
    char why[160];
    double *inputs = draw(&kv), *turned = malloc(sizeof(double) * 2 * n);
    int status = inputs && turned ? KCP_OK : KCP_NO_MEMORY, differ = 0;

    memcpy(vk.in, kv.in, sizeof kv.in);
    for (int j = 0; j < 2 && !status; j++) {
        for (int64_t e = 0; e < n; e++)
            turned[j * n + e / (K * V) * K * V + e % V * K + e / V % K]
                = kv.in[shift[j]][e];
        vk.in[shift[j]] = turned + j * n;
    }
    status = status ? status : go(&kv, why);
    status = status ? status : go(&vk, why);
    for (int64_t e = 0; e < n && !status; e++) {
        const int64_t at = e / (K * V) * K * V + e % V * K + e / V % K;
        differ += kv.out[DH0][e] != vk.out[DH0][at] || kv.out[HT][e] != vk.out[HT][at];
    }
    EXPECT(rep, !status, "status %d, %s", status, why);
    EXPECT(rep, !differ, "%d elements of ht and dh0 differ between layouts", differ);
    EXPECT(rep, status || !memcmp(kv.out[DQ], vk.out[DQ],
                                  sizeof(double) * out_size(&kv, DQ)),
           "dq depends on the layout of the states");
    drop(&kv);
    drop(&vk);
    free(inputs); free(turned);
    return status == KCP_NO_MEMORY ? status : KCP_OK;
}
KCP_CHECK(check_13_layouts) = { "13_backward", "layouts",
    "[V,K] states give the bits of [K,V] states, turned", layouts };

/* One rank's block has another format: all ranks end, and that rank is named. */
static int foreign(struct kcp_report *rep)
{
    struct batch x = { .R = 4, .spoil = 3 };
    char why[160];
    double *inputs = draw(&x);
    const int status = inputs ? go(&x, why) : KCP_NO_MEMORY;
    EXPECT(rep, status == KCP_MISMATCH, "status %d, not KCP_MISMATCH; %s", status, why);
    EXPECT(rep, strstr(why, "rank 2") && strstr(why, "format 9.1, written by ref"),
           "the reason says only \"%s\"", why);
    drop(&x);
    free(inputs);
    return KCP_OK;
}
KCP_CHECK(check_13_foreign) = { "13_backward", "foreign",
    "a foreign block on rank 2 of 4 ends the run with its number and the reason",
    foreign };

/* Bytes: the exchange's formula plus two small sums; with reuse_M no M. */
static int traffic(struct kcp_report *rep)
{
    int64_t sent[2] = { 0, 0 };
    for (int j = 0; j < 8; j++) {
        struct batch x = { .R = 4, .form = j % 4, .reuse_M = j / 4 };
        char why[160];
        double *inputs = draw(&x);
        const int status = inputs ? go(&x, why) : KCP_NO_MEMORY;
        const int64_t sums = (x.R - 1) * sizeof(double) * HV * (1 + K);
        EXPECT(rep, !status, "status %d, %s", status, why);
        int most = 1;
        for (int r = 0; r < x.R && !status; r++)
            most = x.plan->ctx[r].NS > most ? x.plan->ctx[r].NS : most;
        for (int r = 0; r < x.R && !status; r++) {
            EXPECT(rep, x.traffic[r].bytes == x.formula[r].bytes + most * sums,
                   "%s, reuse_M %d: rank %d sent %lld bytes, formula %lld + %lld",
                   kcp_form_names[x.form], x.reuse_M, r, (long long)x.traffic[r].bytes,
                   (long long)x.formula[r].bytes, (long long)(most * sums));
            sent[x.reuse_M] += x.form == KCP_ALL_GATHER ? x.formula[r].bytes : 0;
        }
        drop(&x);
        free(inputs);
    }
    EXPECT(rep, sent[1] * (K + V) == sent[0] * V, "reuse_M sends %lld of %lld bytes, "
           "not V / (K+V) of them", (long long)sent[1], (long long)sent[0]);
    return KCP_OK;
}
KCP_CHECK(check_13_traffic) = { "13_backward", "traffic",
    "bytes are the exchange's formula and two parameter sums; reuse_M sends no M",
    traffic };

/* The two launches of the GPU's scans, of one rank: every segment's states once (not of
 * save-all) and its reverse scan once; and what earlier ranks need in the first. */
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
               "rank %d segment %d: jobs %d, then %d", r, s, first, second);
        EXPECT(rep, !needed || first & (KCP_JOB_DH_EXT | KCP_JOB_REVERSE),
               "rank %d segment %d: jobs %d leave nothing to send", r, s, first);
        EXPECT(rep, alone || !(first & KCP_JOB_REVERSE) || given,
               "rank %d segment %d: reverse before its gradient has come", r, s);
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
    "the scans of a rank's segments before and after the exchange: each once", jobs };
