/* ladder_roles.c -- chapter 17: the timeline of a producer warp and two consumers.
 *
 * Book: chapter 17.  Checked by: make book-lint.  Next: ladder_times.c.
 * Simulates v8_tma_sm90.cu with two stages. A copy takes the time `copy`. A chunk's
 * products take `work`, and need the tensor core exclusively for half of this time. */
#include "svg.h"

#include <math.h>

enum { CHUNKS = 4, STAGES = 2 };
static const double copy = 70, tensor = 38, other = 44;

static void bar(double x, double w, double y, const char *wash, const char *ink,
                const char *fmt, int c)
{
    char style[100];
    snprintf(style, sizeof style, "fill:%s;stroke:%s", wash, ink);
    svg_rect(x, y, w, 24, style);
    svg_text(x + w / 2, y + 16, "middle", "mono", fmt, c);
}

int main(void)
{
    double full[CHUNKS], empty[CHUNKS], free_ = 0, now[2] = { 0, 0 }, asked = 0;
    svg_begin(
        720, 312, "Warp roles and their barriers over four chunks",
        "A producer asks for a chunk when its stage is empty. Its full barrier ends "
        "when the bytes are there; then each of two warpgroups multiplies, alternately "
        "with the other, and arrives at the empty barrier.");
    for (int c = 0; c < CHUNKS; c++) {
        if (c >= STAGES) asked = fmax(asked, empty[c - STAGES]);
        if (c >= STAGES)
            svg_text(106 + asked, 32, "middle", "soft", "after empty %d", c - STAGES);
        bar(100 + asked, 12, 40, "var(--wash-d)", "var(--d)", "", c);
        bar(100 + asked + 12, copy, 72 + 28 * (c % STAGES), "var(--wash-b)", "var(--b)",
            "copy %d", c);
        full[c] = asked + 12 + copy;
        asked += 12;
        svg_line(100 + full[c], 96 + 28 * (c % STAGES), 100 + full[c], 160,
                 "stroke:var(--b)");
        svg_text(100 + full[c] + 4, 91 + 28 * (c % STAGES), "start", "soft", "full %d",
                 c);
        for (int g = 0; g < 2; g++) {
            const double begin = fmax(fmax(now[g], full[c]), free_);
            bar(100 + begin, tensor, 164 + 44 * g, "var(--wash-a)", "var(--a)", "wgmma",
                c);
            bar(100 + begin + tensor, other, 164 + 44 * g, "var(--wash-c)", "var(--c)",
                "x %d", c);
            free_ = begin + tensor;
            now[g] = begin + tensor + other;
        }
        empty[c] = fmax(now[0], now[1]);
        svg_line(100 + empty[c], 232, 100 + empty[c], 252, "stroke:var(--d)");
        svg_text(100 + empty[c] - 2, 266, "middle", "soft", "empty %d", c);
    }
    svg_moves(100, 712, 34, 256, 8);
    svg_text(92, 56, "end", "", "producer");
    svg_text(92, 88, "end", "", "TMA, stage 0");
    svg_text(92, 116, "end", "", "stage 1");
    svg_text(92, 180, "end", "", "group 0");
    svg_text(92, 224, "end", "", "group 1");
    svg_text(20, 300, "start", "soft",
             "Two stages drawn; the kernel has four. The groups use the tensor core "
             "alternately, without a barrier for it.");
    svg_end();
    return 0;
}
