/* backward_roles.c -- a figure of chapter 18: the three kernels of backward. */
#include "svg.h"

enum { CHUNKS = 4 };

static void row(double y, const char *name, const char *text, const char *ink,
                int way)
{
    svg_text(4, y + 19, "start", "", "%s", name);
    for (int c = 0; c < CHUNKS; c++) {
        const double x = 120 + c * 148;
        svg_box(x, y, 118, 32, ink, text, c);
        if (way > 0 && c + 1 < CHUNKS)
            svg_arrow(x + 119, y + 16, x + 146, y + 16, "var(--ink)");
        if (way < 0 && c)
            svg_arrow(x - 2, y + 16, x - 29, y + 16, "var(--ink)");
    }
}

int main(void)
{
    svg_begin(720, 290, "The three kernels of backward",
              "Factors of each chunk come from forward. The kernel states walks "
              "forward over them, the kernel reverse backward; the kernel finish takes "
              "each chunk's results in any order.");
    row(14, "factors", "of forward, %d", "d", 0);
    row(82, "states", "h, v_new %d", "a", 1);
    row(150, "reverse", "dS, dv %d", "b", -1);
    row(230, "finish", "dq .. dg %d", "c", 0);
    for (int c = 0; c < CHUNKS; c++) {
        const double x = 120 + c * 148;
        svg_arrow(x + 40, 48, x + 40, 80, "var(--d)");
        const double turn[] = { x + 100, 46, x + 100, 62, x + 133, 62, x + 133, 130,
                                x + 78, 130 };
        for (int i = 0; i < 4; i++)      /* from the factors around states to reverse */
            svg_line(turn[2 * i], turn[2 * i + 1], turn[2 * i + 2], turn[2 * i + 3],
                     "stroke:var(--d);stroke-width:1.5");
        svg_arrow(x + 78, 130, x + 78, 148, "var(--d)");
        svg_arrow(x + 24, 116, x + 24, 228, "var(--a)");
        svg_arrow(x + 96, 184, x + 96, 228, "var(--b)");
    }
    svg_text(120, 282, "start", "soft",
             "left to right: the chunks of a head. states and reverse share the GPU.");
}
