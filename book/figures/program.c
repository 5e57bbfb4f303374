/* program.c -- the figure of chapter 08: the steps of a forward pass on three ranks. */
#include "svg.h"

int main(void)
{
    static const char *const of[] = { "h_ext", "h_ext, M", "none" };
    svg_begin(720, 262, "One rank's program, on three ranks",
              "Each rank runs front end, factors, map, exchange and scan. The last "
              "rank makes no map. All wait once, in the exchange.");
    static const char *const titles[] = { "1 front end", "2 factors", "3 map",
                                          "4 exchange", "5 scan, output" };
    static const double at[] = { 70, 180, 290, 400, 520 };
    static const double wide[] = { 110, 110, 110, 120, 190 };
    for (int k = 0; k < 5; k++)
        svg_text(at[k] + wide[k] / 2, 24, "middle", "", "%s", titles[k]);
    for (int r = 0; r < 3; r++) {
        const double y = 42 + 66 * r;
        svg_text(4, y + 25, "start", "", "rank %d", r);
        svg_box(at[0], y, wide[0] - 2, 40, "d", "q k g G");
        svg_box(at[1], y, wide[1] - 2, 40, "d", "A w u kg qg");
        if (r < 2)
            svg_box(at[2], y, wide[2] - 2, 40, "a", of[r]);
        svg_box(at[3], y, wide[3] - 2, 40, "b", r ? "gets S_in" : "gives h_ext");
        svg_box(at[4], y, wide[4] - 2, 40, "c", "S, v_new, o");
        if (r < 2)
            svg_arrow(at[3] + 60, y + 42, at[3] + 60, y + 64, "var(--ink)");
    }
    svg_text(70, 254, "start", "soft",
             "No rank waits before step 4, and none after it.");
}
