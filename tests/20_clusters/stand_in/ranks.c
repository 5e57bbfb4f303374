/* ranks.c -- the NCCL backend without a GPU: every form, a rank lost in each way.
 *
 * Book: chapter 20, "What is promised to whom".
 * Checked by: tests/cli/nccl_stand_in.sh, also under the sanitizers.
 * Next: libnccl.c, cudart.c, what stands in.
 *
 *   kcp-stand-in [full | few]    full: rank 1 is lost before each of its calls; few: in
 *                                one form, for a build under a sanitizer */
#include "stand_in.h"

struct answers want[MOST + 1][FORMS][2];
struct lossy_layer *layer_of_model[2];

static int answers_of_threads(void)
{
    char why[200];
    for (int i = 0; i < MOST * FORMS * 2; i++) {
        const int R = 1 + i / (FORMS * 2), form = i / 2 % FORMS, model = i % 2;
        if (lossy_run(layer_of_model[model], R, (enum kcp_form)form, why, sizeof why))
            return 1;
        want[R][form][model] = layer_of_model[model]->got;
    }
    return 0;
}

/* A call that is left out must be seen, before silence counts. */
static int plant(void)
{
    setenv("KCP_STAND_IN_DROPS", "1", 1);
    setenv("KCP_TIMEOUT_S", "1", 1);
    const int seen = forms_exchange(1);
    unsetenv("KCP_STAND_IN_DROPS");
    unsetenv("KCP_TIMEOUT_S");
    if (!seen)
        printf("  FAIL  a call is left out, and no exchange is wrong\n");
    return !seen;
}

int main(int argc, char **argv)
{
    const int full = argc == 2 && !strcmp(argv[1], "full");
    const int few = argc == 2 && !strcmp(argv[1], "few");
    char why[120] = "";
    for (int model = 0; model < 2; model++) {
        layer_of_model[model] = malloc(sizeof *layer_of_model[model]);
        if (!layer_of_model[model])
            return 2;
        lossy_draw(layer_of_model[model], model ? KCP_GDN : KCP_KDA, GATES_LIVE, 20);
    }
    if ((argc > 1 && !full && !few) || !nccl_open(why, sizeof why)) {
        fprintf(stderr, "kcp-stand-in: %s\n",
                why[0] ? why : "expected nothing, full or few");
        return 2;
    }
    int wrong = answers_of_threads();
    for (int lent = 0; lent < 3 && !wrong; lent++)
        wrong += forms_threads(lent);
    if (!wrong)
        wrong = forms_exchange(0) + forms_split() + late_ranks();
    if (!wrong)
        wrong = plant() + use_by_file() + use_captured() + use_opened();
    const int how_many = few ? FEW : SOME;
    if (!wrong)
        wrong = lose_ranks(full ? ALL : how_many);
    for (int model = 0; model < 2; model++)
        free(layer_of_model[model]);
    if (wrong)
        printf("stand-in for NCCL: %d are not as they should be\n", wrong);
    else
        printf("stand-in for NCCL: the forms bit for bit, a rank lost in each way\n");
    return wrong ? 1 : 0;
}
