/* self_plants.c -- the judge judged: mistakes that its lists of cases must see.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself: who is refused is
 * not seen by values.  Next: self_carried.c, self_alike.c.
 *
 * Each was once planted in a kernel and passed. Here they are put around the
 * references, so that no GPU is needed: maps composed wrongly, kept maps halved or
 * zeroed, options that are ignored.
 */
#include "self_plants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- seen? */
struct planted_at planted_at;
const int planted_sizes[PLANTED_SIZES][2] = { { 64, 64 }, { 128, 128 }, { 64, 128 },
                                              { 128, 64 } };

int planted_here(const struct kcp_call *c)
{
    return !planted_at.K || (c->K == planted_at.K && c->V == planted_at.V &&
                             (int)c->model == planted_at.model);
}

static double cost(const struct kcase *k)
{
    return (double)k->call.T * k->call.HV * k->call.K * (k->call.V + k->call.K);
}

static int by_cost(const void *a, const void *b)
{
    const double x = cost(*(const struct kcase *const *)a);
    const double y = cost(*(const struct kcase *const *)b);
    return (x > y) - (x < y);
}

/* Is a value off by more than its limit, or was it refused where that is asked? */
static int is_seen(const struct plant *p, const struct verdict *t)
{
    const int by_value = t->worst.tol > 0 &&
                         (t->worst.nan || !(t->worst.err <= t->worst.tol));
    return t->outcome == FAIL && (p->by_status ? !(t->worst.tol > 0) : by_value);
}

struct sight plant_seen(const struct plant *p, const struct kcase *list, int n,
                        int first)
{
    const struct kcp_variant v = { p->stage, "planted", "", p->storage, KCP_HOST, "any",
                                   p->run, NULL };
    const struct kcase **here = alloc_or_exit(sizeof *here * (size_t)(n + 1));
    struct sight seen = { 0 };
    const int asked = repeats_asked;
    int m = 0;
    repeats_asked = 0;                  /* it is the lists that are asked */
    for (int i = 0; i < n; i++)
        if (planted_here(&list[i].call)) here[m++] = &list[i];
    qsort(here, (size_t)m, sizeof *here, by_cost);
    for (int i = 0; i < m && !(first && seen.cases); i++) {
        struct verdict t = { .outcome = SKIP };
        judge_case(stage_find(p->stage), &v, here[i], p->judged, &t);
        if (t.why[0]) memcpy(seen.why, t.why, sizeof seen.why);
        if (!is_seen(p, &t)) continue;
        seen.cases++;
        const double limits = t.worst.nan ? HUGE_VAL : t.worst.err / t.worst.tol;
        if (limits > seen.limits) seen.limits = limits;
    }
    repeats_asked = asked;
    free(here);
    return seen;
}

/* ---- what crosses a cut */
static int compose_wrong(int HV, int K, int V, const void *b, const void *a,
                         int backward, int a_first, void *out,
                         struct CUstream_st *stream)
{
    double *x = out;
    const int status = ref_mapops.compose(HV, K, V, b, a, backward, a_first, out,
                                          stream);
    for (int64_t i = 0; i < (int64_t)HV * K * (V + K); i++)
        if (i % (V + K) < V) x[i] = ((const double *)b)[i];     /* no M_b h_a */
    return status;
}

static int wrong_ops(struct kcp_call *c, struct kcp_mapops *ops)
{
    *ops = ref_mapops;
    ops->compose = compose_wrong;
    c->ops = ops;
    return KCP_OK;
}

static int composed_08(void *args)
{
    struct kcp_forward a = *(struct kcp_forward *)args;
    struct kcp_mapops ops;
    wrong_ops((struct kcp_call *)&a, &ops);
    return ref_forward(&a);
}

static int composed_13(void *args)
{
    struct kcp_backward a = *(struct kcp_backward *)args;
    struct kcp_mapops ops;
    wrong_ops((struct kcp_call *)&a, &ops);
    return ref_backward(&a);
}

/* Forward's gathered maps, of which backward takes M, are so many times as large. */
static int kept_times(struct kcp_backward *a, double factor)
{
    const struct kcp_saved *s = a->saved;
    double *kept = a->reuse_M ? kcp_saved_at(a->saved, "kept") : NULL;
    for (uint32_t i = 0; kept && i < s->items; i++)
        if (!strcmp(s->item[i].name, "kept"))
            for (uint64_t j = 0; j < s->item[i].bytes / 8; j++) kept[j] *= factor;
    return ref_backward(a);
}
static int kept_halved(void *args) { return kept_times(args, .5); }
static int kept_zeroed(void *args) { return kept_times(args, 0); }

/* ---- options */
static int both_parts(void *args)
{
    struct kcp_chunk_backward a = *(struct kcp_chunk_backward *)args;
    a.part = KCP_LOCAL | KCP_REVERSE;
    return ref_chunk_backward(&a);
}

static int wants_h_in(void *args)
{
    return ((struct kcp_chunk *)args)->h_in ? ref_chunk(args) : KCP_BAD;
}

static int wants_ops(void *args)
{
    return ((struct kcp_forward *)args)->ops ? ref_forward(args) : KCP_BAD;
}

/* ---- each is seen */
static const struct { const char *what; struct plant plant; } at_cuts[] = {
    { "maps composed wrongly", { "08_forward", composed_08, KCP_F64, KCP_BF16, 0 } },
    { "maps composed wrongly", { "13_backward", composed_13, KCP_F64, KCP_BF16, 0 } },
    { "kept maps halved", { "13_backward", kept_halved, KCP_F64, KCP_BF16, 0 } },
    { "kept maps zeroed", { "13_backward", kept_zeroed, KCP_F64, KCP_BF16, 0 } } };

/* Of a stage, at one size and model: one plant after another, for they share cases. */
static void seen_at_cuts(struct kcp_report *rep, const char *stage,
                         const struct kcase *list, int n)
{
    for (size_t p = 0; p < sizeof at_cuts / sizeof *at_cuts; p++) {
        if (strcmp(at_cuts[p].plant.stage, stage)) continue;
        const struct sight seen = plant_seen(&at_cuts[p].plant, list, n, 1);
        EXPECT(rep, seen.cases, "%s, %s %s K=%d V=%d: no case sees it; %s", stage,
               at_cuts[p].what, model_name[planted_at.model], planted_at.K,
               planted_at.V, seen.why);
    }
}

static int crossed(struct kcp_report *rep)
{
    static const char *const stages[] = { "08_forward", "13_backward" };
    for (int i = 0; i < 4; i++) {
        const int wide = i % 2;
        int n, far = 0;
        struct kcase *list = cases_anchors(stage_find(stages[i / 2]), wide, 1, 0, 0,
                                           &n);
        for (int j = 0; j < n; j++)
            if (list[j].call.R > 2) list[far++] = list[j];
        for (int j = 0; j < (wide ? 2 * PLANTED_SIZES : 2); j++) {
            planted_at = (struct planted_at){ 8, 6, j % 2 };
            if (wide) planted_at.K = planted_sizes[j / 2][0];
            if (wide) planted_at.V = planted_sizes[j / 2][1];
            seen_at_cuts(rep, stages[i / 2], list, far);
        }
        planted_at.K = 0;
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_crossed) = { "00_judge", "crossed",
    "maps composed wrongly, kept maps halved or zeroed, are seen in each model and at"
    " each size", crossed };

static int left_out(struct kcp_report *rep)
{
    /* Who does not bear that something is NULL says so, and computes nothing. */
    static const struct { const char *what; struct plant plant; } plants[] = {
        { "both parts", { "09_chunk_backward", both_parts, KCP_F64, KCP_F64, 0 } },
        { "h_in wanted", { "04_chunk", wants_h_in, KCP_F64, KCP_F64, 1 } },
        { "ops wanted", { "08_forward", wants_ops, KCP_F64, KCP_F64, 1 } } };
    for (int p = 0; p < 3; p++) {
        const struct plant *plant = &plants[p].plant;
        int n;
        struct kcase *list = cases_anchors(stage_find(plant->stage), 0, 1, 0, 0, &n);
        struct plant by_value = *plant;
        by_value.by_status = 0;
        EXPECT(rep, plant_seen(plant, list, n, 1).cases, "%s, %s", plant->stage,
               plants[p].what);
        EXPECT(rep, !plant->by_status || !plant_seen(&by_value, list, n, 1).cases,
               "%s, %s: a status is taken for a value", plant->stage, plants[p].what);
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_left_out) = { "00_judge", "left_out",
    "who ignores which part is asked, or needs states or ops that may be NULL, is seen",
    left_out };
