/* apart.h -- a student's code runs in a process of its own; its answer comes back.
 *
 * Book: labs/STAFF.md.  Used by: kcp-lab-check.  Next: check_main.c, chain_main.c,
 * plan_main.c.
 */
#ifndef KCP_LAB_APART_H
#define KCP_LAB_APART_H

#include <stddef.h>

/* work(arg, answer) there: it fills n bytes and returns 0; then they are sent back.
 * 0; or -1 after one line: the process ended without an answer. What it prints is no
 * answer. */
int apart(int (*work)(void *arg, void *answer), void *arg, void *answer, size_t n);
/* What a shared object has by that name; NULL after one line. */
void *lab_symbol(const char *object, const char *name);

/* kcp-lab-check FORM ./lab.so ROW [TRIAL]: the exchange of labs 07c, 07g and 07s. */
int chain_main(int argc, char **argv);
/* kcp-lab-check plan ./lab.so ROW: the plan of lab 06_plan. */
int plan_main(int argc, char **argv);

#endif
