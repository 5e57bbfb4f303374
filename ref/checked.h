/* checked.h -- the check of every call of a stage, and its error messages.
 *
 * Book: chapter 20, "What is promised to whom".  Checked by: tests/20_clusters/calls.c.
 * Next: core/checked.c; core/agree.c, the comparison between ranks. */
#ifndef KCP_CHECKED_H
#define KCP_CHECKED_H

#include "layer.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(hidden)

/* Checks a call of a stage before it runs: kcp_check_call and, with ranks, that all
 * ranks have the same plan and options. may_lack: names of arrays, separated by blanks,
 * that this function does not require. A call that one rank rejects fails on all ranks.
 * Inside another checked call this function does nothing. */
int kcp_begin(const char *stage, enum kcp_where where, const void *args,
              const char *may_lack);
/* Checks sizes, options and plan only; arrays and comm may be missing. */
int kcp_check_sizes(const char *stage, const struct kcp_call *call);

/* ---- fields.c
 * Returns the number of elements of a field; -1: overflow, or an unknown letter. */
int64_t kcp_field_numbers(const struct kcp_call *c, const struct kcp_field *f);
/* Returns the size that a word of a shape names, e.g. "NS+1"; -1: unknown name. */
int64_t shape_letter(const struct kcp_call *c, const char *letter, size_t len);
/* Sets the size with which a word begins: NS for "NS+1". */
void shape_set(struct kcp_call *c, const char *word, int64_t value);
/* Returns 1 if this pass of this call reads or writes the field. */
int field_used(const struct kcp_field *f, const struct kcp_call *c);
/* Returns 1 if `list` (may be NULL) has the word; `between`: what separates words. */
int has_word(const char *list, const char *word, const char *between);

/* Between enter and leave, calls on this thread are not checked. */
void kcp_checked_enter(void);
void kcp_checked_leave(void);

/* Returns status and sets the text of kcp_why(). */
int kcp_refuse(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Returns kcp_why() if it is not empty, otherwise name. This is the text for
 * comm->fail. */
const char *kcp_why_or(const char *name);
/* Sends one line to the function that kcp_notices has set. */
void kcp_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* bounded.c: calls v->run(args) and returns its status. For stages 08 and 13 on a GPU,
 * if the communicator has a tolerance (wire.h), first computes bounds on |M| of this
 * rank's segments. The host waits for the bounds, so a graph cannot capture the call
 * (KCP_NA). The references compute their bounds themselves. */
int kcp_run_bounded(const struct kcp_variant *v, void *args);

/* cuda/14_conv/v2_tokens.cu: runs n calls, 2 to KCP_CONVS, of kernel v2_tokens with one
 * launch of the main kernel. The calls have one plan, pass and stream. Returns
 * KCP_NA before any work if the calls cannot share a launch. NULL without CUDA. */
int cuda_convs(void *const *args, int n) __attribute__((weak));

/* agree.c: compares the calls of all ranks. Returns KCP_MISMATCH on every rank if one
 * rank differs; kcp_why() names the value. */
int kcp_agree(const struct kcp_stage *stage, const void *args);
uint64_t kcp_plan_digest(const struct kcp_plan *plan);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
