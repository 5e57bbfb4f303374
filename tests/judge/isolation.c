/* isolation.c -- a variant in a process of its own: nothing it does ends the judge.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh.
 * Next: core.c.
 *
 * The judge asks for one case at a time over a socket. The process answers "done", is
 * given a number that nobody could know before, and returns its verdict with it: what a
 * variant writes to the socket by itself is no verdict. The clock runs while the
 * variant does; the references may take their time. Under a launcher, and with --here,
 * there is no process apart. A shared object gets less: plugin.c.
 */
#include "talk.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int isolation_off;
int isolation_limit = 30;

int to_judge = -1;

double talk_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int talk_send(int fd, const void *data, size_t n)
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

static int receive_all(int fd, void *data, size_t n)
{
    for (char *at = data; n;) {
        const ssize_t got = recv(fd, at, n, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 1;
        at += got;
        n -= (size_t)got;
    }
    return 0;
}

int talk_move_until(int fd, void *data, size_t n, int writes, double until)
{
    for (char *at = data; n;) {
        struct pollfd p = { fd, writes ? POLLOUT : POLLIN, 0 };
        if (talk_seconds() > until) return 1;
        if (poll(&p, 1, 100) <= 0) continue;
        const ssize_t moved = writes ? send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT)
                                     : recv(fd, at, n, MSG_DONTWAIT);
        if (moved < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (moved <= 0) return 1;
        at += moved;
        n -= (size_t)moved;
    }
    return 0;
}

/* ---- in the process of the variant */
static void say(enum kind kind)
{
    const struct message m = { .kind = kind };
    if (to_judge >= 0 && talk_send(to_judge, &m, sizeof m)) _exit(1);
}

void isolation_started(void) { say(STARTED); }
void isolation_returned(void) { say(RETURNED); }
static void isolation_no_memory(void) { say(NO_MEMORY); }

void talk_answer(struct message *m, enum kind kind)
{
    fflush(stdout);
    say(DONE);
    if (receive_all(to_judge, &m->nonce, sizeof m->nonce)) _exit(1);
    m->kind = kind;
    if (talk_send(to_judge, m, sizeof *m)) _exit(1);
}

/* Nothing is left to say. Leaks are looked for with --here: make sanitize-host. */
static _Noreturn void end_here(void)
{
    ranks_close();
    _exit(0);
}

int plugin_hears(void *data, size_t n) { return receive_all(to_judge, data, n); }
int plugin_says(const void *data, size_t n) { return talk_send(to_judge, data, n); }

void plugin_answers(const struct plugin_ran *ran)
{
    struct message m = { .kind = RAN, .is.ran = *ran };
    talk_answer(&m, RAN);
}

void plugin_connects(int fd)
{
    to_judge = fd;
    memory_is_out = isolation_no_memory;
}

static void serve(const struct isolated *x)
{
    char why[160] = "";
    const struct kcp_variant *v = x->variant;
    struct request ask;
    if (x->object) v = variant_load(x->object, why, sizeof why);
    while (!receive_all(to_judge, &ask, sizeof ask)) {
        struct message m = { .is.verdict.outcome = FAIL };
        if (!v) snprintf(m.is.verdict.why, sizeof m.is.verdict.why, "%s", why);
        else if (judge_case(x->stage, v, &x->list[ask.index], ask.judged,
                            &m.is.verdict)) {
            m.is.verdict.outcome = FAIL;
            snprintf(m.is.verdict.why, sizeof m.is.verdict.why, "memory: found none");
        }
        talk_answer(&m, VERDICT);
    }
}

/* ---- in the judge's process */

pid_t talk_start(int *fd)
{
    int pair[2];
    fflush(stdout);
    fflush(stderr);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return -1;
    const pid_t judge = getpid(), pid = fork();
    if (pid) {
        close(pair[1]);
        *fd = pair[0];
        if (pid < 0) close(pair[0]);
        else setpgid(pid, pid);
        return pid;
    }
    close(pair[0]);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != judge) _exit(1);
    to_judge = pair[1];
    memory_is_out = isolation_no_memory;
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

int talk_kill(pid_t pid)
{
    int status = 0;
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return status;
}

/* Something to read before the time is up? 0; or 1 with why: the process is gone. */
static int wait_for(pid_t pid, int fd, double until, char *why, size_t n)
{
    struct pollfd p = { fd, POLLIN, 0 };
    for (;;) {
        int status;
        if (poll(&p, 1, 100) > 0 && (p.revents & POLLIN)) {
            char first;
            if (recv(fd, &first, 1, MSG_PEEK) > 0) return 0;
        }
        if (waitpid(pid, &status, WNOHANG) == pid) {
            kill(-pid, SIGKILL);
            describe_end(status, why, n);
            return 1;
        }
        if (p.revents & POLLHUP) poll(NULL, 0, 20);
        if (talk_seconds() < until) continue;
        talk_kill(pid);
        snprintf(why, n, "it ran past its time and was ended (--limit %d)",
                 isolation_limit);
        return 1;
    }
}

static uint64_t draw_nonce(void)
{
    uint64_t x = 0;
    FILE *f = fopen("/dev/urandom", "r");
    const int got = f && fread(&x, sizeof x, 1, f) == 1;
    if (f) fclose(f);
    return got ? x : (uint64_t)(talk_seconds() * 1e9) * 0x9e3779b97f4a7c15u;
}

/* When time is up for what a shared object's process says. Before its run it has as
 * much as the run's limit, ten seconds at least; the run has its limit; behind it there
 * is a moment. All of it together ends at `last`, limit + 10 + the moment, so who
 * starts late has less; bulk seconds more for arrays. What it says changes no end. */
struct clock { double until, last, limit, moment; };

static struct clock clock_of(double limit, double bulk)
{
    const double now = talk_seconds(), moment = bulk + fmax(limit / 3, 2);
    return (struct clock){ now + fmax(limit, 10) + bulk, now + limit + 10 + moment,
                           limit, moment };
}

static double clock_runs(const struct clock *c)
{
    return fmin(talk_seconds() + c->limit, c->last);
}

static double clock_after_run(const struct clock *c)
{
    return fmin(fmax(c->until, talk_seconds() + c->moment), c->last);
}

int talk_listen(pid_t pid, int fd, enum kind kind, double limit, double bulk,
                struct message *m, char *why, size_t n)
{
    const double day = 86400;
    const double patience = isolation_limit ? 20.0 * isolation_limit : day;
    const int theirs = kind == RAN || kind == RECORD;
    if (!isolation_limit) limit = day;
    struct clock c = clock_of(limit, bulk);
    if (!theirs) c.until = talk_seconds() + patience;
    uint64_t nonce = 0;
    int starts = 0, ends = kind == RECORD;     /* each once at most, of theirs */
    for (int done = 0;;) {
        if (wait_for(pid, fd, c.until, why, n)) return 1;
        const int cut = talk_move_until(fd, m, sizeof *m, 0, c.until);
        if (!cut && m->kind == STARTED && !done && (!theirs || !starts++))
            c.until = theirs ? clock_runs(&c) : talk_seconds() + limit;
        else if (!cut && m->kind == RETURNED && !done && (!theirs || !ends++))
            c.until = theirs ? clock_after_run(&c) : talk_seconds() + patience;
        else if (!cut && m->kind == NO_MEMORY) {       /* it has said so on stderr */
            fflush(stdout);
            _Exit(2);
        } else if (!cut && m->kind == DONE && !done) {
            done = 1;
            nonce = draw_nonce();
            if (!theirs) c.until = talk_seconds() + patience;
            if (talk_send(fd, &nonce, sizeof nonce)) continue;    /* it is ending */
        } else if (!cut && done && m->kind == kind && m->nonce == nonce) return 0;
        else {
            talk_kill(pid);
            snprintf(why, n, "it wrote where only the judge speaks");
            return 1;
        }
    }
}

void talk_forget(struct isolated *x)
{
    if (x->pid) close(x->fd);
    x->pid = 0;
    if (x->object && plugin_guarded()) plugin_ends_orphans();
}

int isolated_case(struct isolated *x, int index, enum kcp_storage judged,
                  struct verdict *out)
{
    if (isolation_off || ranks_mine() >= 0)
        return judge_case(x->stage, x->variant, &x->list[index], judged, out);
    const struct request ask = { index, (int)judged };
    const double all = isolation_limit * 5 / 3.0, begin = talk_seconds();
    struct message m;
    if (!x->pid) x->begun = index;
    if (x->object && plugin_guarded()) return plugin_case(x, index, judged, out);
    *out = (struct verdict){ .outcome = FAIL, .alive = NAN };
    if (isolation_limit && x->lost >= all) {
        snprintf(out->why, sizeof out->why, "not run: %.0f s went by without a verdict",
                 x->lost);
        return KCP_OK;
    }
    if (!x->pid) x->pid = talk_start(&x->fd);
    if (x->pid < 0) {
        x->pid = 0;
        return KCP_NO_MEMORY;
    }
    if (!x->pid) {
        serve(x);
        end_here();
    }
    double limit = isolation_limit;
    if (limit > all - x->lost) limit = all - x->lost;
    if (talk_send(x->fd, &ask, sizeof ask))
        snprintf(out->why, sizeof out->why, "its process takes no more cases");
    if (talk_listen(x->pid, x->fd, VERDICT, limit, 0, &m, out->why,
                    sizeof out->why)) {
        talk_forget(x);
        x->lost += talk_seconds() - begin;
    } else *out = m.is.verdict;
    return KCP_OK;
}

int isolated_end(struct isolated *x, char *why, size_t n)
{
    int status = 0, bad = 0;
    if (!x->pid) return 0;
    const double until = talk_seconds() + (isolation_limit ? isolation_limit : 86400);
    shutdown(x->fd, SHUT_WR);
    while (waitpid(x->pid, &status, WNOHANG) == 0 && talk_seconds() < until)
        poll(NULL, 0, 1);
    if (talk_seconds() >= until) {
        talk_kill(x->pid);
        snprintf(why, n, "after its last case it does not end");
        bad = 1;
    } else if (status) {
        char how[120];
        describe_end(status, how, sizeof how);
        snprintf(why, n, "after its last case %s", how);
        bad = 1;
    }
    kill(-x->pid, SIGKILL);
    talk_forget(x);
    return bad;
}

int isolated_check(const struct kcp_check *c, struct kcp_report *own)
{
    int fd;
    struct message m;
    char why[160];
    if (isolation_off || ranks_mine() >= 0) return c->run(own);
    const pid_t pid = talk_start(&fd);
    if (pid < 0) return KCP_NO_MEMORY;
    if (!pid) {
        m = (struct message){ .kind = REPORT };
        m.is.check.report = *own;
        m.is.check.status = c->run(&m.is.check.report);
        talk_answer(&m, REPORT);
        end_here();
    }
    struct isolated x = { .pid = pid, .fd = fd };
    const int lost = talk_listen(pid, fd, REPORT, isolation_limit, 0, &m, why,
                                 sizeof why);
    if (!lost) *own = m.is.check.report;
    if (lost) talk_forget(&x);
    if (lost || isolated_end(&x, why, sizeof why)) {
        report_fail(own, "%s %s: %s", c->stage, c->name, why);
        return KCP_OK;
    }
    return m.is.check.status;
}

int isolated_device(struct kcp_device *d)
{
    int fd;
    struct message m;
    char why[160];
    if (isolation_off || ranks_mine() >= 0) return kcp_device_here(d) != KCP_OK;
    const pid_t pid = talk_start(&fd);
    if (pid < 0) return 1;
    if (!pid) {
        m = (struct message){ .kind = DEVICE };
        m.is.device.status = kcp_device_here(&m.is.device.is);
        talk_answer(&m, DEVICE);
        _exit(0);
    }
    const int lost = talk_listen(pid, fd, DEVICE, isolation_limit, 0, &m, why,
                                 sizeof why);
    if (!lost) talk_kill(pid);
    close(fd);
    if (!lost) *d = m.is.device.is;
    return lost || m.is.device.status;
}
