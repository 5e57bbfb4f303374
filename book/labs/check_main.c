/* check_main.c -- hold a student's check to one variant: it must accept or reject it.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=07b_check.  Next: none.
 * kcp-grade-07b_check NAME: exit 0 when the check is right about that variant. */
#include "judge.h"

int lab_check(int (*merge)(void *args));

int main(int argc, char **argv)
{
    const struct kcp_variant *v;
    if (argc != 2 || kcp_variants("07_merge", argv[1], &v, 1) != 1) {
        fprintf(stderr, "usage: kcp-grade-07b_check VARIANT of 07_merge\n");
        return 2;
    }
    const int right = !is_mutant(v), said = lab_check(v->run) != 0;
    if (right == said)
        printf("1 passed, 0 failed, 0 skipped\n");
    else
        printf("the check %s %s: %s\n", said ? "accepts" : "rejects", v->name, v->why);
    return right != said;
}
