/* cluster.c -- a figure of chapter 18: multicast and releases in a cluster of two. */
#include "svg.h"

static void block(double x, int i)
{
    svg_rect(x, 84, 300, 176, "fill:none;stroke:var(--line)");
    svg_box(x + 20, 100, 80, 26, "a", "half 0");
    svg_box(x + 100, 100, 80, 26, "b", "half 1");
    svg_box(x + 200, 100, 84, 26, "d", "full");
    svg_text(x + 284, 142, "end", "soft", "bytes of both halves");
    svg_box(x + 20, 156, 160, 26, "c", "4 consumer warps");
    svg_box(x + 200, 206, 84, 26, "d", "empty");
    svg_text(x + 284, 250, "end", "soft", "8 arrivals");
    svg_text(x + 8, 250, "start", "", "block %d: columns %s", i,
             i ? "64 to 127" : "0 to 63");
}

int main(void)
{
    svg_begin(720, 270, "Multicast and releases in a cluster of two blocks",
              "Block 0 copies the first half of a factor to both blocks, block 1 the "
              "second half. Each block's full barrier counts the bytes of both halves. "
              "The four consumer warps of each block arrive at the empty barriers of "
              "both blocks.");
    svg_text(200, 24, "end", "", "a factor in memory");
    svg_box(210, 8, 150, 26, "a", "half 0");
    svg_box(360, 8, 150, 26, "b", "half 1");
    svg_text(520, 24, "start", "soft", "each is read once");
    block(30, 0);
    block(390, 1);
    for (int to = 0; to < 2; to++)
        for (int half = 0; half < 2; half++)
            svg_arrow(285 + 150 * half, 34, 90 + 360 * to + 80 * half, 99,
                      half ? "var(--b)" : "var(--a)");
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < 2; to++)
            svg_arrow(130 + 360 * from, 182, 360 * to + (to < from ? 314 : 230),
                      to == from ? 214 : 224, "var(--soft)");
}
