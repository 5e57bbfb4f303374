/* check_main.c -- tests a student's check on a correct or a wrong variant.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=07b, 09d.  Next: chain_main.c.
 * kcp-lab-check ./lab.so STAGE NAME|./planted.so exits with 0 if the check accepts a
 * correct variant or rejects a wrong variant of the stage. The check runs in a separate
 * process. Only the value that lab_check returns counts. With "-" instead of ./lab.so
 * the student's code is linked in and runs in this process, so that
 * AddressSanitizer names the failing line.
 */
#include "apart.h"
#include "tests/judge/judge.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int check(int (*stage)(void *args));
int lab_check(int (*stage)(void *args)) __attribute__((weak));

/* Calls `move` (read or write) until n bytes are moved; returns 1 on failure. */
static int whole(ssize_t (*move)(int, void *, size_t), int fd, void *data, size_t n)
{
    for (char *at = data; n;) {
        const ssize_t moved = move(fd, at, n);
        if (moved <= 0) return 1;
        at += moved;
        n -= (size_t)moved;
    }
    return 0;
}

static ssize_t put(int fd, void *data, size_t n)
{
    return write(fd, data, n);
}

int apart(int (*work)(void *arg, void *answer), void *arg, void *answer, size_t n)
{
    int ends[2], status = 0;
    fflush(stdout);
    if (pipe(ends)) return -1;
    const pid_t pid = fork();
    if (!pid) {
        close(ends[0]);
        const int failed = work(arg, answer);
        fflush(stdout);
        _exit(failed || whole(put, ends[1], answer, n));
    }
    close(ends[1]);
    const int heard = pid > 0 && !whole(read, ends[0], answer, n);
    close(ends[0]);
    if (pid > 0) waitpid(pid, &status, 0);
    if (heard) return 0;
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

struct question { const char *object; const struct kcp_variant *judged; };

/* Runs the check in the student's process; writes its result to `answer`. */
static int in_process(void *arg, void *answer)
{
    const struct question *x = arg;
    check *const *at = lab_symbol(x->object, "lab_check_at");
    if (at) *(int *)answer = (*at)(x->judged->run) != 0;
    return !at;
}

int main(int argc, char **argv)
{
    const struct kcp_variant *v = NULL;
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("kcp-lab-check %s\n", kcp_version());
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "plan")) return plan_main(argc - 1, argv + 1);
    for (int i = 0; argc > 1 && i < KCP_FORMS; i++)
        if (!strcmp(argv[1], kcp_form_names[i]))
            return chain_main(argc - 1, argv + 1);
    const int here = argc == 4 && !strcmp(argv[1], "-") && lab_check;
    const int there = argc == 4 && strchr(argv[1], '/');
    const char *name = argc == 4 ? argv[3] : "";
    char why[256] = "a stage and its variant";
    int said = 0;
    if (strchr(name, '/')) v = variant_load(name, why, sizeof why);
    else if (argc == 4 && kcp_variants(argv[2], name, &v, 1) != 1) v = NULL;
    if (!v || (!here && !there)) {
        fprintf(stderr, "kcp-lab-check: found '%s', expected ./lab.so and %s\n", name,
                why);
        return 2;
    }
    struct question question = { argv[1], v };
    if (here) said = lab_check(v->run) != 0;
    else if (apart(in_process, &question, &said, sizeof said)) return 1;
    const int right = !is_mutant(v);
    if (right == said) printf("1 passed, 0 failed, 0 skipped\n");
    else if (right) printf("the check rejects a correct variant\n");
    else printf("the check accepts a wrong variant: %s\n", v->why);
    return right != said;
}
