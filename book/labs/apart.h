/* apart.h -- runs a student's code in a separate process and returns its results.
 * Book: staff.md.  Used by: kcp-lab-check. */
#pragma once

#include <stddef.h>

/* Calls work(arg, answer) in a child process, and copies the n bytes of `answer` from
 * the child. Returns 0. If the child failed, prints one line and returns -1. */
int apart(void (*work)(const void *arg, void *answer), const void *arg, void *answer,
          size_t n);
/* Returns the student's function in a shared object. If the object has no such
 * function, prints an error line and ends the process. */
typedef void function(void);
function *lab_function(const char *object);

/* kcp-lab-check FORM ./lab.so ROW [TRIAL]: judges labs 07c, 07g and 07s. */
int chain_main(int argc, char **argv);
/* kcp-lab-check plan ./lab.so ROW: judges lab 06_plan. */
int plan_main(int argc, char **argv);
