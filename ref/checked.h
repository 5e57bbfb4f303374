/* checked.h -- the check of every call of a stage, and the words of a refusal.
 *
 * Book: chapter 20, "What is promised to whom".  Checked by: tests/judge/self_calls.c.
 * Next: core/checked.c; core/agree.c, the comparison between ranks.
 */
#ifndef KCP_CHECKED_H
#define KCP_CHECKED_H

#include "layer.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(hidden)

/* The call of a stage that is about to run: kcp_check_call, and, where there are ranks,
 * the same plan and options on all of them. may_lack: names of arrays, apart by blanks,
 * that this function does without. A refused call fails on all ranks.
 * Inside of another checked call nothing is done: its arrays are known. */
int kcp_begin(const char *stage, enum kcp_where where, const void *args,
              const char *may_lack);
/* The same of sizes, options and plan alone: arrays and comm may not be there yet. */
int kcp_check_sizes(const char *stage, const struct kcp_call *call);
/* How many numbers a field has; -1: more than any machine, or a letter unknown. */
int64_t kcp_field_numbers(const struct kcp_call *c, const struct kcp_field *f);
/* From here to kcp_checked_leave calls on this thread are taken as they come. */
void kcp_checked_enter(void);
void kcp_checked_leave(void);

/* Returns status; kcp_why() then returns the formatted text. */
int kcp_refuse(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The reason of this call's refusal, else its name: for comm->fail. */
const char *kcp_why_or(const char *name);
/* One line to the function that kcp_notices set. */
void kcp_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* agree.c: KCP_MISMATCH on every rank where one differs; kcp_why() names what. */
int kcp_agree(const struct kcp_stage *stage, const void *args);
uint64_t kcp_plan_digest(const struct kcp_plan *plan);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
