/* mirror.c -- the figure of chapter 13: the seven steps, and what may overlap.
 *
 * Book: chapter 13.  Checked by: make book-lint.  Next: book/figures/halo.c. */
#include "svg.h"

static void box(double x, double y, double w, const char *what, const char *style)
{
    svg_rect(x, y, w, 42, style);
    svg_text(x + w / 2, y + 26, "middle", "mono", "%s", what);
}

int main(void)
{
    const char *a = "fill:var(--wash-a);stroke:var(--a)";
    const char *b = "fill:var(--wash-b);stroke:var(--b)";
    const char *c = "fill:var(--wash-c);stroke:var(--c)";
    const char *d = "fill:var(--wash-d);stroke:var(--d)";
    svg_begin(720, 256, "The steps of backward and what they wait for",
              "dv_local and the recomputed w, kg and qg give the map of gradients, "
              "which travels. Meanwhile the states are made again. Then the reverse "
              "scan, the gradients of the inputs, and the front end.");
    box(10, 40, 112, "2 dv_local", d);
    box(10, 122, 150, "1 G u w kg qg", d);
    box(290, 40, 112, "3 dh_ext, M", a);
    box(430, 40, 112, "4 exchange", b);
    box(290, 122, 252, "1 states and v_new again, 2 dAqk", d);
    box(582, 40, 128, "5 reverse: dS", c);
    box(582, 122, 128, "6 dq dk dv dg", c);
    box(582, 204, 128, "7 raw inputs", c);
    svg_arrow(124, 61, 288, 61, "var(--ink)");
    svg_arrow(162, 132, 288, 76, "var(--ink)");
    svg_arrow(162, 143, 288, 143, "var(--ink)");
    svg_arrow(404, 61, 428, 61, "var(--ink)");
    svg_arrow(544, 61, 580, 61, "var(--ink)");
    svg_arrow(544, 143, 580, 143, "var(--ink)");
    svg_arrow(646, 84, 646, 120, "var(--ink)");
    svg_arrow(646, 166, 646, 202, "var(--ink)");
    svg_text(290, 184, "start", "soft",
             "needs nothing of the exchange: runs beside it");
    svg_text(10, 26, "start", "", "one rank's backward");
    svg_end();
    return 0;
}
