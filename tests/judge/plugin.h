/* plugin.h -- a shared object's variant: its process computes, the judge's judges.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh.
 * Next: plugin.c.
 */
#ifndef KCP_PLUGIN_H
#define KCP_PLUGIN_H

#include "trial.h"

/* What a run came to, and what its ranks sent. The arrays follow when status is 0. */
struct plugin_ran {
    int status;
    char why[160];
    struct kcp_traffic traffic[CASE_RANKS];
};
/* Bytes of a trial, here, in the order in which they travel. */
struct plugin_part { void *p; size_t n; };

/* ---- in the judge's process (isolation.c, plugin.c) */
/* What its process is told first. */
struct plugin_start {
    char object[4096], backend[16];
    size_t fence;
    int bare, in_turn, device, ranks;
};
/* backend, device, ranks: as main has them; the rest is filled in. */
extern struct plugin_start plugin_start;
/* Nobody else may read or trace this process from here on, and who is left behind by a
 * plug-in becomes its child; or all as before. */
void plugin_guard(void);
void plugin_unguard(void);
int  plugin_guarded(void);                    /* else objects are loaded in a fork */
int  plugin_runs_trials(void);
/* trial_run, there: what it left in fences and inputs is looked at here. */
int  plugin_trial(struct trial *t, char *why, size_t n);
/* to: what it is given; from: what comes back. KCP_COMM with why: it is gone. */
int  plugin_exchange(const struct plugin_part *to, int nto,
                     const struct plugin_part *from, int nfrom, struct plugin_ran *ran,
                     char *why, size_t n);
/* Processes that it left behind end. */
void plugin_ends_orphans(void);
/* This program anew, with none of the judge's memory, on that socket. */
_Noreturn void plugin_execs(int fd);

/* ---- in its own: what main asks first, before it reads its options */
int  plugin_asked_for(void);                  /* the socket; -1: this is the judge */
int  plugin_serve(int fd);                    /* an exit status */
void plugin_connects(int fd);
int  plugin_hears(void *data, size_t n);      /* 0, or 1: nothing more comes */
int  plugin_says(const void *data, size_t n);
void plugin_answers(const struct plugin_ran *ran);

#endif
