/* apart.h -- runs a student's code in a separate process and returns its answer.
 *
 * Book: labs/STAFF.md.  Used by: kcp-lab-check.  Next: check_main.c, chain_main.c,
 * plan_main.c.
 */
#ifndef KCP_LAB_APART_H
#define KCP_LAB_APART_H

#include <stddef.h>

/* Calls work(arg, answer) in a child process. If `work` returns 0, the n bytes of
 * `answer` are copied back and the result is 0. Else prints one line and returns -1.
 * Output of the child is ignored. */
int apart(int (*work)(void *arg, void *answer), void *arg, void *answer, size_t n);
/* Returns the symbol `name` of a shared object; NULL after one error line. */
void *lab_symbol(const char *object, const char *name);

/* kcp-lab-check FORM ./lab.so ROW [TRIAL]: the exchange of labs 07c, 07g and 07s. */
int chain_main(int argc, char **argv);
/* kcp-lab-check plan ./lab.so ROW: the plan of lab 06_plan. */
int plan_main(int argc, char **argv);

#endif
