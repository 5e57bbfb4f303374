/* roles.c -- a figure of chapter 18: the warp roles of both forward kernels.
 *
 * Book: chapter 18.  Checked by: make book-lint.  Next: book/figures/backward_roles.c.
 * The order of what each warp does, over two chunks; lengths are not to scale. */
#include "svg.h"

static const char *const COPY = "fill:var(--wash-d);stroke:var(--d)";
static const char *const WORK = "fill:var(--wash-a);stroke:var(--a)";
static const char *const TENSOR = "fill:var(--wash-b);stroke:var(--b)";
static const char *const STORE = "fill:var(--wash-c);stroke:var(--c)";

static void lane(double y, const char *name, const char *more)
{
    svg_text(4, y + 12, "start", "", "%s", name);
    svg_text(4, y + 27, "start", "soft", "%s", more);
    svg_line(150, y + 15, 712, y + 15, "stroke:var(--line)");
}

static void doing(double y, double from, double to, const char *style, const char *what)
{
    svg_rect(150 + from, y, to - from - 1, 30, style);
    svg_text(150 + (from + to) / 2, y + 19, "middle", "mono", "%s", what);
}

static void prepare(double y)
{
    svg_text(4, y, "start", "", "chunk_prepare: a chunk and head at a time");
    lane(y + 14, "one thread", "asks for rows");
    doing(y + 14, 0, 62, COPY, "rows 0");
    doing(y + 14, 196, 290, COPY, "rows 1");
    lane(y + 58, "8 warps", "");
    doing(y + 58, 64, 136, WORK, "decay");
    doing(y + 58, 136, 196, TENSOR, "pairs");
    doing(y + 58, 196, 250, TENSOR, "inverse");
    doing(y + 58, 250, 306, STORE, "store 0");
    doing(y + 58, 320, 392, WORK, "decay");
    doing(y + 58, 392, 448, TENSOR, "pairs");
    doing(y + 58, 448, 504, TENSOR, "inverse");
    doing(y + 58, 504, 562, STORE, "store 1");
    svg_arrow(212, y + 46, 216, y + 57, "var(--ink)");
    svg_arrow(346, y + 57, 348, y + 46, "var(--ink)");
    svg_arrow(440, y + 46, 470, y + 57, "var(--ink)");
}

static void consumer(double y, double at, int chunk)
{
    char text[24];
    snprintf(text, sizeof text, "y=v-k~S %d", chunk);
    doing(y, at, at + 78, TENSOR, text);
    doing(y, at + 78, at + 136, TENSOR, "A beta y");
    doing(y, at + 136, at + 222, TENSOR, "\u039bS + kg'v");
    if (chunk)
        doing(y + 33, at + 36, at + 92, STORE, "o 0 out");
    doing(y + 33, at + 92, at + 222, TENSOR, "qg S, Aqk v: o");
}

static void scan(double y)
{
    static const char *const names[] = { "Aqk", "qg", "A beta, kg", "k~ and v" };
    svg_text(4, y, "start", "", "scan: a head's state a block");
    for (int p = 0; p < 4; p++) {
        const double lag[] = { 60, 60, 30, 0 };
        lane(y + 12 + 36 * p, p ? "" : "4 producer warps", "");
        for (int c = 0; c < 3; c++) {
            char text[32];
            snprintf(text, sizeof text, "%s %d", names[p], c);
            doing(y + 12 + 36 * p, lag[p] + c * 160, lag[p] + c * 160 + 110, COPY,
                  text);
        }
    }
    lane(y + 162, "consumer", "warpgroups");
    consumer(y + 162, 112, 0);
    consumer(y + 162, 336, 1);
    svg_arrow(262, y + 144, 268, y + 160, "var(--ink)");
    svg_line(294, y + 100, 294, y + 153, "stroke:var(--ink);stroke-width:1.5");
    svg_arrow(294, y + 153, 338, y + 161, "var(--ink)");
    svg_arrow(350, y + 160, 466, y + 146, "var(--soft)");
    svg_text(500, y + 246, "start", "soft", "strong arrows: full; pale: released");
}

int main(void)
{
    svg_begin(720, 420, "Warp roles of chunk_prepare and of the scan",
              "chunk_prepare: rows arrive, eight warps sum the gate, multiply pairs, "
              "invert and store; the next rows are asked for meanwhile. Scan: four "
              "producer warps copy factors ahead; consumer warpgroups make three "
              "products in series a chunk; the output leaves beside the next.");
    prepare(18);
    scan(146);
    svg_end();
    return 0;
}
