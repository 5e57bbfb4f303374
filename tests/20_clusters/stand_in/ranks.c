/* ranks.c -- the NCCL backend without a GPU: calls, forms, a late rank, a lost rank.
 *
 * Book: chapter 20, "What is promised to whom".
 * Checked by: tests/cli/nccl_stand_in.sh, also under the sanitizers.
 * Next: libnccl.c, cudart.c, what stands in.
 *
 *   kcp-stand-in [few]    few: a rank is lost in one form (sanitizers) */
#include "stand_in.h"

/* A call that is left out must be seen, before silence counts. */
static int plant(void)
{
    setenv("KCP_STAND_IN_DROPS", "1", 1);
    setenv("KCP_TIMEOUT_S", "1", 1);
    const int seen = forms(2, 0, KCP_CHAIN, 1);
    unsetenv("KCP_STAND_IN_DROPS");
    unsetenv("KCP_TIMEOUT_S");
    if (!seen)
        printf("  FAIL  a call is left out, and no exchange is wrong\n");
    return !seen;
}

int main(int argc, char **argv)
{
    const int few = argc == 2 && !strcmp(argv[1], "few");
    char why[120] = "";
    if ((argc > 1 && !few) || !nccl_open(why, sizeof why)) {
        fprintf(stderr, "kcp-stand-in: %s\n",
                why[0] ? why : "expected nothing, or few");
        return 2;
    }
    int wrong = calls();
    for (int form = 0; form < KCP_FORMS; form++)
        for (int R = 2; R <= MOST; R++)
            wrong += forms(R, 0, form, 0) + forms(R, 64, form, 0);
    for (int R = 2; R <= MOST && !wrong; R++)
        wrong = late_ranks(R, 0);
    if (!wrong)
        wrong = plant() + late_ranks(MOST, 1);
    setenv("KCP_TIMEOUT_S", few ? "5" : "1", 1);             /* few: sanitizers */
    for (int form = 0; form < KCP_FORMS && !wrong; form++)
        if (!few || form == KCP_CHAIN)
            wrong += lose_ranks(form);
    if (wrong)
        printf("stand-in for NCCL: %d are not as they should be\n", wrong);
    else
        printf("stand-in for NCCL: every call, the forms bit for bit, a lost rank\n");
    return wrong ? 1 : 0;
}
