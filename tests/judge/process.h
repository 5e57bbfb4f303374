/* process.h -- a process that answers over a socket, within a time limit.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh.
 * Next: process.c.
 */
#ifndef KCP_PROCESS_H
#define KCP_PROCESS_H

#include <stddef.h>
#include <sys/types.h>

double seconds_now(void);
/* 0 in the new process; in this one its number, or -1. *fd: the socket between them. */
pid_t process_start(int *fd);
/* All n bytes: 0, or 1. */
int process_send(int fd, const void *data, size_t n);
int process_receive(int fd, void *data, size_t n);
/* The answer of a process within so many seconds (--limit 0: a day): 0; or 1 with why,
 * and the process is gone. */
int process_answer(pid_t pid, int fd, double seconds, void *to, size_t n, char *why,
                   size_t nwhy);
/* Waits for the end of a process that has nothing more to do. 0; or 1 with why: it did
 * not end, or not with status 0. */
int process_end(pid_t pid, char *why, size_t n);
/* One answer: body fills `to` in a process. 0, or 1 with why. */
int process_ask(void (*body)(const void *arg, void *to), const void *arg, void *to,
                size_t bytes, double seconds, char *why, size_t n);

#endif
