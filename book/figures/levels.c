/* levels.c -- a figure of chapter 20: a scan inside each node, then one over nodes. */
#include "svg.h"

enum { G = 4, M = 4, STEP = 64 };

static double px(int r) { return 108 + r / G * 156 + r % G * 37; }

int main(void)
{
    svg_begin(720, 358, "A scan on two levels, four nodes of four GPUs",
              "Two steps of a scan run inside every node, from GPU i to i + 1, then "
              "to i + 2. Then every GPU has a quarter of the heads of its node's map, "
              "and sends it to the GPU of the same place one node on, then two on.");
    svg_text(4, 75, "start", "", "inside");
    svg_text(4, 93, "start", "soft", "NVLink");
    svg_text(4, 236, "start", "", "between");
    svg_text(4, 254, "start", "soft", "network");
    for (int j = 0; j < M; j++) {
        svg_rect(px(G * j) - 21, 24, 153, 328, "fill:none;stroke:var(--line)");
        svg_text(px(G * j) + 55, 16, "middle", "", "node %d", j);
    }
    for (int d = 1, y = 52; d < G; d *= 2, y += STEP)
        for (int r = d; r < G * M; r++)
            if (r % G >= d)
                svg_arrow(px(r - d), y, px(r), y + STEP - 24, "var(--a)");
    for (int d = 1, y = 224; d < M; d *= 2, y += STEP)
        for (int r = d * G; r < G * M; r++)
            svg_arrow(px(r - d * G), y, px(r), y + STEP - 24, "var(--b)");
    for (int r = 0; r < G * M; r++)
        for (int step = 0; step < 3; step++) {
            svg_box(px(r) - 15, 30 + STEP * step, 30, 22, "a", step ? "" : "%d", r);
            svg_box(px(r) - 15, 202 + STEP * step, 30, 22, "b", "\u00bc");
        }
}
