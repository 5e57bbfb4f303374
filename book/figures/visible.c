/* visible.c -- appendix A: the tests that show five mistakes, as the judge decided.
 *
 * kcp-check --stage 08 --variant mutant_decay_first --case 'live kda H=1 HV=1 K=16
 * V=12 C=16 l2norm beta=sigmoid h0 R=4 lengths=64' prints a verdict. R and lengths
 * differ per row. Stage 13 (mutant_dS_decayed, mutant_in_order, mutant_own_M,
 * mutant_outward) has the same case with dht. The verdict in double counts. */
#include "svg.h"

enum { TESTS = 4, ROWS = 5 };

int main(void)
{
    static const int row[ROWS] = { 7, 8, 17, 18, 19 };
    static const struct { const char *name; int shows[ROWS]; } test[TESTS] = {
        { "one rank", { 0, 0, 0, 0, 0 } },
        { "four ranks, a chunk each", { 1, 1, 0, 1, 1 } },
        { "two ranks, many chunks", { 1, 1, 1, 0, 0 } },
        { "four ranks, many chunks", { 1, 1, 1, 1, 1 } } };
    svg_begin(720, 194, "Tests and the mistakes that they show",
              "Rows are tests, columns are errata. Only four ranks with several chunks "
              "each show all five.");
    for (int e = 0; e < ROWS; e++)
        svg_text(310 + 80 * e, 24, "middle", "", "row %d", row[e]);
    for (int t = 0; t < TESTS; t++) {
        svg_text(250, 56 + 38 * t, "end", "", "%s", test[t].name);
        for (int e = 0; e < ROWS; e++)
            svg_rect(276 + 80 * e, 38 + 38 * t, 68, 28,
                     test[t].shows[e] ? "fill:var(--b);stroke:var(--b)"
                                      : "fill:none;stroke:var(--line)");
    }
}
