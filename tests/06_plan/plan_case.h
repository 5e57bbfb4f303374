/* plan_case.h -- a case of the plan's brute force, and its two walks.
 *
 * Book: chapter 06.  Checked by: tests/06_plan/wrong.c.  Next: ref/06_plan.c. */
#ifndef KCP_TEST_PLAN_H
#define KCP_TEST_PLAN_H

#include "tests/judge/judge.h"

enum { PLAN_MAX_N = 12, PLAN_MAX_R = 12 };

struct asked {                          /* what the plan was made from */
    int N, R, C, Wc;
    int64_t L, cu[PLAN_MAX_N + 1], cuts[PLAN_MAX_R + 1];
    int by_default;
};

/* NULL, or the first thing in which the plan is wrong. */
const char *plan_wrong(const struct kcp_plan *p, const struct asked *a);
/* visit(case, its plan) for every small case until it returns 0; how many it saw. */
int64_t plan_cases(int (*visit)(const struct asked *, struct kcp_plan *, void *),
                   void *arg);

#endif
