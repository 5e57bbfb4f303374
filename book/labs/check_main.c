/* check_main.c -- hold a student's check to one variant: it must accept or reject it.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=07b_check.  Next: chain_main.c.
 * kcp-lab-check ./lab.so NAME|./planted.so: exit 0 when the check is right of it. The
 * check runs in a process of its own: what it answers counts with a number that it is
 * told when it has returned, and by nothing that it prints. With - for the object the
 * student's code is linked in and runs here (asan: it names the line where it breaks).
 */
#include "apart.h"
#include "tests/judge/judge.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int check(int (*merge)(void *args));
int lab_check(int (*merge)(void *args)) __attribute__((weak));

static int send_all(int fd, const void *data, size_t n)
{
    for (const char *at = data; n;) {
        const ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent <= 0) return 1;
        at += sent;
        n -= (size_t)sent;
    }
    return 0;
}

/* In the student's process: the work, then the number, then both. */
static _Noreturn void serve(int (*work)(void *, void *), void *arg, void *answer,
                            size_t n, int fd)
{
    uint64_t nonce;
    char done = 'd';
    if (work(arg, answer)) _exit(1);
    fflush(stdout);
    if (send_all(fd, &done, 1)) _exit(1);
    if (recv(fd, &nonce, sizeof nonce, MSG_WAITALL) != sizeof nonce) _exit(1);
    if (send_all(fd, &nonce, sizeof nonce) || send_all(fd, answer, n)) _exit(1);
    _exit(0);
}

int apart(int (*work)(void *arg, void *answer), void *arg, void *answer, size_t n)
{
    int pair[2], status = 0;
    uint64_t nonce, told = 0;
    char done = 0;
    fflush(stdout);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return -1;
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) return -1;
    const pid_t pid = fork();
    if (pid < 0) return -1;
    if (!pid) {
        close(pair[0]);
        serve(work, arg, answer, n, pair[1]);
    }
    close(pair[1]);
    int heard = recv(pair[0], &done, 1, 0) == 1 && done == 'd';
    heard = heard && !send_all(pair[0], &nonce, sizeof nonce);
    heard = heard && recv(pair[0], &told, sizeof told, MSG_WAITALL) == sizeof told;
    for (size_t at = 0; heard && at < n;) {
        const ssize_t got = recv(pair[0], (char *)answer + at, n - at, 0);
        heard = got > 0;
        at += heard ? (size_t)got : 0;
    }
    close(pair[0]);
    waitpid(pid, &status, 0);
    if (heard && told == nonce) return 0;
    if (WIFSIGNALED(status))
        printf("the process ended, signal %d\n", WTERMSIG(status));
    else printf("the process ended without an answer\n");
    return -1;
}

void *lab_symbol(const char *object, const char *name)
{
    void *so = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    void *found = so ? dlsym(so, name) : NULL;
    if (!found) fprintf(stderr, "%s: found no %s there\n", object, name);
    return found;
}

struct asked { const char *object; const struct kcp_variant *v; };

static int ask(void *arg, void *answer)
{
    const struct asked *x = arg;
    check *const *at = lab_symbol(x->object, "lab_check_at");
    if (at) *(int *)answer = (*at)(x->v->run) != 0;
    return !at;
}

int main(int argc, char **argv)
{
    const struct kcp_variant *v = NULL;
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("kcp-lab-check %s\n", kcp_version());
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "chain")) return chain_main(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "survivor"))
        return survivor_main(argc - 1, argv + 1);
    const char *name = argc == 3 ? argv[2] : "";
    char why[256] = "a variant of 07_merge";
    if (strchr(name, '/')) v = variant_load(name, why, sizeof why);
    else if (argc == 3 && kcp_variants("07_merge", name, &v, 1) != 1) v = NULL;
    const int here = argc == 3 && !strcmp(argv[1], "-") && lab_check;
    if (!v || (!here && !strchr(argv[1], '/'))) {
        fprintf(stderr, "kcp-lab-check: found '%s', expected ./lab.so and %s\n", name,
                why);
        return 2;
    }
    struct asked asked = { argv[1], v };
    int said = 0;
    const int right = !is_mutant(v);
    if (here) said = lab_check(v->run) != 0;
    else if (apart(ask, &asked, &said, sizeof said)) return 1;
    if (right == said) printf("1 passed, 0 failed, 0 skipped\n");
    else if (right) printf("the check rejects a fold that is right\n");
    else printf("the check accepts a fold that is wrong: %s\n", v->why);
    return right != said;
}
