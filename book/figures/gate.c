/* gate.c -- the figure of chapter 02: gates, and their sums within each chunk. */
#include "svg.h"
#include "base/random.h"

#include <math.h>

enum { T = 256, C = 64 };

static double x(double t) { return 60 + t * 2.5; }
static double y(double G) { return 40 - G * 13; }

int main(void)
{
    uint64_t seed = 3;
    double G = 0;
    svg_begin(720, 300, "Gates and their sum within chunks",
              "Bars: the gate of each of 256 tokens, in powers of two. Line: the sum "
              "of the gates since the start of the chunk. The sum falls, and is zero "
              "again at tokens 64, 128 and 192.");
    for (int k = 0; k <= 15; k += 5) {
        svg_line(60, y(-k), 700, y(-k), "stroke:var(--line)");
        svg_text(52, y(-k) + 4, "end", "soft", "%d", -k);
    }
    for (int c = 0; c <= T / C; c++) {
        svg_line(x(c * C), 30, x(c * C), 250,
                 "stroke:var(--soft);stroke-dasharray:2 4");
        if (c < T / C)
            svg_text(x(c * C + 32), 22, "middle", "soft", "chunk %d", c);
    }
    printf("<path d=\"");
    for (int t = 0; t < T; t++) {
        const double g = -0.2 * -log(1 - random_uniform(&seed));
        G = (t % C ? G : 0) + g;
        printf("%c%.1f %.1f", t % C ? 'L' : 'M', x(t + 0.5), y(G));
    }
    printf("\" style=\"fill:none;stroke:var(--a);stroke-width:1.8\"/>\n");
    seed = 3;
    for (int t = 0; t < T; t++) {
        const double g = -0.2 * -log(1 - random_uniform(&seed));
        svg_rect(x(t) + .4, 40, 1.7, -g * 13, "fill:var(--b);stroke:none");
    }
    svg_text(380, 286, "middle", "soft", "token");
    svg_text(60, 286, "start", "", "bars: g; line: G, both in base two");
    for (int t = 0; t <= T; t += 64)
        svg_text(x(t), 268, "middle", "soft", "%d", t);
}
