/* chain.c -- the figure of chapter 04: the products of the scan, and their inputs. */
#include "svg.h"

static void chunk(double x, int c)
{
    svg_text(x + 150, 24, "middle", "", "chunk %d", c);
    svg_rect(x, 34, 310, 214, "fill:none;stroke:var(--line)");
    svg_box(x + 10, 64, 62, 30, "a", "S");
    svg_arrow(x + 72, 79, x + 92, 79, "var(--a)");
    svg_box(x + 94, 64, 92, 30, "a", "v = u - w S");
    svg_arrow(x + 186, 79, x + 204, 79, "var(--a)");
    svg_box(x + 206, 64, 98, 30, "a", "\u039bS + kg\u1d40 v");
    svg_arrow(x + 40, 96, x + 40, 150, "var(--c)");
    svg_box(x + 10, 154, 74, 30, "c", "qg S");
    svg_arrow(x + 140, 96, x + 140, 150, "var(--c)");
    svg_box(x + 100, 154, 84, 30, "c", "Aqk v");
    svg_arrow(x + 47, 186, x + 84, 208, "var(--c)");
    svg_arrow(x + 140, 186, x + 112, 208, "var(--c)");
    svg_box(x + 76, 210, 50, 30, "c", "o");
}

int main(void)
{
    svg_begin(720, 290, "The chain of the scan",
              "In each chunk three steps stand on the chain: the state, the new "
              "values, the update of the state. The two products of the output "
              "hang off it.");
    chunk(20, 0);
    chunk(386, 1);
    svg_arrow(324, 79, 394, 79, "var(--a)");
    svg_text(20, 276, "start", "soft",
             "Here v is v_new, and \u039b is the decay over the chunk.");
}
