/* process.c -- starts processes that answer over a socket within a time limit.
 * Book: CONTRIBUTING.md, "How the judge works". */
#include "isolation.h"
#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int isolation_limit = 30;

int process_send(int fd, const void *data, size_t n)
{
    for (const char *at = data; n;) {
        const ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return 1;
        at += sent;
        n -= (size_t)sent;
    }
    return 0;
}

/* Receives n bytes, or fewer bytes if the socket closes or time `until` passes. */
static size_t receive(int fd, void *data, size_t n, double until)
{
    size_t got = 0;
    while (got < n && seconds_now() < until) {
        struct pollfd p = { fd, POLLIN, 0 };
        if (poll(&p, 1, 100) <= 0) continue;
        const ssize_t more = recv(fd, (char *)data + got, n - got, MSG_DONTWAIT);
        if (more < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (more <= 0) break;
        got += (size_t)more;
    }
    return got;
}

int process_receive(int fd, void *data, size_t n)
{
    return receive(fd, data, n, INFINITY) != n;
}

/* ---- processes */

pid_t process_start(int *fd)
{
    int pair[2];
    fflush(stdout);
    fflush(stderr);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return -1;
    const pid_t judge = getpid(), pid = fork();
    close(pair[pid != 0]);
    *fd = pair[pid == 0];
    if (pid < 0) close(*fd);
    else if (pid) setpgid(pid, pid);
    if (pid) return pid;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != judge) _exit(1);
    return 0;
}

static void describe_end(int status, char *why, size_t n)
{
    if (WIFSIGNALED(status))
        snprintf(why, n, "it was killed by signal %d, %s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else snprintf(why, n, "it ended its process with status %d, without a verdict",
                  WEXITSTATUS(status));
}

/* Kills all processes that remain in the group of process pid. Returns the wait status
 * of process pid, even if the process ended before this call. */
static int end_group(pid_t pid)
{
    int status = 0;
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return status;
}

static double limit_or_day(double limit) { return isolation_limit ? limit : 86400; }

int process_answer(pid_t pid, int fd, double seconds, void *to, size_t n, char *why,
                  size_t nwhy)
{
    const double until = seconds_now() + limit_or_day(seconds);
    if (receive(fd, to, n, until) == n) return 0;
    const int is_late = seconds_now() >= until, status = end_group(pid);
    if (!is_late) describe_end(status, why, nwhy);
    else
        snprintf(why, nwhy, "it ran past its time limit and was ended (--limit %d)",
                 isolation_limit);
    return 1;
}

int process_end(pid_t pid, int fd, char *why, size_t n)
{
    char none, how[120];
    const double until = seconds_now() + limit_or_day(isolation_limit);
    receive(fd, &none, 1, until);
    const int is_late = seconds_now() >= until, status = end_group(pid);
    if (!is_late) describe_end(status, how, sizeof how);
    if (is_late) snprintf(why, n, "it did not end after its last case");
    else if (status) snprintf(why, n, "after its last case %s", how);
    return is_late || status;
}

int process_ask(void (*body)(const void *arg, void *to), const void *arg,
                       void *to, size_t bytes, double seconds, char *why, size_t n)
{
    int fd, status = 0;
    const pid_t pid = process_start(&fd);
    if (pid < 0) return 1;
    if (!pid) {
        body(arg, to);
        fflush(stdout);
        status = process_send(fd, to, bytes);
        ranks_close();
        _exit(status);
    }
    const int lost = process_answer(pid, fd, seconds, to, bytes, why, n);
    const int failed = lost || process_end(pid, fd, why, n);
    close(fd);
    return failed;
}
