/* isolation.h -- runs a variant in a separate process under a time limit.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh.
 * Next: isolation.c.
 *
 * The judge's process prepares the arrays of a trial, compares the outputs and decides
 * the verdict. The variant's process only runs the variant on copies of the arrays. So
 * a crash, hang, early exit or unlimited allocation is a failure of the variant. */
#ifndef KCP_ISOLATION_H
#define KCP_ISOLATION_H

#include "process.h"
#include "trial.h"

struct kcp_device;

/* A variant, its cases, and the process that runs them. */
struct isolated {
    const struct kcp_stage *stage;
    const struct kcp_variant *variant;
    const char *object;            /* shared object of the variant; or NULL */
    const struct kcase *list;
    pid_t pid;                     /* 0: not started */
    int fd;
    double lost;                   /* seconds of trials without an answer */
    double took;                   /* seconds of the last case */
    int begun;                     /* the first case of this process */
};

int  isolated_runs_trials(void);               /* 1: trials run in a child process */
int  isolated_trial(struct trial *t, char *why, size_t n);
/* Calls judge_case for list[index]. If the process failed, the next case starts a new
 * process. */
int  isolated_case(struct isolated *x, int index, enum kcp_storage judged,
                   struct verdict *out);
/* Ends the process. Returns 0, or 1 with `why` if the exit status is not 0. */
int  isolated_end(struct isolated *x, char *why, size_t n);
/* Runs a check of one variant in this process; the trials of the check run in the
 * variant's process. */
int  isolated_object_check(struct isolated *x,
                           int (*run)(struct kcp_report *, const struct kcp_variant *),
                           struct kcp_report *own);
/* Runs a whole check of a stage in a separate process, fills `own` with the check's
 * report and returns the check's status. */
int  isolated_check(const struct kcp_check *c, struct kcp_report *own);
/* Loads a shared object in a separate process and copies the variant's record. Returns
 * 0, or 1 with the reason in `why`. */
int  isolated_probe(const char *path, struct kcp_variant *record, char *why, size_t n);
/* Looks up the GPU in a separate process, because a process that uses CUDA cannot
 * fork. Returns 0, or 1 if there is no GPU. */
int  isolated_device(struct kcp_device *d);

#endif
