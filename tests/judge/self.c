/* self.c -- the judge judged: what it must see, it is shown.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself.
 * Next: self_workspace.c.
 *
 * Each tamperer below is the reference of 04 with one thing done to its result or to
 * memory that is not its own. The trial must say exactly what is wrong.
 */
#include "judge.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *o_of(void *a) { return ((struct kcp_chunk *)a)->o; }

static int honest(void *a) { return ref_chunk(a); }
static int put_in_o(void *a, int64_t at, double x)
{
    const int status = ref_chunk(a);
    o_of(a)[at] = x;
    return status;
}
static int one_nan(void *a) { return put_in_o(a, 0, NAN); }
static int one_inf(void *a) { return put_in_o(a, 0, INFINITY); }
static int not_mine(void *a) { return KCP_NA; }
static int refuses(void *a) { return KCP_BAD; }
static int outside(void *a)
{
    const struct kcp_chunk *c = a;
    return put_in_o(a, c->T * c->HV * c->V, 1);
}
static int before(void *a) { return put_in_o(a, -1, 1); }
/* A thousand times the row past the end of u: what lies there must not be small. */
static int reads_past(void *a)
{
    const struct kcp_chunk *c = a;
    const int status = ref_chunk(a);
    o_of(a)[0] += 1000 * ((const double *)c->u)[c->T * c->HV * c->V];
    return status;
}
static int reads_before(void *a)
{
    const int status = ref_chunk(a);
    o_of(a)[0] += 1e-3 * ((const double *)((struct kcp_chunk *)a)->u)[-1];
    return status;
}
static int writes_past_work(void *a)
{
    struct kcp_chunk *c = a;
    ((char *)c->work)[c->work_bytes] = 0;
    return ref_chunk(a);
}
static int writes_before_work(void *a)
{
    ((char *)((struct kcp_chunk *)a)->work)[-1] = 0;
    return ref_chunk(a);
}
static size_t some_work(const void *a) { return 100; }

/* 04 that counts in its workspace, from what it finds there. */
static int counts_on(void *a)
{
    struct kcp_chunk *c = a;
    const double found = *(double *)c->work;
    const int status = ref_chunk(a);
    if (found > 0) o_of(a)[0] += 1;
    *(double *)c->work = 1;
    return status;
}

/* 04 that marks its workspace as made ready, and then counts on the 0 at its end. */
static size_t work_of_tokens(const void *a)
{
    return 8 * (size_t)(2 + ((const struct kcp_chunk *)a)->T);
}
static int marks(void *a)
{
    struct kcp_chunk *c = a;
    const int64_t n = 2 + c->T;
    double *work = c->work;
    const int status = ref_chunk(a);
    if (work[0] != 4.25) work[n - 1] = 0;
    if (work[n - 1] != 0) o_of(a)[0] += 1;
    for (int64_t i = 0; i < n - 1; i++) work[i] = 4.25;
    return status;
}

/* 04 that does not bear what a call of its own size left there. */
static int counts_own(void *a)
{
    struct kcp_chunk *c = a;
    double *work = c->work;
    const int status = ref_chunk(a);
    if (work[0] == 4.25 && work[1] == (double)c->T) o_of(a)[0] += 1;
    work[0] = 4.25;
    work[1] = (double)c->T;
    return status;
}

/* 04 that writes its outputs twice, and then leaves what lies there. */
static int writes_twice(void *a)
{
    static int calls;
    return calls++ < 2 ? ref_chunk(a) : KCP_OK;
}

/* 04 that keeps the grid of the sizes it was called with first. */
static int remembers(void *a)
{
    static int64_t T, NC;
    static int cu[8];
    struct kcp_chunk c = *(struct kcp_chunk *)a;
    if (c.NS > 7) return ref_chunk(a);
    if (T != c.T || NC != c.NC) memcpy(cu, c.cu, 4 * (size_t)(c.NS + 1));
    T = c.T;
    NC = c.NC;
    c.cu = cu;
    return ref_chunk(&c);
}

/* 04 that is wrong once in fifty calls. */
static int now_and_then(void *a)
{
    static int calls;
    const int status = ref_chunk(a);
    if (++calls % 50 == 0) o_of(a)[0] += 1;
    return status;
}

/* One token of many is off by six times what the whole may be. */
static int one_token(void *a)
{
    const struct kcp_chunk *c = a;
    const int status = ref_chunk(a);
    for (int v = 0; v < c->V; v++) o_of(a)[70 * c->HV * c->V + v] *= 1 + 6e-12;
    return status;
}

/* 13 that writes where the block of the forward pass has its end. */
static int writes_past_saved(void *a)
{
    struct kcp_backward *b = a;
    ((char *)(void *)(uintptr_t)b->saved)[b->saved_bytes] = 0;
    return ref_backward(a);
}
/* 08 that begins a group of messages and never ends it. */
static int opens_group(void *a)
{
    struct kcp_forward *f = a;
    const int status = ref_forward(f);
    f->comm->group(f->comm, 1);
    return status;
}
static int into_input(void *a)
{
    ref_chunk(a);
    ((double *)((struct kcp_chunk *)a)->u)[0] += 1;
    return KCP_OK;
}
static int moving(void *a)
{
    static int runs;
    ref_chunk(a);
    o_of(a)[0] *= 1 + 1e-15 * (runs++ % 2);
    return KCP_OK;
}

/* The whole result off by a factor of 1 + x: error x in every head. */
static double off_by;
static int scaled(void *a)
{
    const struct kcp_chunk *c = a;
    ref_chunk(a);
    for (int64_t i = 0; i < c->T * c->HV * c->V; i++) o_of(a)[i] *= 1 + off_by;
    return KCP_OK;
}

/* One head of small values wrong: invisible in the whole, plain in its own slice. */
static int one_head(void *a)
{
    const struct kcp_chunk *c = a;
    ref_chunk(a);
    for (int64_t t = 0; t < c->T; t++)
        for (int v = 0; v < c->V; v++)
            o_of(a)[(t * c->HV + c->HV - 1) * c->V + v] *= 1.01;
    return KCP_OK;
}

/* 05 with want: what is not wanted is written all the same, as 0. */
static int unwanted(void *args)
{
    const struct kcp_affine *a = args;
    const int *want = a->want;
    const int64_t n = (int64_t)a->HV * a->K * (a->V + a->K);
    for (int s = 0; s < a->NS; s++)
        if (want[s] != 3)
            for (int64_t i = 0; i < n; i++) ((double *)a->map)[s * n + i] = 0;
    return ref_affine(args);
}

/* 07 that folds 0 through the first map: right, but for an M that nobody need write. */
static int reads_first_M(void *args)
{
    const struct kcp_merge *a = args;
    const int W = a->V + a->K, *range = a->range;
    const double *maps = a->maps;
    const int status = ref_merge(args);
    for (int64_t i = 0; i < (int64_t)a->HV * a->K * a->V && range[0] < range[1]; i++) {
        const int at = a->pass == KCP_BACKWARD ? range[1] - 1 : range[0];
        const int64_t row = (int64_t)at * a->HV * a->K + i / a->V;
        ((double *)a->S)[i] += 0 * maps[row * W + a->V];
    }
    return status;
}

static enum outcome tried(const char *stage, int (*run)(void *), int mixed,
                          struct verdict *t)
{
    const struct kcp_variant v = { stage, "tampered", "", KCP_F64, KCP_HOST, "any", run,
                                   run == writes_past_work || run == counts_on ||
                                   run == writes_before_work ? some_work : NULL };
    const struct kcp_stage *s = stage_find(stage);
    int n;
    struct kcase *list = cases_make(s, 0, 0, 1, 0, &n);
    t->outcome = SKIP;
    for (int i = 0; i < n; i++) {
        if (mixed && !list[i].mixed_want) continue;
        if (list[i].call.HV < 2 || list[i].call.T < 64) continue;
        list[i].id = 0;                         /* the repeated run is for the first */
        judge_case(s, &v, &list[i], KCP_F64, t);
        break;
    }
    free(list);
    return t->outcome;
}

static int sees(struct kcp_report *rep)
{
    struct verdict t;
    EXPECT(rep, tried("04_chunk", honest, 0, &t) == PASS, "the honest one: %s", t.why);
    EXPECT(rep, tried("04_chunk", one_nan, 0, &t) == FAIL && t.worst.nan, "one NaN");
    EXPECT(rep, tried("04_chunk", one_inf, 0, &t) == FAIL && t.worst.nan, "one Inf");
    EXPECT(rep, tried("04_chunk", not_mine, 0, &t) == NA, "n/a is not ok");
    EXPECT(rep, tried("04_chunk", refuses, 0, &t) == FAIL, "a status is a failure");
    EXPECT(rep, tried("04_chunk", outside, 0, &t) == FAIL && strstr(t.why, "past"),
           "a write past the end: %s", t.why);
    EXPECT(rep, tried("04_chunk", reads_past, 0, &t) == FAIL && t.worst.nan,
           "a read past the end: %s", t.why);
    EXPECT(rep, tried("04_chunk", reads_before, 0, &t) == FAIL && t.worst.nan,
           "a read before the start: %s", t.why);
    EXPECT(rep, tried("04_chunk", writes_past_work, 0, &t) == FAIL &&
           strstr(t.why, "past the workspace"), "past the workspace: %s", t.why);
    EXPECT(rep, tried("04_chunk", writes_before_work, 0, &t) == FAIL &&
           strstr(t.why, "before the workspace"), "before the workspace: %s", t.why);
    EXPECT(rep, tried("13_backward", writes_past_saved, 0, &t) == FAIL &&
           strstr(t.why, "past the saved"), "past the saved block: %s", t.why);
    EXPECT(rep, tried("08_forward", opens_group, 0, &t) == FAIL &&
           strstr(t.why, "groups of messages"), "an open group: %s", t.why);
    EXPECT(rep, tried("04_chunk", before, 0, &t) == FAIL && strstr(t.why, "before"),
           "a write before the start: %s", t.why);
    EXPECT(rep, tried("04_chunk", into_input, 0, &t) == FAIL && strstr(t.why, "input"),
           "a write into an input: %s", t.why);
    EXPECT(rep, tried("04_chunk", moving, 0, &t) == FAIL && strstr(t.why, "again"),
           "not the same bits when run again: %s", t.why);
    EXPECT(rep, tried("04_chunk", one_head, 0, &t) == FAIL && t.worst.head > 0,
           "one wrong head, in its own slice");
    EXPECT(rep, tried("05_affine", unwanted, 1, &t) == FAIL && t.worst.nan,
           "a write where the reference leaves memory untouched");
    EXPECT(rep, tried("07_merge", reads_first_M, 0, &t) == FAIL && t.worst.nan,
           "a read of what nobody wrote");
    return KCP_OK;
}
KCP_CHECK(check_00_sees) = { "00_judge", "sees",
    "NaN, Inf, n/a, stray writes, moving bits, one head, unwanted parts: each named",
    sees };

/* Three calls, of which the last two have one size: what the first one left is laid
 * before the third is run again, and not what the second one left. */
static int kept_by_size(struct kcp_report *rep)
{
    static const char *const lengths[] = { "40", "17", "17" };
    const struct kcp_variant v = { "04_chunk", "tampered", "", KCP_F64, KCP_HOST, "any",
                                   marks, work_of_tokens };
    struct verdict t;
    char words[120], why[120];
    for (int i = 0; i < 3; i++) {
        struct kcase k;
        const int id = i < 2 ? 2 : 1;                  /* 2: as the last one left it */
        snprintf(words, sizeof words, "live kda H=1 HV=1 K=8 V=8 C=16 lengths=%s id=%d",
                 lengths[i], id);
        if (case_parse(words, &k, why, sizeof why)) return KCP_BAD;
        judge_case(stage_find("04"), &v, &k, KCP_F64, &t);
    }
    EXPECT(rep, t.outcome == FAIL && strstr(t.why, "again"), "a workspace as a call of "
           "another size left it, after one of its own size: %s", t.why);
    return KCP_OK;
}

static int remains(struct kcp_report *rep)
{
    struct verdict t;
    int n, m = 0;
    const struct kcp_variant v = { "04_chunk", "tampered", "", KCP_F64, KCP_HOST, "any",
                                   remembers, NULL };
    EXPECT(rep, tried("04_chunk", counts_on, 0, &t) == FAIL && strstr(t.why, "again"),
           "it reads what it left in its workspace: %s", t.why);
    EXPECT(rep, tried("04_chunk", now_and_then, 0, &t) == FAIL &&
           strstr(t.why, "again"), "once in fifty calls: %s", t.why);
    EXPECT(rep, tried("04_chunk", writes_twice, 0, &t) == FAIL &&
           strstr(t.why, "again"), "it leaves the outputs of before: %s", t.why);
    EXPECT(rep, tried("04_chunk", one_token, 0, &t) == FAIL, "one token of many");
    struct kcase *list = cases_anchors(stage_find("04"), 0, 1, 0, 0, &n);
    for (int i = 0; i < n; i++) {
        judge_case(stage_find("04"), &v, &list[i], KCP_F64, &t);
        m += t.outcome == FAIL;
    }
    EXPECT(rep, m, "a grid that is remembered by its sizes: no case sees it");
    struct kcp_variant marked = { "04_chunk", "tampered", "", KCP_F64, KCP_HOST, "any",
                                  marks, work_of_tokens };
    for (int own = 0; own < 2; own++) {
        marked.run = own ? counts_own : marks;
        m = 0;
        for (int i = 1; i < n; i++) {
            list[i].id = 1 + i % 2;                    /* these are run again */
            judge_case(stage_find("04"), &marked, &list[i], KCP_F64, &t);
            m += t.outcome == FAIL && strstr(t.why, "again");
        }
        EXPECT(rep, m, "a workspace as a call of %s size left it: unseen",
               own ? "its own" : "another");
    }
    free(list);
    return kept_by_size(rep);
}
KCP_CHECK(check_00_remains) = { "00_judge", "remains",
    "what remains of other calls, what is wrong now and then or in one token: seen",
    remains };

static int tells(struct kcp_report *rep)
{
    static const struct { double by; enum outcome is; } row[] = {
        { 0.5e-12, PASS }, { 0.95e-12, MARGINAL }, { 1.1e-12, FAIL },
        { -1.1e-12, FAIL } };
    struct verdict t;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        off_by = row[i].by;
        const enum outcome got = tried("04_chunk", scaled, 0, &t);
        EXPECT(rep, got == row[i].is, "off by %g: %s, error %g", off_by,
               outcome_name[got],
               t.worst.err);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_tells) = { "00_judge", "tells",
    "just under, within 10 % of and just over the tolerance are told apart", tells };

static int rounds(struct kcp_report *rep)
{
    const struct { double x, is; } row[] = {
        { 1 + 0x1p-8, 1 },               { 1 + 3 * 0x1p-8, 1 + 0x1p-6 },   /* to even */
        { 1 + 0x1p-8 + 0x1p-20, 1 + 0x1p-7 }, { -1 - 0x1.8p-8, -1 - 0x1p-7 } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        EXPECT(rep, to_storage(row[i].x, KCP_BF16) == row[i].is,
               "%a becomes %a, not %a",
               row[i].x, to_storage(row[i].x, KCP_BF16), row[i].is);
    double x[3] = { 0.5, -2, NAN }, y[3];
    unsigned char bytes[24];
    memset(&x[2], 0xff, 8);
    for (size_t width = 2; width <= 8; width *= 2) {
        encode(bytes, x, 3, width);
        decode(y, bytes, 3, width);
        EXPECT(rep, !memcmp(x, y, sizeof x), "%zu bytes: poison and numbers survive",
               width);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_rounds) = { "00_judge", "rounds",
    "bf16 to nearest even; poison survives every storage", rounds };

static int enough(struct kcp_report *rep)
{
    for (int i = 0; i < kcp_nstages; i++) {
        const struct kcp_variant *v[256];
        const int n = kcp_variants(kcp_stages[i].name, NULL, v, 256);
        int mutants = 0, twins = 0;
        for (int j = 0; j < n; j++) {
            mutants += is_mutant(v[j]);
            twins += !strncmp(v[j]->name, "twin", 4);
        }
        EXPECT(rep, mutants >= 5 && twins >= 1, "%s: %d mutants, %d twins",
               kcp_stages[i].name, mutants, twins);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_enough) = { "00_judge", "enough",
    "every stage has at least five mutants and a twin", enough };
