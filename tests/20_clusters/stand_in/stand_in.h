/* stand_in.h -- what the tests over the stand-ins for CUDA and NCCL share.
 *
 * Book: chapter 20.  Checked by: tests/cli/nccl_stand_in.sh.  Next: ranks.c. */
#ifndef KCP_STAND_IN_H
#define KCP_STAND_IN_H

#include "comm/backend/nccl.h"
#include "tests/judge/judge.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 4 };

/* ---- the stand-in's own, libnccl.c: groups that this thread has open; communicators
 * neither destroyed nor aborted; an asynchronous error of one */
int  stand_in_groups(void);
int  stand_in_alive(void);
void stand_in_error(ncclComm_t c);

/* ---- each returns the number of what is wrong, and prints a line for each */
int late_ranks(int R, int is_planted);     /* late.c */
int lose_ranks(int step);                  /* lose.c: before each step-th call */

#endif
