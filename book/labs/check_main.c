/* check_main.c -- hold a student's check to one variant: it must accept or reject it.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=07b_check.  Next: chain_main.c.
 * kcp-lab-check ./lab.so NAME|./planted.so: exit 0 when the check is right of it. The
 * check runs in a process of its own: what it answers counts with a number that it is
 * told when it has returned, and by nothing that it prints. The fold runs here, and the
 * check's process does not know which it is: one function asks for any of them. With -
 * for the object the student's code is linked in and runs here (asan: it names the line
 * where it breaks).
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

static int receive_all(int fd, void *data, size_t n)
{
    for (char *at = data; n;) {
        const ssize_t got = recv(fd, at, n, 0);
        if (got <= 0) return 1;
        at += got;
        n -= (size_t)got;
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
    if (receive_all(fd, &nonce, sizeof nonce)) _exit(1);
    if (send_all(fd, &nonce, sizeof nonce) || send_all(fd, answer, n)) _exit(1);
    _exit(0);
}

static int asks = -1;                         /* in the student's process */

/* The student's process, begun; and its answer. */
struct apart { pid_t pid; int fd; };
static int apart_begin(struct apart *x, int (*work)(void *, void *), void *arg,
                       void *answer, size_t n)
{
    int pair[2];
    fflush(stdout);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return -1;
    x->pid = fork();
    if (!x->pid) {
        close(pair[0]);
        asks = pair[1];
        serve(work, arg, answer, n, pair[1]);
    }
    close(pair[1]);
    x->fd = pair[0];
    return x->pid < 0 ? -1 : 0;
}

/* heard: the work is done. */
static int apart_end(struct apart *x, int heard, void *answer, size_t n)
{
    uint64_t nonce, told = 0;
    int status = 0;
    heard = heard && getrandom(&nonce, sizeof nonce, 0) == sizeof nonce;
    heard = heard && !send_all(x->fd, &nonce, sizeof nonce);
    heard = heard && !receive_all(x->fd, &told, sizeof told);
    heard = heard && !receive_all(x->fd, answer, n);
    close(x->fd);
    waitpid(x->pid, &status, 0);
    if (heard && told == nonce) return 0;
    if (WIFSIGNALED(status))
        printf("the process ended, signal %d\n", WTERMSIG(status));
    else printf("the process ended without an answer\n");
    return -1;
}

int apart(int (*work)(void *arg, void *answer), void *arg, void *answer, size_t n)
{
    struct apart x;
    char done = 0;
    if (apart_begin(&x, work, arg, answer, n)) return -1;
    const int heard = !receive_all(x.fd, &done, 1) && done == 'd';
    return apart_end(&x, heard, answer, n);
}

void *lab_symbol(const char *object, const char *name)
{
    void *so = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    void *found = so ? dlsym(so, name) : NULL;
    if (!found) fprintf(stderr, "%s: found no %s there\n", object, name);
    return found;
}

/* A fold that the check asks for: then its maps and S, and what came of them. */
enum { MOST = 1 << 22 };                          /* numbers of either */
struct fold_asked { int R, HV, K, V, pass, range[2]; };

static size_t numbers_of_S(const struct fold_asked *f)
{
    return (size_t)f->HV * f->K * f->V;
}

static size_t numbers_of_maps(const struct fold_asked *f)
{
    return (size_t)f->R * f->HV * f->K * (f->V + f->K);
}

static int fold_is_bad(const struct fold_asked *f)
{
    const int n[] = { f->R, f->HV, f->K, f->V };
    double maps = f->V + (double)f->K;
    for (int i = 0; i < 3; i++) maps *= n[i];
    for (int i = 0; i < 4; i++)
        if (n[i] < 1) return 1;
    return maps > MOST || f->range[0] < 0 || f->range[1] < f->range[0] ||
           f->range[1] > f->R || (f->pass != KCP_FORWARD && f->pass != KCP_BACKWARD);
}

/* In the student's process: this stands for every fold. */
static int fold_elsewhere(void *args)
{
    const struct kcp_merge *a = args;
    struct fold_asked f = { a->R, a->HV, a->K, a->V, a->pass,
                            { a->range[0], a->range[1] } };
    int status = KCP_BAD;
    if (fold_is_bad(&f) || a->H != a->HV || a->N != 1) return KCP_BAD;
    const size_t S = numbers_of_S(&f) * sizeof(double);
    if (send_all(asks, "f", 1) || send_all(asks, &f, sizeof f) ||
        send_all(asks, a->maps, numbers_of_maps(&f) * sizeof(double)) ||
        send_all(asks, a->S, S) || receive_all(asks, &status, sizeof status) ||
        receive_all(asks, a->S, S)) _exit(1);
    return status;
}

/* In the judge's. */
static int fold_here(const struct kcp_variant *v, int fd)
{
    struct fold_asked f;
    if (receive_all(fd, &f, sizeof f) || fold_is_bad(&f)) return 1;
    const size_t maps = numbers_of_maps(&f) * sizeof(double);
    const size_t S = numbers_of_S(&f) * sizeof(double);
    struct kcp_merge a = { .R = f.R, .H = f.HV, .HV = f.HV, .K = f.K, .V = f.V, .N = 1,
                           .pass = (enum kcp_pass)f.pass, .range = f.range };
    void *in = malloc(maps);
    int status = KCP_NO_MEMORY, failed = 1;
    a.maps = in;
    a.S = malloc(S);
    if (in && a.S && !receive_all(fd, in, maps) && !receive_all(fd, a.S, S)) {
        status = v->run(&a);
        failed = send_all(fd, &status, sizeof status) || send_all(fd, a.S, S);
    }
    free(in);
    free(a.S);
    return failed;
}

struct asked { const char *object; char *name; };

/* In the student's process, before its code is there: the name is forgotten. */
static int ask(void *arg, void *answer)
{
    const struct asked *x = arg;
    memset(x->name, 0, strlen(x->name));
    check *const *at = lab_symbol(x->object, "lab_check_at");
    if (at) *(int *)answer = (*at)(fold_elsewhere) != 0;
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
    const int here = argc == 3 && !strcmp(argv[1], "-") && lab_check;
    const int there = argc == 3 && strchr(argv[1], '/');
    struct asked asked = { argv[1], argv[2] };
    struct apart x;
    int said = 0;
    char why[256] = "a variant of 07_merge", done = 0;
    /* First of all, so that nothing of the fold's name is found in its memory. */
    if (there && apart_begin(&x, ask, &asked, &said, sizeof said)) return 1;
    const char *name = argc == 3 ? argv[2] : "";
    if (strchr(name, '/')) v = variant_load(name, why, sizeof why);
    else if (argc == 3 && kcp_variants("07_merge", name, &v, 1) != 1) v = NULL;
    if (!v || (!here && !there)) {
        fprintf(stderr, "kcp-lab-check: found '%s', expected ./lab.so and %s\n", name,
                why);
        return 2;
    }
    const int right = !is_mutant(v);
    if (here) said = lab_check(v->run) != 0;
    else {
        while (!receive_all(x.fd, &done, 1) && done == 'f')
            if (fold_here(v, x.fd)) break;
        if (apart_end(&x, done == 'd', &said, sizeof said)) return 1;
    }
    if (right == said) printf("1 passed, 0 failed, 0 skipped\n");
    else if (right) printf("the check rejects a fold that is right\n");
    else printf("the check accepts a fold that is wrong: %s\n", v->why);
    return right != said;
}
