/* tree.c -- the figure of chapter 15: the maps and states of a tree over seven tokens.
 *
 * The loops are copied from scan_up and scan_down; each product is one arrow. */
#include "svg.h"

enum { N = 7, STEP = 44 };

static double px(double x0, int e) { return x0 + 26 + e * STEP; }

static void node(double x, double y, const char *ink, const char *fmt, int from, int to)
{
    svg_box(x - 17, y - 11, 34, 22, ink, fmt, from, to);
}

static void up(double x0)
{
    int first[N], top[N];
    svg_text(x0, 22, "start", "", "up: maps");
    for (int e = 0; e < N; e++) {
        first[e] = e; top[e] = 270;
        node(px(x0, e), 270, "a", "%d", e, 0);
    }
    for (int d = 1, y = 270; d < N; d *= 2, y -= 74)
        for (int i = 0; i + d < N; i += 2 * d) {
            const int left = i + d - 1, right = (i + 2 * d < N ? i + 2 * d : N) - 1;
            svg_arrow(px(x0, left), y - 13, px(x0, right) - 8, y - 61, "var(--a)");
            svg_line(px(x0, right), top[right] - 13, px(x0, right), y - 62,
                     "stroke:var(--a);stroke-width:1.5");
            first[right] = first[left];
            top[right] = y - 74;
            node(px(x0, right), y - 74, "a", "%d-%d", first[right], right);
        }
}

static void down(double x0)
{
    int y[N] = { 48 };
    svg_text(x0, 22, "start", "", "down: states, each before its block");
    node(px(x0, 0), 48, "b", "S", 0, 0);
    for (int d = 4, at = 48; d >= 1; d /= 2, at += 74)
        for (int i = 0; i + d < N; i += 2 * d) {
            svg_arrow(px(x0, i), at + 13, px(x0, i + d), at + 61, "var(--b)");
            y[i + d] = at + 74;
            node(px(x0, i + d), at + 74, "b", "S%d", i + d, 0);
        }
    for (int e = 0; e < N; e++) {
        if (y[e] + 12 > 258)
            continue;
        svg_line(px(x0, e), y[e] + 12, px(x0, e), 258,
                 "stroke:var(--b);stroke-dasharray:3 3");
        svg_text(px(x0, e), 274, "middle", "mono", e ? "S%d" : "S", e);
    }
}

int main(void)
{
    svg_begin(700, 290, "The two sweeps of the scan over seven tokens",
              "Left: seven maps in a row at the bottom; pairs, then fours, then all "
              "of them are composed, and each composition is above its last token. "
              "Right: the state S at the top left goes down unchanged along dashed "
              "lines, and by arrows through the left halves' maps to tokens 4, then 2 "
              "and 6, then 1, 3 and 5.");
    up(16);
    down(372);
}
