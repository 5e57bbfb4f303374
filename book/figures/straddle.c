/* straddle.c -- chapter T: the pairs of tokens that count for the gradient of g_t. */
#include "svg.h"

enum { N = 8, CUT = 5, SIDE = 24 };

int main(void)
{
    svg_begin(720, 250, "Pairs that straddle t",
              "The lower triangle of eight tokens. Pairs with both tokens from t on "
              "cancel; pairs with a row from t on and a column before t remain.");
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++)
            svg_rect(120 + SIDE * j, 30 + SIDE * i, SIDE - 2, SIDE - 2,
                     i >= CUT && j < CUT ? "fill:var(--b);stroke:var(--b)"
                     : i >= CUT          ? "fill:var(--wash-d);stroke:var(--d)"
                                         : "fill:none;stroke:var(--line)");
    svg_line(100, 29 + SIDE * CUT, 330, 29 + SIDE * CUT, "stroke:var(--ink)");
    svg_line(119 + SIDE * CUT, 24, 119 + SIDE * CUT, 230, "stroke:var(--ink)");
    svg_text(94, 34 + SIDE * CUT, "end", "", "t");
    svg_text(119 + SIDE * CUT, 18, "middle", "", "t");
    svg_text(60, 130, "middle", "soft", "row i");
    svg_text(210, 246, "middle", "soft", "column j");
    svg_rect(370, 60, 16, 16, "fill:var(--b);stroke:var(--b)");
    svg_text(396, 73, "start", "", "straddle t: added once");
    svg_rect(370, 96, 16, 16, "fill:var(--wash-d);stroke:var(--d)");
    svg_text(396, 109, "start", "", "both tokens from t on: added and subtracted");
    svg_rect(370, 132, 16, 16, "fill:none;stroke:var(--line)");
    svg_text(396, 145, "start", "", "both before t: not in the sum");
}
