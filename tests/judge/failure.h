/* failure.h -- how a failure is printed, and what a record promises.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh.
 * Next: failure.c.
 */
#ifndef KCP_FAILURE_H
#define KCP_FAILURE_H

#include "isolation.h"

/* n/a is a failure if the record says "any"; and, of a built-in variant, n/a in one
 * pass alone, unless the record begins with "forward;" or "backward;". */
void hold_to_record(const struct kcp_variant *v, int is_object, struct verdict *t);
/* Of list[i]: the tensor that is off, by how much, its worst element; and a command
 * that repeats it. */
void show_failure(struct isolated *x, int i, const struct verdict *t,
                  struct kcp_report *rep);

#endif
