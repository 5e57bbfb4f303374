/* check_main.c -- hold a student's check to one variant: it must accept or reject it.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=07b_check.  Next: none.
 * kcp-grade-07b_check NAME|./planted.so: exit 0 when the check is right about it.
 */
#include "tests/judge/judge.h"
#include <string.h>

int lab_check(int (*merge)(void *args));

int main(int argc, char **argv)
{
    const struct kcp_variant *v = NULL;
    char why[256] = "a variant of 07_merge";
    if (argc == 2 && strchr(argv[1], '/')) v = variant_load(argv[1], why, sizeof why);
    else if (argc == 2 && kcp_variants("07_merge", argv[1], &v, 1) != 1) v = NULL;
    if (!v) {
        fprintf(stderr, "kcp-grade-07b_check: found '%s', expected %s\n",
                argc == 2 ? argv[1] : "", why);
        return 2;
    }
    const int right = !is_mutant(v), said = lab_check(v->run) != 0;
    if (right == said) printf("1 passed, 0 failed, 0 skipped\n");
    else if (right) printf("the check rejects a fold that is right\n");
    else printf("the check accepts a fold that is wrong: %s\n", v->why);
    return right != said;
}
