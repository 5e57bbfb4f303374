/* isolation.h -- runs a variant in a separate process under a time limit.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * The judge's process prepares the arrays of a trial, compares the outputs and decides
 * the verdict. The variant's process only runs the variant on copies of the arrays. So
 * a crash, hang, early exit or unlimited allocation is a failure of the variant. */
#pragma once

#include "trial.h"

#include <sys/types.h>

struct kcp_device;

/* A variant, its cases, and the process that runs the variant on the cases. */
struct isolated {
    const struct kcp_stage *stage;
    const struct kcp_variant *variant;
    const char *object;            /* shared object of the variant; or NULL */
    const struct kcase *list;
    pid_t pid;                     /* 0: not started */
    int fd;
    double lost;                   /* seconds of trials that timed out */
    double took;                   /* seconds of the last case */
    int first_case;                /* first case of this process */
};

int  isolated_runs_trials(void);               /* 1: trials run in a child process */
int  isolated_trial(struct trial *t, char *why, size_t n);
/* Calls judge_case for list[index]. If the process failed, the next case starts a new
 * process. */
int  isolated_case(struct isolated *x, int index, enum kcp_storage judged,
                   struct verdict *out);
/* Returns 5/3 of --limit, less the seconds of time-outs. If <= 0, no trial runs. */
double isolated_seconds_left(const struct isolated *x);
/* Ends the process. Returns 0, or 1 with a text in `why` if its status is not 0. */
int  isolated_end(struct isolated *x, char *why, size_t n);
/* Runs bits_of_variant in this process, and its trials in the variant's process. */
int  isolated_bits(struct isolated *x, int is_canonical, struct kcp_report *own);
/* Runs a check of a stage in a separate process, fills `own` with the check's report
 * and returns the check's status. */
int  isolated_check(const struct kcp_check *c, struct kcp_report *own);
/* Loads a shared object in a separate process and copies the variant's record. Returns
 * 0, or 1 with the reason in `why`. */
int  isolated_probe(const char *path, struct kcp_variant *record, char *why, size_t n);
/* Looks up the GPU in a separate process, because CUDA does not work in a process that
 * is forked after its parent has used CUDA. Returns 0, or 1 if there is no GPU. */
int  isolated_device(struct kcp_device *d);

/* ---- processes that answer over a socket within a time limit (process.c) */
/* Forks. Returns 0 in the child; in the parent, the child's process id or -1. Sets *fd
 * to a socket that connects parent and child. */
pid_t process_start(int *fd);
/* Send and receive exactly n bytes. Return 0, or 1 on failure. */
int process_send(int fd, const void *data, size_t n);
int process_receive(int fd, void *data, size_t n);
/* Reads the n bytes of a process's answer within `seconds` (with --limit 0, a day).
 * Returns 0, or 1 with an error in `why` if the process ended or was killed. */
int process_answer(pid_t pid, int fd, double seconds, void *to, size_t n, char *why,
                   size_t nwhy);
/* After a process's last request, waits until the process ends and its socket closes.
 * Returns 0, or 1 with the reason in `why` if the process's status is not 0. */
int process_end(pid_t pid, int fd, char *why, size_t n);
/* Runs `body` in a new process, and copies the `bytes` bytes that `body` writes at `to`
 * to this process. Returns 0, or 1 with an error in `why`. */
int process_ask(void (*body)(const void *arg, void *to), const void *arg, void *to,
                size_t bytes, double seconds, char *why, size_t n);

/* ---- failures (failure.c) */
/* Turns n/a into a failure if the variant's record (`shapes`) excludes n/a. A record
 * that begins with "any" excludes n/a. A built-in variant must return n/a in both
 * passes or in none, unless its record begins with "forward;" or "backward;". */
void apply_record(const struct kcp_variant *v, int is_object, struct verdict *t);
/* Prints the failure of list[i]: the wrong tensor, its error, its worst element, and
 * a command that repeats the failure. */
void show_failure(struct isolated *x, int i, const struct verdict *t,
                  struct kcp_report *rep);
