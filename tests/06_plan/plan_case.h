/* plan_case.h -- defines the cases of the brute-force check of plans.
 *
 * Book: chapter 06.  Checked by: tests/06_plan/wrong.c.  Next: ref/06_plan.c. */
#ifndef KCP_TEST_PLAN_H
#define KCP_TEST_PLAN_H

#include "tests/judge/judge.h"

enum { PLAN_MAX_N = 12, PLAN_MAX_R = 12 };

struct asked {                          /* arguments of kcp_plan_make */
    int N, R, C, Wc;
    int64_t L, cu[PLAN_MAX_N + 1], cuts[PLAN_MAX_R + 1];
    int by_default;
};

/* Returns the text of the first condition that plan p violates, or NULL. */
const char *plan_wrong(const struct kcp_plan *p, const struct asked *a);
/* Calls visit(case, plan) for all small cases until `visit` returns 0. Returns the
 * number of calls. */
int64_t plan_cases(int (*visit)(const struct asked *, struct kcp_plan *, void *),
                   void *arg);

#endif
