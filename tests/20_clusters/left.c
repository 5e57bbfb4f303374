/* left.c -- has a process ended? What says when a window may be given back.
 *
 * Book: chapter 20.  Checked by: itself, on a child that lives, is dead, and is gone.
 * Next: ../../comm/backend/nccl_left.c. */
#include "tests/judge/judge.h"

#ifdef KCP_WITH_NCCL
#include "comm/backend/nccl.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that tells who it is, and waits to be killed. */
static pid_t child_of(struct window_process *is)
{
    int pipe_[2];
    if (pipe(pipe_))
        return -1;
    const pid_t child = fork();
    if (!child) {
        const struct window_process me = window_process_here();
        const ssize_t n = write(pipe_[1], &me, sizeof me);
        while (n == (ssize_t)sizeof me)
            pause();
        _exit(1);
    }
    const ssize_t got = child > 0 ? read(pipe_[0], is, sizeof *is) : 0;
    close(pipe_[0]);
    close(pipe_[1]);
    return got == (ssize_t)sizeof *is ? child : -1;
}

static int ended_soon(const struct window_process *p)
{
    for (int i = 0; i < 500 && !window_process_ended(p); i++)
        poll(NULL, 0, 10);
    return window_process_ended(p);
}

static int left(struct kcp_report *rep)
{
    struct window_process is = { 0 };
    const struct window_process me = window_process_here();
    const pid_t child = child_of(&is);
    EXPECT(rep, me.pid == getpid() && me.began && me.space, "nothing is known of this "
           "process");
    EXPECT(rep, child > 0 && is.pid == child && is.space == me.space, "no child");
    if (child <= 0)
        return KCP_OK;
    struct window_process other = is, again = is, unknown = { 0 };
    other.space++;
    again.began--;
    EXPECT(rep, !window_process_ended(&is) && !window_process_ended(&me), "one that "
           "lives is said to have ended");
    EXPECT(rep, window_process_ended(&again), "its number was another's before");
    kill(child, SIGKILL);
    EXPECT(rep, ended_soon(&is), "one that is dead, and that nobody has asked for yet");
    waitpid(child, NULL, 0);
    EXPECT(rep, window_process_ended(&is), "one that is gone");
    EXPECT(rep, !window_process_ended(&other) && !window_process_ended(&unknown),
           "one of which nothing can be known is said to have ended");
    return KCP_OK;
}
#else
static int left(struct kcp_report *rep)
{
    (void)rep;
    printf("  (built without NCCL: there are no windows)\n");
    return KCP_NA;
}
#endif

KCP_CHECK(check_20_left) = { "20_clusters", "left",
    "a process that lives, is dead, is gone, is another: who may still write a window",
    left };
