/* criterion.c -- runs the judge under Criterion on one node. Each stage is a test, and
 * each test is a process.
 * Book: CONTRIBUTING.md.
 *
 * Options are environment variables (STAGE, SEED, FULL; and on GPUs DEVICE=1,
 * BACKEND=nccl, RANKS=4), because each test is a new process. Threads that run ranks
 * return a status. Only the main thread asserts, with the first failure's message. */
#include "judge.h"
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STAGES = 64 };

static const char *setting(const char *name)
{
    const char *s = getenv(name);
    return s && *s ? s : NULL;
}

/* Lists the names of groups of checks that belong to no stage, then the stages. */
static int find_stages(const char *name[MOST_STAGES])
{
    const char *only = setting("STAGE");
    const struct kcp_check *c[MOST_CHECKS];
    const int checks = kcp_checks(only, c, MOST_CHECKS);
    int n = 0;
    for (int j = 0; j < checks; j++)
        if (!stage_find(c[j]->stage) && (!n || strcmp(name[n - 1], c[j]->stage)))
            name[n++] = c[j]->stage;
    for (int i = kcp_nstages - 1; i >= 0; i--)
        if (!only || stage_find(only) == &kcp_stages[i]) name[n++] = kcp_stages[i].name;
    return n;
}

ParameterizedTestParameters(kcp, stage)
{
    static int index[MOST_STAGES];
    const char *name[MOST_STAGES];
    const int n = find_stages(name);
    for (int i = 0; i < n; i++) index[i] = i;
    return cr_make_param_array(int, index, n);
}

ParameterizedTest(int *at, kcp, stage)
{
    const char *name[MOST_STAGES];
    struct options o = { .quiet = 1, .seed = 1 };
    struct kcp_report rep = { .quiet = 1 };
    memory_settle();
    find_stages(name);
    o.stage = name[*at];
    judge_full = o.full = setting("FULL") != NULL;
    o.only_device = setting("DEVICE") != NULL;
    if (setting("RANKS")) o.ranks = atoi(setting("RANKS"));
    if (setting("SEED")) o.seed = strtoull(setting("SEED"), NULL, 10);
    cr_assert(!ranks_open(setting("BACKEND"), o.only_device, &o.ranks), "no ranks");
    judge_all(&o, &rep);
    ranks_close();
    fflush(stdout);
    if (rep.fail || rep.survived) cr_assert_fail("%s: %s", o.stage, rep.first);
    if (!rep.pass && !rep.marginal && !rep.caught) cr_skip_test("%s", o.stage);
}
