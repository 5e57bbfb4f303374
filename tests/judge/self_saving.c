/* self_saving.c -- a forward that saves is judged too: wrong o and ht are seen by 13.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself: the right one
 * passes.  Next: self_plants.c.
 *
 * 08 is judged without a block. What forward gives where it leaves one stands in 13's
 * trials alone, before the backward that reads the block.
 */
#include "trial.h"

#include <stdlib.h>
#include <string.h>

static enum kcp_save only;               /* in which mode the mistake is */

static int scaled_o(struct kcp_forward *a)
{
    const int status = ref_forward(a);
    double *o = a->o;
    for (int64_t i = 0; i < a->T * a->HV * a->V && a->save == only && !status; i++)
        o[i] *= 1.1;
    return status;
}

/* The row of the first sequence that ends on this rank. */
static int wrong_ht(struct kcp_forward *a)
{
    const int status = ref_forward(a);
    const int64_t row = (int64_t)a->HV * a->K * a->V;
    double *ht = a->ht;
    int n = 0;
    while (n < a->N && a->plan->ht_rank[n] != a->r) n++;
    for (int64_t i = 0; i < row && n < a->N && a->save == only && !status; i++)
        ht[n * row + i] += .5;
    return status;
}

static int past_o(struct kcp_forward *a)
{
    const int status = ref_forward(a);
    double *o = a->o;
    if (a->save == only && !status) o[a->T * a->HV * a->V] = 0;
    return status;
}

static int without_o(struct kcp_forward *a)
{
    const int status = ref_forward(a);
    if (a->save == only && a->T && !status) memset(a->o, 0xff, 8);
    return status;
}

static int stage_13(void *args) { return ref_backward(args); }

/* In how many of the cases; *t: of the last that saw it. */
static int seen(int (*forward)(struct kcp_forward *), enum kcp_storage judged,
                const struct kcase *list, int n, struct verdict *t)
{
    static const struct kcp_variant v = { "13_backward", "mutant_forward", "", KCP_F64,
                                          KCP_HOST, "any", stage_13, NULL };
    int count = 0;
    trial_forward = forward;
    for (int i = 0; i < n; i++) {
        struct verdict one;
        judge_case(stage_find(v.stage), &v, &list[i], judged, &one);
        if (one.outcome == PASS && !count) *t = one;
        if (one.outcome != FAIL) continue;
        count++;
        *t = one;
    }
    trial_forward = ref_forward;
    return count;
}

/* Short cases of 13's own list that keep a block of this kind: 3 at most. */
static int cases_that_save(enum kcp_save save, struct kcase *out)
{
    const struct kcp_stage *s = stage_find("13");
    int drawn, all, n = 0;
    struct kcase *list = cases_make(s, 0, 0, 1, 0, &drawn);
    struct kcase *more = cases_anchors(s, 0, 1, 0, drawn, &all);
    for (int i = 0; list && more && i < drawn + all && n < 3; i++) {
        const struct kcase *k = i < drawn ? &list[i] : &more[i - drawn];
        if (k->call.save == save && k->call.T < 300) out[n++] = *k;
    }
    free(list);
    free(more);
    only = save;
    return n;
}

/* A mistake of values, at each storage's limits: the failure names forward's output. */
static void by_values(struct kcp_report *rep, int (*forward)(struct kcp_forward *),
                      enum kcp_save save, const char *field)
{
    struct kcase list[3];
    const int n = cases_that_save(save, list);
    for (int judged = KCP_F64; judged <= KCP_BF16; judged++) {
        struct verdict t = { .why = "" };
        const int right = seen(ref_forward, judged, list, n, &t);
        EXPECT(rep, n == 3 && !right, "save=%d: %d of %d right ones fail: %s %.1e",
               save, right, n, t.worst.field, t.worst.err);
        const int count = seen(forward, judged, list, n, &t);
        EXPECT(rep, count == n && t.worst.of_forward && !strcmp(t.worst.field, field),
               "save=%d, %s: %d of %d see it; the last says %s", save, field, count, n,
               t.worst.field);
    }
}

static int saving(struct kcp_report *rep)
{
    struct kcase list[3];
    struct verdict t = { .why = "" };
    const struct kcp_stage *s = stage_find("08"), *back = stage_find("13");
    for (int i = 0, at = back->nfields; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i], *of = trial_field(back, at);
        if (field_in(f)) continue;
        EXPECT(rep, of && !strcmp(f->name, of->name) && !strcmp(f->shape, of->shape) &&
               f->io == of->io && f->when == of->when && f->store == of->store &&
               stage_of_field(back, of) == s && of->at + 8 <= back->args + BEHIND_ARGS,
               "08's %s is no output of 13's trials as it is of 08's", f->name);
        at++;
    }
    by_values(rep, scaled_o, KCP_SAVE_ALL, "o");
    by_values(rep, wrong_ht, KCP_SAVE_LIGHT, "ht");
    by_values(rep, without_o, KCP_RECOMPUTE, "o");
    const int n = cases_that_save(KCP_SAVE_ALL, list);
    EXPECT(rep, seen(past_o, KCP_F64, list, n, &t) == n &&
           strstr(t.why, "past forward's o"), "o past its end: %s", t.why);
    return KCP_OK;
}
KCP_CHECK(check_00_saving) = { "00_judge", "saving",
    "o and ht of a forward that saves: wrong, unwritten or past the end, 13 sees it",
    saving };
