/* criterion.c -- runs the judge under Criterion on one node, one process per test. Each
 * variant is a test; a stage's mutants, twins and reference are one test, because they
 * share expected outputs.
 *
 * Book: CONTRIBUTING.md.  Checked by: itself.  Next: main.c, the same core without it.
 *
 * Options are environment variables (STAGE, VARIANT, SEED, FULL; and on GPUs DEVICE=1,
 * BACKEND=nccl, RANKS=4), because each test is a new process. Threads that run ranks
 * return a status; only the main thread asserts, with a message that names the variant.
 */
#include "judge.h"
#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>

/* A test: a variant v, a check c, or, if both are NULL, the mutants, twins and
 * reference of the stage. */
struct item { const struct kcp_stage *stage; const struct kcp_variant *v;
              const struct kcp_check *c; };
static struct item items[1400];
static struct kcp_variant refs[32];

static const char *setting(const char *name)
{
    const char *s = getenv(name);
    return s && *s ? s : NULL;
}

/* Returns 1 for a mutant or twin: all those of a stage are one test. */
static int is_one_of_many(const struct kcp_variant *v)
{
    return !setting("VARIANT") && (is_mutant(v) || !strncmp(v->name, "twin", 4));
}

static int find_items(void)
{
    const char *stage = setting("STAGE"), *variant = setting("VARIANT");
    const struct kcp_check *c[MOST_CHECKS];
    int n = 0;
    for (int i = 0; i < kcp_nstages; i++) {
        const struct kcp_stage *s = &kcp_stages[i];
        const struct kcp_variant *v[256];
        if (stage && stage_find(stage) != s) continue;
        const int nv = kcp_variants(s->name, variant, v, 256);
        if (!setting("DEVICE") && !variant) items[n++] = (struct item){ s, NULL, NULL };
        for (int j = 0; j < nv; j++)
            if (!setting("DEVICE") ? !is_one_of_many(v[j]) : v[j]->where == KCP_DEVICE)
                items[n++] = (struct item){ s, v[j], NULL };
        refs[i] = (struct kcp_variant){ s->name, "ref", "the reference, on R ranks",
                                        KCP_F64, KCP_HOST, "any", s->ref, NULL };
        if (!setting("DEVICE") && s->ranks && variant && !strcmp(variant, "ref"))
            items[n++] = (struct item){ s, &refs[i], NULL };
    }
    const struct options o = { .variant = variant,
                               .only_device = setting("DEVICE") != NULL };
    const int nc = kcp_checks(stage, c, MOST_CHECKS);
    for (int j = 0; j < nc; j++)
        if (check_is_selected(&o, c[j])) items[n++] = (struct item){ NULL, NULL, c[j] };
    return n;
}

ParameterizedTestParameters(kcp, judged)
{
    static int index[1400];
    const int n = find_items();
    for (int i = 0; i < n; i++) index[i] = i;
    return cr_make_param_array(int, index, n);
}

static void judge_many(const struct kcp_stage *s, const struct options *o,
                       struct kcp_report *rep)
{
    const struct kcp_variant *v[256];
    const int n = kcp_variants(s->name, NULL, v, 256);
    for (int j = 0; j < n; j++)
        if (is_one_of_many(v[j])) judge_variant(s, v[j], o, rep);
    for (int i = 0; i < kcp_nstages && s->ranks; i++)
        if (&kcp_stages[i] == s) judge_variant(s, &refs[i], o, rep);
}

ParameterizedTest(int *at, kcp, judged)
{
    struct options o = { .stage = setting("STAGE"), .variant = setting("VARIANT"),
                         .seed = 1 };
    struct kcp_report rep = { .quiet = 1 };
    memory_settle();
    find_items();
    const struct item *x = &items[*at];
    judge_full = o.full = setting("FULL") != NULL;
    o.only_device = setting("DEVICE") != NULL;
    if (setting("RANKS")) o.ranks = atoi(setting("RANKS"));
    cr_assert(!ranks_open(setting("BACKEND"), o.only_device, &o.ranks), "no ranks");
    if (setting("SEED")) o.seed = strtoull(setting("SEED"), NULL, 10);
    if (x->c) judge_check(x->c, &rep);
    else if (x->v) judge_variant(x->stage, x->v, &o, &rep);
    else judge_many(x->stage, &o, &rep);
    ranks_close();
    const char *stage = x->c ? x->c->stage : x->stage->name;
    const char *name = "mutants, twins, reference";
    if (x->c || x->v) name = x->c ? x->c->name : x->v->name;
    fflush(stdout);
    if (rep.fail || rep.survived) cr_assert_fail("%s %s: %s", stage, name, rep.first);
    if (rep.skip) cr_skip_test("%s %s", stage, name);
}

/* Prints a closing line, because Criterion's closing line omits skipped tests. */
ReportHook(POST_ALL)(struct criterion_global_stats *g)
{
    size_t skipped = 0;
    for (struct criterion_suite_stats *s = g->suites; s; s = s->next)
        for (struct criterion_test_stats *t = s->tests; t; t = t->next)
            if (t->test_status == CR_STATUS_SKIPPED) {
                skipped++;
                printf("skipped: %s\n", t->message ? t->message : "no reason given");
            }
    const size_t failed = g->tests_failed;
    printf("%s%s\n", failed ? "FAILED" : "OK", skipped ? ", INCOMPLETE" : "");
    printf("%zu passed, %zu failed, %zu skipped\n", g->tests_passed, failed, skipped);
    if (skipped && setting("STRICT") && !failed) exit(3);
}
