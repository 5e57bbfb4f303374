/* plan_case.h -- defines the cases of the brute-force check of plans.
 * Book: chapter 06. */
#pragma once

#include "tests/judge/judge.h"

enum { PLAN_MAX_N = 12, PLAN_MAX_R = 12, PLAN_MAX_B = 24 };

/* Arguments of kcp_plan_make if B = 0, otherwise of kcp_plan_owned with B ranges. */
struct plan_case {
    int N, R, C, Wc, B;
    int64_t L, cu[PLAN_MAX_N + 1];
    int64_t cuts[PLAN_MAX_R + 1];       /* passed to kcp_plan_make if by_default is 0 */
    int by_default;
    int64_t bound[PLAN_MAX_B + 1];      /* passed to kcp_plan_owned */
    int owner[PLAN_MAX_B];
};

/* Returns the text of the first condition that plan p violates, or NULL. */
const char *plan_wrong(const struct kcp_plan *p, const struct plan_case *a);
/* Calls visit(case, plan) for all small cases until `visit` returns 0. */
void plan_cases(int (*visit)(const struct plan_case *, struct kcp_plan *, void *),
                void *arg);
