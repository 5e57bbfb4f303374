/* stand_in.h -- functions shared by the tests over the stand-ins for CUDA and NCCL.
 *
 * Book: chapter 20.  Checked by: tests/cli/nccl_stand_in.sh.  Next: ranks.c. */
#ifndef KCP_STAND_IN_H
#define KCP_STAND_IN_H

#include "comm/backend/nccl.h"
#include "tests/judge/judge.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 4 };

/* ---- libnccl.c: number of open groups of this thread; number of communicators neither
 * destroyed nor aborted; set an asynchronous error on a communicator */
int  stand_in_groups(void);
int  stand_in_alive(void);
void stand_in_error(ncclComm_t c);

/* ---- each returns the number of failures and prints a line per failure */
int late_ranks(int R, int is_planted);     /* late.c */
int lose_ranks(int step);                  /* lose.c: before each step-th call */

#endif
