/* journey.c -- the figure of chapter 00: from tokens to gradients, on three GPUs. */
#include "svg.h"

enum { LEFT = 96, WIDE = 200, GAP = 8 };

static const char *const soft = "fill:none;stroke:var(--line)";

static const char *const number[] = { "\u2070", "\u00b9", "\u00b2" };

static double left(int r) { return LEFT + r * (WIDE + GAP); }

static void label(double y, const char *line, const char *chapters)
{
    svg_text(4, y, "start", "", "%s", line);
    svg_text(4, y + 16, "start", "soft", "%s", chapters);
}

/* Draws tokens as small squares, in chunks of eight. */
static void tokens(double y)
{
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++)
            for (int t = 0; t < 8; t++)
                svg_rect(left(r) + c * 68 + t * 8, y, 6.5, 14,
                         "fill:var(--wash-d);stroke:var(--d);stroke-width:.7");
}

static void boxes(double y, int a_rank, double h, const char *style)
{
    const double w = (WIDE - (a_rank - 1) * 4.0) / a_rank;
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < a_rank; c++)
            svg_rect(left(r) + c * (w + 4), y, w, h, style);
}

int main(void)
{
    const char *map = "fill:var(--wash-a);stroke:var(--a)";
    svg_begin(720, 392, "The journey of the book",
              "Three GPUs hold a third of a sequence each. Tokens form chunks, chunks "
              "form one affine map a GPU, the maps are exchanged so that each GPU "
              "knows the state it begins with, and then all outputs are computed.");
    for (int r = 0; r < 3; r++)
        svg_text(left(r) + WIDE / 2, 16, "middle", "", "GPU %d", r);
    label(40, "tokens", "chapter 01");
    tokens(32);
    label(84, "chunks", "02 to 04");
    boxes(76, 3, 20, map);
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++) {
            svg_arrow(left(r) + 32 + c * 68, 50, left(r) + 32 + c * 68, 73, "var(--d)");
            svg_text(left(r) + 32 + c * 68, 91, "middle", "mono", "M, h");
        }
    label(134, "one map", "05, 06");
    boxes(126, 1, 24, map);
    for (int r = 0; r < 3; r++) {
        svg_text(left(r) + WIDE / 2, 143, "middle", "mono", "S \u2192 M%s S + h%s",
                 number[r], number[r]);
        for (int c = 0; c < 3; c++)
            svg_arrow(left(r) + 32 + c * 68, 98, left(r) + 70 + c * 30, 124,
                      "var(--a)");
    }
    label(192, "exchange", "07");
    for (int r = 0; r < 2; r++) {
        svg_arrow(left(r) + 150, 152, left(r + 1) + 30, 196, "var(--b)");
        if (!r)
            svg_arrow(left(0) + 120, 152, left(2) + 12, 200, "var(--b)");
    }
    boxes(204, 1, 24, "fill:var(--wash-b);stroke:var(--b)");
    const char *const states[] = { "starts from 0", "S = h\u2070",
                                   "S = M\u00b9 h\u2070 + h\u00b9" };
    for (int r = 0; r < 3; r++)
        svg_text(left(r) + WIDE / 2, 221, "middle", "mono", "%s", states[r]);
    label(262, "outputs", "04, 08");
    boxes(254, 3, 20, "fill:var(--wash-c);stroke:var(--c)");
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++) {
            svg_text(left(r) + 32 + c * 68, 269, "middle", "mono", "o");
            if (c < 2)
                svg_arrow(left(r) + 58 + c * 68, 264, left(r) + 72 + c * 68, 264,
                          "var(--c)");
        }
    label(312, "gradients", "09 to 13");
    boxes(304, 3, 20, soft);
    for (int r = 0; r < 3; r++) {
        for (int c = 0; c < 3; c++)
            svg_text(left(r) + 32 + c * 68, 319, "middle", "mono", "gradients");
        if (r)
            svg_arrow(left(r) - 2, 338, left(r - 1) + WIDE / 2, 338, "var(--b)");
    }
    svg_text(LEFT, 362, "start", "soft",
             "On the way back the maps' transposes travel from later GPUs to earlier.");
    svg_text(LEFT, 382, "start", "soft",
             "14 to 16: convolutions, scans, other models. 17 to 20: speed, precision, "
             "clusters.");
}
