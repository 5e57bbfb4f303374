/* mirror.c -- the figure of chapter 13: the seven steps, and what may overlap. */
#include "svg.h"

int main(void)
{
    svg_begin(720, 256, "The steps of backward and what they wait for",
              "dv_local and the recomputed w, kg and qg give the map of gradients, "
              "which travels. Meanwhile the states are made again. Then the reverse "
              "scan, the gradients of the inputs, and the front end.");
    svg_box(10, 40, 112, 42, "d", "2 dv_local");
    svg_box(10, 122, 150, 42, "d", "1 G u w kg qg");
    svg_box(290, 40, 112, 42, "a", "3 dh_ext, M");
    svg_box(430, 40, 112, 42, "b", "4 exchange");
    svg_box(290, 122, 252, 42, "d", "1 states and v_new again, 2 dAqk");
    svg_box(582, 40, 128, 42, "c", "5 reverse: dS");
    svg_box(582, 122, 128, 42, "c", "6 dq dk dv dg");
    svg_box(582, 204, 128, 42, "c", "7 raw inputs");
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
}
