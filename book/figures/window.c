/* window.c -- a figure of chapter 20: how a kernel fills another rank's window. */
#include "svg.h"

int main(void)
{
    svg_begin(720, 262, "The window between two ranks",
              "Each block of rank r folds 16 columns of a head and writes them into "
              "one of two places in the window of rank r + 1. Then it raises the count "
              "full there. Rank r + 1 reads the place and raises the count empty in "
              "the window of rank r.");
    svg_text(90, 16, "middle", "", "kernel of rank r");
    svg_text(400, 16, "middle", "", "window of rank r + 1");
    svg_text(648, 16, "middle", "", "kernel of rank r + 1");
    svg_rect(250, 26, 300, 186, "fill:none;stroke:var(--line)");
    for (int b = 0; b < 3; b++) {
        const double y = 36 + 58 * b;
        svg_box(10, y, 160, 46, "a", "");
        svg_text(90, y + 19, "middle", "", "block %d", b);
        svg_text(90, y + 37, "middle", "mono", "M S + h, 16 columns");
        svg_box(266, y, 88, 46, "b", "place 0");
        svg_box(360, y, 88, 46, b ? "b" : "line", "place 1");
        svg_box(464, y, 74, 46, "d", "full");
        svg_arrow(172, y + 16, 263, y + 16, "var(--b)");
        svg_box(606, y, 100, 46, "a", "block %d", b);
        svg_arrow(540, y + 23, 603, y + 23, "var(--d)");
    }
    svg_text(217, 46, "middle", "soft", "1 write");
    svg_text(217, 82, "middle", "soft", "2 raise full");
    svg_text(579, 80, "middle", "soft", "3 read");
    svg_line(656, 200, 656, 236, "stroke:var(--d);stroke-width:1.5");
    svg_line(656, 236, 90, 236, "stroke:var(--d);stroke-width:1.5");
    svg_arrow(90, 236, 90, 202, "var(--d)");
    svg_text(360, 254, "middle", "soft",
             "4 raise empty in the window of rank r: the place may be filled again");
}
