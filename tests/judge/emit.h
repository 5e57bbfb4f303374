/* emit.h -- the judge's cases as files, for kernels in other languages.
 *
 * Book: CONTRIBUTING.md, "Kernels written elsewhere".  Checked by: tests/cli/cli.sh.
 * Next: emit.c writes them, foreign.c judges what was computed from them.
 */
#ifndef KCP_EMIT_H
#define KCP_EMIT_H
#include "judge.h"

/* Exit statuses of kcp-check, after one line when 2. */
int emit_cases(const char *dir, const struct options *o);
/* The cases of these options, *n of them. */
struct kcase *emit_list(const struct kcp_stage *s, const struct options *o, int *n);
int judge_foreign(const char *dir, const struct options *o, struct kcp_report *rep);

extern const char *const emit_storage[3], *const emit_pass_name[2];
/* The file of a pass of the i-th case of the list. */
void emit_path(char *path, size_t n, const char *dir, int i, int pass,
               const char *file);
/* The shape of a tensor's file: states may be transposed, as --state-layout says. */
void emit_dims(const struct kcp_field *f, const struct kcp_call *c,
               const struct tensor *t, int64_t *dim);

#endif
