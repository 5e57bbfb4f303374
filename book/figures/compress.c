/* compress.c -- the figure of chapter 12: which initial states a rank saves. */
#include "svg.h"

enum { STRETCHES = 4 };

int main(void)
{
    static const double from[] = { 150, 300, 410, 560, 700 };
    static const char *const name[] = { "rest of sequence 3", "sequence 4",
                                        "sequence 5", "start of sequence 6" };
    static const char *const whose[] = { "from the exchange", "h0 [4], or 0",
                                         "h0 [5], or 0", "h0 [6], or 0" };
    svg_begin(720, 236, "The initial states of one rank",
              "A rank holds the rest of a sequence, two whole ones and the start of a "
              "fourth. Only the first stretch begins with a state that the exchange "
              "made: it is kept. The caller gives the others again.");
    svg_text(4, 40, "start", "", "tokens of the rank");
    svg_text(4, 106, "start", "", "h_in, forward");
    svg_text(4, 160, "start", "", "h_kept");
    svg_text(4, 212, "start", "", "h_in, backward");
    svg_line(150, 8, 150, 54, "stroke:var(--ink);stroke-dasharray:3 3");
    svg_line(700, 8, 700, 54, "stroke:var(--ink);stroke-dasharray:3 3");
    for (int s = 0; s < STRETCHES; s++) {
        const double x = from[s] + 2, w = from[s + 1] - from[s] - 4;
        const char *ink = s ? "c" : "b";
        svg_box(x, 20, w, 28, "a", name[s]);
        svg_box(x, 88, w, 28, ink, whose[s]);
        svg_box(x, 194, w, 28, ink, s ? "given again" : "the copy");
    }
    svg_box(152, 142, 146, 26, "b", "row 0");
    svg_arrow(225, 117, 225, 140, "var(--b)");
    svg_arrow(225, 169, 225, 192, "var(--b)");
    svg_text(236, 134, "start", "soft", "compress");
    svg_text(236, 186, "start", "soft", "expand");
}
