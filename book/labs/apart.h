/* apart.h -- runs a student's code in a separate process and returns its results.
 *
 * Book: labs/STAFF.md.  Used by: kcp-lab-check.  Next: check_main.c, chain_main.c,
 * plan_main.c.
 */
#ifndef KCP_LAB_APART_H
#define KCP_LAB_APART_H

#include <stddef.h>

/* Calls work(arg, answer) in a child process, whose output is ignored. If `work`
 * returns 0, copies the n bytes of `answer` from the child and returns 0. Else
 * prints one line and returns -1. */
int apart(int (*work)(void *arg, void *answer), void *arg, void *answer, size_t n);
/* Returns symbol `name` of a shared object; NULL after one error line. */
void *lab_symbol(const char *object, const char *name);

/* kcp-lab-check FORM ./lab.so ROW [TRIAL]: judges labs 07c, 07g and 07s. */
int chain_main(int argc, char **argv);
/* kcp-lab-check plan ./lab.so ROW: judges lab 06_plan. */
int plan_main(int argc, char **argv);

#endif
