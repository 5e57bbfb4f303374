/* failure.h -- a failure as it is shown, and what a record promises.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh.
 * Next: failure.c.
 */
#ifndef KCP_FAILURE_H
#define KCP_FAILURE_H

#include "isolation.h"

/* A record that says "any" is held to it: n/a is FAIL then. So is n/a in one pass of a
 * case whose other pass a variant of this program takes, if its record does not begin
 * with "forward;" or "backward;". Of a shared object that is said, and no failure. */
void hold_to_record(const struct kcp_variant *v, int is_object, struct verdict *t);
/* Of list[i]: which tensor is off, by how much, its worst element; and a command that
 * fails in the same way. */
void show_failure(struct isolated *x, int i, const struct verdict *t,
                  struct kcp_report *rep);

#endif
