/* ladder_ldmatrix.c -- chapter 17: which lanes give addresses, and which get results.
 *
 * Book: chapter 17.  Checked by: tests/17_ladder/checks.c.  Next: ladder_stages.c.
 * Each number in shared memory is its own address, so loaded numbers show addresses. */
#include "ref/17_warp.h"
#include "svg.h"

/* Draws a 16 x 16 block. Each pair of cells shows the lane that receives the pair; each
 * row of a quarter shows the lane that gives the row's address. */
static void block(double x0, double y0, int trans)
{
    double shared[256], r[LANES][8];
    int byte[LANES], lane_of[256], number_of[256];
    for (int i = 0; i < 256; i++) shared[i] = i;
    for (int l = 0; l < LANES; l++)
        byte[l] = 32 * (trans ? l % 16 : l % 8 + l / 16 * 8)
                  + 16 * (trans ? l / 16 : l / 8 % 2);
    warp_ldmatrix(r, shared, byte, trans);
    for (int l = 0; l < LANES; l++)
        for (int x = 0; x < 8; x++) {
            lane_of[(int)r[l][x]] = l;
            number_of[(int)r[l][x]] = x / 2;
        }
    for (int i = 0; i < 256; i++) {
        const double x = x0 + i % 16 * 19 + (i % 16 > 7 ? 10 : 0);
        const double y = y0 + i / 16 * 15 + (i / 16 > 7 ? 10 : 0);
        svg_rect(x, y, 19, 15, "fill:var(--wash-%c);stroke:%s", "abcd"[number_of[i]],
                 lane_of[i] == 5 ? "var(--ink);stroke-width:1.8" : "var(--line)");
        svg_text(x + 9.5, y + 11.5, "middle", "mono", "%d", lane_of[i]);
    }
    for (int j = 0; j < 4; j++) {
        const double x = x0 + byte[8 * j] / 16 % 2 * 162;
        const double y = y0 + byte[8 * j] / 32 / 8 * 130;
        svg_rect(x, y, 152, 120, "fill:none;stroke:var(--b);stroke-width:1.2");
    }
    svg_text(x0, y0 + 272, "start", "soft",
             "lanes that give row addresses: upper left 0-7,");
    svg_text(x0, y0 + 288, "start", "soft",
             "upper right %s, lower left %s, lower right 24-31",
             trans ? "16-23" : "8-15", trans ? "8-15" : "16-23");
}

int main(void)
{
    svg_begin(
        720, 366, "Which lane receives which numbers from ldmatrix",
        "A block of 16 by 16 numbers in shared memory, twice. Each cell names the "
        "lane that receives it. Without transposition, a lane receives neighbours "
        "of a row; with transposition, neighbours of a column. Lane 5 is framed.");
    svg_text(20, 28, "start", "", "ldmatrix: w, whose rows are B's columns");
    block(20, 42, 0);
    svg_text(380, 28, "start", "", "ldmatrix.trans: kg, whose rows are B's rows");
    block(380, 42, 1);
    svg_text(20, 356, "start", "soft",
             "Colour: register r[0], r[1], r[2] or r[3]. Number: the "
             "lane that receives the cell. Framed: lane 5.");
}
