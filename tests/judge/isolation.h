/* isolation.h -- a variant runs in a process of its own, under a time limit.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh.
 * Next: isolation.c.
 *
 * The judge's process makes the arrays of a trial, compares what comes back and gives
 * the verdict. The variant's process only runs the variant on copies of those arrays.
 * So a crash, a hang, an early exit or memory without end is a failure of the variant.
 */
#ifndef KCP_ISOLATION_H
#define KCP_ISOLATION_H

#include "process.h"
#include "trial.h"

struct kcp_device;

/* A variant, its cases, and the process that runs them. */
struct isolated {
    const struct kcp_stage *stage;
    const struct kcp_variant *variant;
    const char *object;            /* the shared object that holds it; or NULL */
    const struct kcase *list;
    pid_t pid;                     /* 0: not started */
    int fd;
    double lost;                   /* seconds that ended without an answer */
    double took;                   /* seconds of the last case */
    int begun;                     /* the first case of this process */
};

int  isolated_runs_trials(void);               /* in another process, at this moment? */
int  isolated_trial(struct trial *t, char *why, size_t n);
/* judge_case of list[index]. After a failure of the process the next case starts
 * one. */
int  isolated_case(struct isolated *x, int index, enum kcp_storage judged,
                   struct verdict *out);
/* Ends the process. 0; or 1 with why: it did not end, or not with status 0. */
int  isolated_end(struct isolated *x, char *why, size_t n);
/* A check of one variant: the check runs here, the variant's trials there. */
int  isolated_object_check(struct isolated *x,
                           int (*run)(struct kcp_report *, const struct kcp_variant *),
                           struct kcp_report *own);
/* A check of a stage, all of it in a process: its report and its status. */
int  isolated_check(const struct kcp_check *c, struct kcp_report *own);
/* The record of a shared object, loaded in a process: 0, or 1 with why. */
int  isolated_probe(const char *path, struct kcp_variant *record, char *why, size_t n);
/* The GPU, looked up in a process, because a process that uses CUDA cannot fork. 0 or
 * 1: there is none. */
int  isolated_device(struct kcp_device *d);

#endif
