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
    svg_begin(720, 250, "The steps of backward and what they wait for",
              "G, w, kg and qg are made again, then dv_local and the map of gradients, "
              "which travels. Meanwhile the states are made again. Then the reverse "
              "scan, the gradients of the inputs, and the front end.");
    box(10, 40, 112, "1 G w kg qg", d);
    box(152, 40, 112, "2 dv_local", d);
    box(294, 40, 112, "3 dh_ext, M", a);
    box(436, 40, 128, "4 exchange", b);
    box(294, 130, 270, "1 states and v_new again, 2 dAqk", d);
    box(436, 196, 128, "5 reverse: dS", c);
    box(586, 196, 124, "6 dq dk dv dg", c);
    box(586, 110, 124, "7 raw inputs", c);
    svg_arrow(124, 61, 150, 61, "var(--ink)");
    svg_arrow(266, 61, 292, 61, "var(--ink)");
    svg_arrow(408, 61, 434, 61, "var(--ink)");
    svg_arrow(100, 84, 292, 150, "var(--ink)");
    svg_line(572, 61, 572, 186, "stroke:var(--b);stroke-width:1.5");
    svg_line(566, 61, 572, 61, "stroke:var(--b);stroke-width:1.5");
    svg_arrow(572, 186, 552, 195, "var(--b)");
    svg_arrow(566, 217, 584, 217, "var(--ink)");
    svg_line(566, 164, 612, 164, "stroke:var(--ink);stroke-width:1.5");
    svg_arrow(612, 164, 612, 195, "var(--ink)");
    svg_arrow(648, 195, 648, 154, "var(--ink)");
    svg_text(294, 122, "start", "soft",
             "needs nothing of the exchange: runs beside it");
    svg_text(10, 26, "start", "", "one rank's backward");
    svg_end();
    return 0;
}
