/* failure.h -- prints failures, and checks n/a results against a variant's record.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh.
 * Next: failure.c. */
#ifndef KCP_FAILURE_H
#define KCP_FAILURE_H

#include "isolation.h"

/* Turns an n/a into a failure if the variant's record (`shapes`) excludes it. A
 * record that begins with "any" excludes every n/a. For a built-in variant, n/a in
 * only one pass is excluded unless the record begins with "forward;" or "backward;". */
void hold_to_record(const struct kcp_variant *v, int is_object, struct verdict *t);
/* Prints the failure of list[i]: the wrong tensor, its error, its worst element, and
 * a command that repeats the failure. */
void show_failure(struct isolated *x, int i, const struct verdict *t,
                  struct kcp_report *rep);

#endif
