/* process.h -- starts processes that answer over a socket within a time limit.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh.
 * Next: process.c. */
#ifndef KCP_PROCESS_H
#define KCP_PROCESS_H

#include <stddef.h>
#include <sys/types.h>

double seconds_now(void);
/* Forks. Returns 0 in the child; in the parent, the child's process id or -1. Sets *fd
 * to a socket that connects parent and child. */
pid_t process_start(int *fd);
/* Send and receive exactly n bytes. Return 0, or 1 on failure. */
int process_send(int fd, const void *data, size_t n);
int process_receive(int fd, void *data, size_t n);
/* Reads the n bytes of a process's answer within `seconds` (with --limit 0, a day).
 * Returns 0; or 1 with an error in `why` after the process has ended or was killed. */
int process_answer(pid_t pid, int fd, double seconds, void *to, size_t n, char *why,
                   size_t nwhy);
/* Waits for the end of a process that gets no more requests. Returns 0, or 1 and
 * `why` if its status is not 0. */
int process_end(pid_t pid, char *why, size_t n);
/* Runs `body` in a new process, and copies the `bytes` bytes that `body` writes at `to`
 * to this process. Returns 0, or 1 with an error in `why`. */
int process_ask(void (*body)(const void *arg, void *to), const void *arg, void *to,
                size_t bytes, double seconds, char *why, size_t n);

#endif
