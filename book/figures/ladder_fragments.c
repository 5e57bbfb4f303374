/* ladder_fragments.c -- chapter 17: which lane holds which element of mma's matrices.
 *
 * Book: chapter 17.  Checked by: tests/17_ladder/checks.c, which compares warp_mma
 * with the manual.  Next: ladder_ldmatrix.c.
 * The layout is found by experiment: one number of one lane is 1, all others are 0, and
 * the product shows which matrix element this number is. */
#include "ref/17_warp.h"
#include "svg.h"

/* Draws the cell of register `reg` of a lane. */
static void cell(double x, double y, int lane, int reg, int marked)
{
    svg_rect(x, y, 20, 17, "fill:var(--wash-%c);stroke:%s", "abcd"[reg],
             marked ? "var(--ink);stroke-width:1.8" : "var(--line);stroke-width:0.6");
    svg_text(x + 10, y + 12.5, "middle", "mono", "%d", lane);
}

/* Draws the layout of D. A[r][0] = r + 1 and B[0][c] = 1 + 100 c, so the value of each
 * element of D gives its row and column. */
static void of_d(double x0, double y0, int mine)
{
    struct fragment_a a = { 0 };
    struct fragment_b b = { 0 };
    struct fragment_d d = { 0 };
    for (int l = 0; l < LANES; l += 4) {
        a.x[l][0] = l / 4 + 1;
        a.x[l][2] = l / 4 + 9;
        b.x[l][0] = 1 + 100 * (l / 4);
    }
    warp_mma(&d, &a, &b);
    for (int lane = 0; lane < LANES; lane++)
        for (int x = 0; x < 4; x++)
            for (int r = 0; r < 16; r++)
                for (int c = 0; c < 8; c++)
                    if (d.x[lane][x] == (r + 1) * (1 + 100.0 * c))
                        cell(x0 + c * 20, y0 + r * 17, lane, x / 2, lane == mine);
}

/* Draws the layout of A. One number of A at a time is 1, and B[p][0] = p + 1. */
static void of_a(double x0, double y0, int mine)
{
    for (int lane = 0; lane < LANES; lane++)
        for (int x = 0; x < 8; x++) {
            struct fragment_a a = { 0 };
            struct fragment_b b = { 0 };
            struct fragment_d d = { 0 };
            a.x[lane][x] = 1;
            for (int p = 0; p < 16; p++) b.x[p % 8 / 2][p % 2 + p / 8 * 2] = p + 1;
            warp_mma(&d, &a, &b);
            for (int l = 0; l < LANES; l += 4)
                for (int i = 0; i < 4; i += 2)
                    if (d.x[l][i] > 0)
                        cell(x0 + (d.x[l][i] - 1) * 20, y0 + (l / 4 + i / 2 * 8) * 17,
                             lane, x / 2, lane == mine);
        }
}

/* Draws the layout of B. One number of B at a time is 1, and A[0][p] = p + 1. */
static void of_b(double x0, double y0, int mine)
{
    for (int lane = 0; lane < LANES; lane++)
        for (int x = 0; x < 4; x++) {
            struct fragment_a a = { 0 };
            struct fragment_b b = { 0 };
            struct fragment_d d = { 0 };
            b.x[lane][x] = 1;
            for (int p = 0; p < 16; p++) a.x[p % 8 / 2][p % 2 + p / 8 * 4] = p + 1;
            warp_mma(&d, &a, &b);
            for (int l = 0; l < 4; l++)
                for (int i = 0; i < 2; i++)
                    if (d.x[l][i] > 0)
                        cell(x0 + (l * 2 + i) * 20, y0 + (d.x[l][i] - 1) * 17, lane,
                             x / 2, lane == mine);
        }
}

int main(void)
{
    const int mine = 13;
    svg_begin(
        720, 400, "The fragments of mma.m16n8k16",
        "Three grids of lane numbers: A of 16 by 16, B of 16 by 8 and D of 16 "
        "by 8. Lane 13 holds four pairs of A, two pairs of B and two pairs of D; "
        "they are framed.");
    svg_text(16, 30, "start", "", "A, 16 x 16");
    of_a(16, 44, mine);
    svg_text(366, 30, "start", "", "B, 16 x 8");
    svg_text(351, 184, "middle", "", "x");
    of_b(366, 44, mine);
    svg_text(541, 184, "middle", "", "=");
    svg_text(556, 30, "start", "", "D, 16 x 8");
    of_d(556, 44, mine);
    for (int i = 0; i < 4; i++) {
        svg_rect(20 + i * 170, 332, 16, 14, "fill:var(--wash-%c);stroke:var(--line)",
                 "abcd"[i]);
        svg_text(42 + i * 170, 344, "start", "soft",
                 i < 2 ? "a[%d], b[%d], d[%d] d[%d]" : "a[%d]", i, i, 2 * i, 2 * i + 1);
    }
    svg_text(20, 370, "start", "",
             "A number in a cell is a lane. What lane %d holds is "
             "framed: row g = lane / 4, columns",
             mine);
    svg_text(20, 388, "start", "",
             "e = 2 (lane %% 4) and e + 1. Two tiles of D side "
             "by side have the colours of one tile of A.");
}
