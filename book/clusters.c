/* clusters.c -- prints predicted times of one GPU and of exchanges over ranks.
 * Book: chapters 18 and 20, which show the output. */
#include "tests/20_clusters/model.h"

#include <stdio.h>

static void floors(void)
{
    static const struct { const char *name; double tokens, heads; } at[] = {
        { "T = 8192, 96 heads", 8192, 96 }, { "T = 65536, 32 heads", 65536, 32 } };
    const double D = 128, C = 64, copy = 4.25e12, tensor = 790e12;
    const double flop = 6 * D * D + 5 * C * D + C * C / 3, bytes = 5 * D * 2 + 2;
    const double tiles = 6 * D * D + 8 * C * D + 4.0 / 3 * C * C, sm = tensor / 132;
    printf("== 17-floors\nper token and head: %.0f bytes, %.0f operations (%.0f in "
           "whole tiles);\na copy at %.2f TB/s, products at %.0f TFLOP/s\n\n", bytes,
           flop, tiles, copy / 1e12, tensor / 1e12);
    printf("@18/chunk %.1f\n@18/chunk_us %.1f\n", tiles * C * 1e-6,
           tiles * C / sm * 1e6);
    /* Backward: 2590 bytes and 417792 operations per token and head (kcp-bench). */
    printf("@18/floor_forward %.2f\n@18/floor_backward %.2f\n",
           8192 * 96 * fmax(bytes / copy, flop / tensor) * 1e3,
           8192 * 96 * fmax(2590 / copy, 417792 / tensor) * 1e3);
    printf("@18/special_us %.1f\n", 5 * C * D / 16 / 1.98e3);           /* 1.98 GHz */
    printf("case                   token-heads   by bytes, ms   by operations, ms   "
           "steps in series\n");
    for (int i = 0; i < 2; i++) {
        const double th = at[i].tokens * at[i].heads;
        printf("%-20s %13.0f %14.3f %19.3f %17.0f\n", at[i].name, th,
               th * bytes / copy * 1e3, th * flop / tensor * 1e3, at[i].tokens / C);
    }
}

static void forms(const char *name, struct wire w, struct wire all)
{
    printf("%s: %.1f us per message, %.0f GB/s; microseconds until the last rank\n"
           "has its state\n", name, w.a, w.bw / 1e3);
    printf("  R   all-gather       chain   pipelined x4        scan\n");
    for (int R = 2; R <= 64; R *= 2)
        printf("%3d %12.0f %11.0f %14.0f %11.0f\n", R, gather(all, R), chain(w, R, 1),
               chain(w, R, 4), scan(w, R, 1));
}

/* Prints the model's constants and times that chapter 20's text quotes. */
static void values(void)
{
    printf("@20/a %.1f\n@20/bw %.0f\n@20/a_all %.1f\n@20/bw_all %.0f\n@20/a_far %.0f\n"
           "@20/bw_far %.0f\n@20/apply %.1f\n@20/compose %.1f\n", inside.a,
           inside.bw * 1e-3, gathered.a, gathered.bw * 1e-3, between.a,
           between.bw * 1e-3, t_MS(), t_MM());
    printf("@20/gather_four %.0f\n@20/chain_four %.0f\n"
           "@20/scan_four %.0f\n@20/gather_far %.0f\n@20/chain_far %.0f\n",
           gather(gathered, 4), chain(inside, 4, 1),
           scan(inside, 4, 1), gather(between, 4), chain(between, 4, 1));
    printf("@20/in_node %.0f\n@20/over_nodes %.0f\n@20/last %.0f\n@20/two128 %.3f\n"
           "@20/one128 %.3f\n@20/two1024 %.3f\n", scan(inside, 8, 1),
           scan(between, 16, 8), inside.a + B() / inside.bw + t_MS(),
           two_levels(128, 8) * 1e-3, scan(between, 128, 1) * 1e-3,
           two_levels(1024, 8) * 1e-3);
    printf("@20/message %.1f\n", inside.a + B() / inside.bw);
    int R = 2;
    while (scan(inside, R, 1) > chain(inside, R, 1)) R *= 2;
    printf("@20/scan_from %d\n", R);
}

/* Prints a table, and between its rows the values that chapter 20's text quotes. */
static void levels(double tokens)
{
    static const int ranks[] = { 1, 2, 4, 8, 32, 64, 128, 256, 512, 1024, 4096 };
    int meet = 0;
    printf(
        "== 19-levels\n%.0f tokens of one sequence, %.0f heads; per token and head "
        "%.1f ns for the\nmain pass and %.1f ns for the map; nodes of 8 GPUs; times in "
        "ms\n\n",
        tokens, HV, main_ns, sum_ns);
    printf("   R   tokens/rank     main      map   one level   two levels    total   "
           "efficiency\n");
    for (int i = 0; i < 11; i++) {
        const int R = ranks[i];
        const double th = tokens / R * HV, all = tokens * HV * main_ns * 1e-6;
        const double t_main = th * main_ns * 1e-6, t_sum = (R > 1) * th * sum_ns * 1e-6;
        const double one = scan(R > 8 ? between : inside, R, 1) * 1e-3;
        const double two = two_levels(R, 8) * 1e-3, total = t_main + t_sum + two;
        printf("%4d %13.0f %8.3f %8.3f %11.3f %12.3f %8.3f %10.0f %%\n", R, tokens / R,
               t_main, t_sum, one, two, total, 100 * all / (R * total));
        if (R == 2) printf("@20/twice %.2f\n", all / total);
        if (R == 4) printf("@20/hidden4 %.1f\n", 100 * two / total);
        if (R == 64) printf("@20/hidden64 %.0f\n", 100 * two / total);
        if (R == 128)
            printf("@20/total128 %.3f\n@20/share128 %.0f\n", total,
                   100 * all / (R * total));
        if (R == 4096) printf("@20/far %.2f\n", two);
        if (!meet && two > t_main + t_sum) {
            meet = R;
            printf("@20/meet %d\n@20/before %d\n", R, R / 2);
            printf("@20/tokens %.0f\n", tokens / R);
        }
    }
}

int main(void)
{
    floors();
    printf(
        "== 19-forms\n%.0f heads, K = V = %.0f, single precision: %.0f MiB of "
        "states, as many MiB\nof matrices; applying a map takes %.1f us, composing two "
        "%.1f us;\nan all-gather inside a node: %.1f us, %.0f GB/s\n\n",
        HV, K, B() / 1048576, t_MS(), t_MM(), gathered.a, gathered.bw / 1e3);
    forms("inside a node", inside, gathered);
    printf("\n");
    forms("between nodes", between, between);
    values();
    levels(1 << 20);
    /* Ulysses on four ranks: each rank sends 3/4 of its q, k, v, g and beta in bf16. */
    printf("@20/inputs %.0f\n", 0.75 * 65536 / 4 * 32 * (4 * 128 * 2 + 2) / 1048576);
    return 0;
}
