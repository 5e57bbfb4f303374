/* check_main.c -- hold a student's check to one variant: it must accept or reject it.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=07b_check.  Next: none.
 * kcp-lab-check ./lab.so NAME|./planted.so: exit 0 when the check is right of it. The
 * check runs in a process of its own: what it answers counts with a number that it is
 * told when it has returned, and by nothing that it prints. With - for the object the
 * check is linked in and runs here (asan: it names the line where a check breaks).
 */
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

struct answer { uint64_t nonce; int said; };

/* In the check's process: the check, then the number, then both. */
static _Noreturn void serve(const char *object, const struct kcp_variant *v, int fd)
{
    void *so = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    check *const *at = so ? dlsym(so, "lab_check_at") : NULL;
    struct answer answer = { 0 };
    char done = 'd';
    if (!at) {
        fprintf(stderr, "%s: found no lab_check there\n", object);
        _exit(1);
    }
    answer.said = (*at)(v->run) != 0;
    fflush(stdout);
    if (write(fd, &done, 1) != 1) _exit(1);
    if (read(fd, &answer.nonce, sizeof answer.nonce) != sizeof answer.nonce) _exit(1);
    if (write(fd, &answer, sizeof answer) != sizeof answer) _exit(1);
    _exit(0);
}

/* 0 or 1, as the check said; -1: its process ended without an answer, or lied. */
static int ask(const char *object, const struct kcp_variant *v)
{
    int pair[2], status = 0;
    uint64_t nonce;
    struct answer answer = { 0 };
    char done = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return -1;
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) return -1;
    const pid_t pid = fork();
    if (pid < 0) return -1;
    if (!pid) {
        close(pair[0]);
        serve(object, v, pair[1]);
    }
    close(pair[1]);
    int told = recv(pair[0], &done, 1, 0) == 1 && done == 'd';
    told = told && send(pair[0], &nonce, sizeof nonce, MSG_NOSIGNAL) == sizeof nonce;
    told = told &&
           recv(pair[0], &answer, sizeof answer, MSG_WAITALL) == sizeof answer;
    waitpid(pid, &status, 0);
    if (told && answer.nonce == nonce) return answer.said;
    if (WIFSIGNALED(status))
        printf("the check's process ended, signal %d\n", WTERMSIG(status));
    else printf("the check's process ended without an answer\n");
    return -1;
}

int main(int argc, char **argv)
{
    const struct kcp_variant *v = NULL;
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
    const int right = !is_mutant(v);
    const int said = here ? lab_check(v->run) != 0 : ask(argv[1], v);
    if (said < 0) return 1;
    if (right == said) printf("1 passed, 0 failed, 0 skipped\n");
    else if (right) printf("the check rejects a fold that is right\n");
    else printf("the check accepts a fold that is wrong: %s\n", v->why);
    return right != said;
}
