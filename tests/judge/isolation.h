/* isolation.h -- a variant runs in a process of its own, under a time limit.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh.
 * Next: isolation.c.
 */
#ifndef KCP_ISOLATION_H
#define KCP_ISOLATION_H

#include "judge.h"

#include <sys/types.h>

struct kcp_device;

/* A variant and its cases, and the process that runs them. */
struct isolated {
    const struct kcp_stage *stage;
    const struct kcp_variant *variant;
    const char *object;            /* the shared object it is loaded from; or NULL */
    const struct kcase *list;
    pid_t pid;                     /* 0: no process now */
    int fd;
    double lost;                   /* seconds that ended in no verdict */
    double took;                   /* by the case that was judged last */
    int begun;                     /* the first case of its process */
};

/* judge_case of list[index], there. A process that crashes, hangs or ends is FAIL, and
 * the next case gets a fresh one. */
int  isolated_case(struct isolated *x, int index, enum kcp_storage judged,
                   struct verdict *out);
/* It ends. 0; or 1 with why, when it ends otherwise than it should. */
int  isolated_end(struct isolated *x, char *why, size_t n);
/* What is asked of a shared object's variant beside its cases. */
int  isolated_object_check(struct isolated *x,
                           int (*run)(struct kcp_report *, const struct kcp_variant *),
                           struct kcp_report *own);
/* A check's run, there: its report and its status. */
int  isolated_check(const struct kcp_check *c, struct kcp_report *own);
/* What a shared object holds, found out there: the record without its functions. */
int  isolated_probe(const char *path, struct kcp_variant *record, char *why, size_t n);
/* The GPU, asked there: whoever starts processes may not touch it. 0, or 1: none. */
int  isolated_device(struct kcp_device *d);

#endif
