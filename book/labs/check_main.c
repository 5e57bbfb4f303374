/* check_main.c -- runs a student's check on a correct or a wrong variant of a stage.
 * Book: staff.md.  Used by: make grade LAB=07b, 09d.
 * kcp-lab-check ./lab.so STAGE NAME|./planted.so runs the check on one variant of the
 * stage. It exits with 0 if the check accepts a correct variant or rejects a wrong one.
 * The check runs in a separate process; only the value of lab_check counts. With
 * "-" instead of ./lab.so, the student's code is linked to this program and runs in
 * this process, so that AddressSanitizer names the failing line.
 */
#include "apart.h"
#include "tests/judge/isolation.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { DAY = 86400 };                  /* seconds; the grader's limit is shorter */
typedef int check(int (*stage)(void *args));
int lab_check(int (*stage)(void *args)) __attribute__((weak));

int apart(void (*work)(const void *arg, void *answer), const void *arg, void *answer,
          size_t n)
{
    char why[200] = "";
    if (!process_ask(work, arg, answer, n, DAY, why, sizeof why)) return 0;
    printf("the process failed: %s\n", why);
    return -1;
}

function *lab_function(const char *object)
{
    void *so = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    function *const *at = so ? dlsym(so, "lab_function") : NULL;
    if (at) return *at;
    fprintf(stderr, "%s: found no symbol lab_function\n", object);
    exit(2);
}

struct question { const char *object; const struct kcp_variant *judged; };

/* Runs the check in the student's process; writes its result to `answer`. */
static void in_process(const void *arg, void *answer)
{
    const struct question *x = arg;
    *(int *)answer = ((check *)lab_function(x->object))(x->judged->run) != 0;
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
        if (!strcmp(argv[1], kcp_form_names[i])) return chain_main(argc - 1, argv + 1);
    const int here = argc == 4 && !strcmp(argv[1], "-") && lab_check;
    const int there = argc == 4 && strchr(argv[1], '/');
    const char *name = argc == 4 ? argv[3] : "";
    char why[256] = "a stage and its variant";
    int said = 0;
    if (strchr(name, '/')) v = variant_load(name, why, sizeof why);
    else if (argc == 4 && kcp_variants(argv[2], name, &v, 1) != 1) v = NULL;
    if (!v || (!here && !there)) {
        fprintf(stderr, "kcp-lab-check: found variant '%s', expected ./lab.so and %s\n",
                name, why);
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
