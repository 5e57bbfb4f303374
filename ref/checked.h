/* checked.h -- checks of stage calls, and error messages.
 * Book: chapter 20. */
#pragma once

#include "layer.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(hidden)

/* Checks a call before the stage runs: calls kcp_check_call and, for stages with ranks,
 * checks that all ranks have the same plan and options. `may_lack` lists, separated by
 * blanks, arrays that may be NULL. If one rank rejects a call, the call fails on all
 * ranks. Between kcp_checked_enter and kcp_checked_leave, returns KCP_OK at once. */
int kcp_begin(const char *stage, enum kcp_where where, const void *args,
              const char *may_lack);
/* Checks the call's sizes, options and plan, but not its arrays or comm. */
int kcp_check_sizes(const char *stage, const struct kcp_call *call);

/* variants.c: returns 1 if `name` is NULL or names the stage: "05", "5" and "05_affine"
 * all name the stage 05_affine. */
int kcp_stage_matches(const char *name, const char *stage);
/* Returns 1 if the stage with this name has the fact. */
int kcp_stage_is(const char *name, enum kcp_fact fact);
/* Returns 1 if the model has the field `name`, or the gradient of field `name`. */
int kcp_model_reads(enum kcp_model model, const char *name);
/* Returns 1 if the stage supports the model. */
int kcp_stage_takes(const struct kcp_stage *s, enum kcp_model model);
/* Returns KG, the gates per head, of the call's model and K. */
int kcp_gates_of(const struct kcp_call *c);

/* ---- fields.c
 * Returns the number of elements of a field, or -1 on overflow or an unknown name in
 * the shape. */
int64_t kcp_field_numbers(const struct kcp_call *c, const struct kcp_field *f);
/* Returns the value of a word of a shape, e.g. "NS+1", or -1 if the word is unknown. */
int64_t shape_letter(const struct kcp_call *c, const char *letter, size_t len);
/* Sets the first size in a word of a shape (NS in "NS+1") to `value`. */
void shape_set(struct kcp_call *c, const char *word, int64_t value);
/* The sizes and options in struct kcp_call, with their least and largest values. If
 * `same` is 1, all ranks of a communicator must give the same value. A MEMBER_FLAG may
 * have any value. A MEMBER_REAL is a double. Other kinds are int. */
enum kcp_member_kind { MEMBER_SIZE, MEMBER_OPTION, MEMBER_FLAG, MEMBER_REAL };
struct kcp_member {
    const char *name;
    size_t at;                     /* offset in struct kcp_call */
    enum kcp_member_kind kind;
    int same, least, most;
};
enum { KCP_MOST_MEMBERS = 36 };
extern const struct kcp_member kcp_members[];
extern const int kcp_nmembers;
const char *kcp_type_name(enum kcp_type type);         /* "f32" */
enum kcp_type kcp_type_of_storage(enum kcp_storage storage);
/* Returns 1 if call c reads or writes the field. */
int field_used(const struct kcp_field *f, const struct kcp_call *c);
/* Returns 1 if `list` (may be NULL) contains `word`. `between` has the separators. */
int has_word(const char *list, const char *word, const char *between);

/* From kcp_checked_enter to kcp_checked_leave, calls of this thread are not checked. */
void kcp_checked_enter(void);
void kcp_checked_leave(void);

/* Sets the text of kcp_why() and returns `status`. */
int kcp_refuse(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Returns a reason for comm->fail: kcp_why(), or `name` if kcp_why() is empty. */
const char *kcp_why_or(const char *name);
/* Sends one line to the function that kcp_notices has set. */
void kcp_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* 06_plan.c: returns a hash of n integers, and of a plan's arguments and segments. */
uint64_t kcp_digest(const int64_t *x, int64_t n);
uint64_t kcp_plan_digest(const struct kcp_plan *plan);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
