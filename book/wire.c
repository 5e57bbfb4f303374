/* wire.c -- prints the error of a layer if messages are rounded to bf16, or if ranks do
 * not wait for states below a tolerance.
 *
 * Book: chapter 20, which shows the output. Checked by: tests/20_clusters/wire.c, on
 * the same layer. Next: book/clusters.c.
 *
 * The references run forward and backward on thread ranks, once over an exact
 * communicator and once over a lossy one. */
#include "tests/20_clusters/layer.h"
#include "tests/judge/tolerance.h"

#include <stdio.h>

static void fail(const char *why)
{
    fprintf(stderr, "wire.c: %s\n", why);
    exit(1);
}

static struct lossy_layer a;

static struct answers exact(int R, enum kcp_form form)
{
    char why[200];
    a.lossy = 0;
    if (lossy_run(&a, R, form, why, sizeof why))
        fail(why);
    return a.got;
}

static void lossy(int R, enum kcp_form form, int bf16, double tolerance)
{
    char why[200];
    a.lossy = 1;
    a.wire = (struct kcp_wire){ bf16, tolerance };
    if (lossy_run(&a, R, form, why, sizeof why))
        fail(why);
}

#define OFF(field) lossy_apart(a.got.field, want.field, sizeof want.field)

/* Prints errors for every form, because forms send maps, states or composed maps. */
static void narrow(void)
{
    printf("== 20-wire\nKDA, %d tokens, live gates, payloads in bf16: relative errors "
           "of the whole layer\nagainst the same in double\n\nform          R        o"
           "       ht       dq       dk       dv       dg    dbeta      dh0\n", LT);
    const double layer = tolerance_of(TOLERANCE_LAYER, KCP_BF16);
    const double gradient = tolerance_of(TOLERANCE_GRADIENTS, KCP_BF16);
    const double gate = tolerance_of(TOLERANCE_GATES, KCP_BF16);
    const double limit[] = { layer, layer, gradient, gradient, gradient, gate, gate,
                             gradient };
    double most = 0, least = 1;
    lossy_draw(&a, KCP_KDA, GATES_LIVE, 20);
    for (int form = 0; form < KCP_FORMS; form++)
        for (int R = 2; R <= 16; R *= 2) {
            static struct answers want;
            want = exact(R, form);
            lossy(R, form, 1, 0);
            const double off[] = { OFF(o), OFF(ht), OFF(dq), OFF(dk), OFF(dv),
                                   OFF(dg), OFF(dbeta), OFF(dh0) };
            printf("%-11s %3d", kcp_form_names[form], R);
            for (int i = 0; i < 8; i++)
                printf("  %7.1e", off[i]);
            printf("\n");
            most = fmax(most, off[0]);
            least = fmin(least, off[0]);
        }
    printf("%-15s", "limits");
    for (int i = 0; i < 8; i++)
        printf("  %7.0e", limit[i]);
    printf("\n@20/wire_most %.1f\n@20/wire_least %.1f\n", 1e3 * most, 1e3 * least);
}

static void cut(void)
{
    static const double tolerance[] = { 1e-6, 1e-3, 0.5 };
    printf("== 20-cut\n%d tokens over 8 ranks, chain: the ranks that do not wait, of "
           "the 6 that could;\nthe largest of their bounds; errors of the whole layer"
           "\n\ngates   model  tolerance   do not wait   bound    error of o   of dq\n",
           LT);
    for (int s = 0; s < GATES_ALL; s++)
        for (int model = KCP_KDA; model <= KCP_GDN; model++) {
            lossy_draw(&a, model, s, 20);
            static struct answers want;
            want = exact(8, KCP_CHAIN);
            for (int i = 0; i < 3; i++) {
                int n = 0;
                double bound = -1;
                lossy(8, KCP_CHAIN, 0, tolerance[i]);
                for (int r = 0; r < 8; r++) {
                    n += a.told[0][r].cut;
                    bound = fmax(bound, a.told[0][r].bound);
                }
                printf("%-7s %-5s %10.0e %13d   %7.1e   %7.1e   %7.1e\n",
                       strength_name[s], model ? "GDN" : "KDA", tolerance[i], n, bound,
                       OFF(o), OFF(dq));
            }
        }
}

int main(void)
{
    narrow();
    cut();
    return 0;
}
