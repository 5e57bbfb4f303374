/* ladder_banks.c -- chapter 17: which banks a load of eight rows uses, in plain and in
 * swizzled tiles.
 *
 * Book: chapter 17.  Checked by: tests/17_ladder/checks.c.  Next: ladder_descriptor.c.
 * cuda/tile/swizzle.cuh computes the address of each piece of 16 bytes; warp_ldmatrix
 * counts the reads of shared memory. */
#define __device__
#define __forceinline__ inline
#include "cuda/tile/swizzle.cuh"
#include "ref/17_warp.h"
#include "svg.h"

/* Draws rows 0..7 of a tile in shared memory. A cell is four banks. The cell's number
 * says which 16 bytes of the row are stored there. Piece 2 of each row is marked. */
static void draw(double x0, double y0, int swizzled)
{
    static double tile[64 * 64], r[LANES][8];
    int byte[LANES];
    for (int row = 0; row < 8; row++)
        for (int piece = 0; piece < 8; piece++) {
            const int at =
                swizzled ? swizzle128_offset(row, piece) : 128 * row + 16 * piece;
            const double x = x0 + at % 128 / 16 * 38, y = y0 + at / 128 * 24;
            svg_rect(x, y, 38, 24,
                     piece == 2 ? "fill:var(--wash-b);stroke:var(--b)"
                                : "fill:var(--code);stroke:var(--line)");
            svg_text(x + 19, y + 16, "middle", "mono", "%d", piece);
        }
    for (int b = 0; b < 8; b++)
        svg_text(x0 + b * 38 + 19, y0 - 6, "middle", "soft", "%d-%d", 4 * b, 4 * b + 3);
    for (int row = 0; row < 8; row++)
        svg_text(x0 - 6, y0 + row * 24 + 16, "end", "soft", "%d", row);
    for (int l = 0; l < LANES; l++) /* lane l: piece 2 of row l % 8 */
        byte[l] = swizzled ? swizzle128_offset(l % 8, 2) : 128 * (l % 8) + 32;
    const int times = warp_ldmatrix(r, tile, byte, 0) / 4;
    svg_text(x0, y0 + 216, "start", "",
             "loading piece 2 of eight rows takes %d read%s",
             times, times > 1 ? "s" : "");
}

int main(void)
{
    svg_begin(
        720, 300, "Banks before and after the swizzle",
        "Eight rows of 128 bytes, each in eight pieces over 32 banks. Left: piece 2 of "
        "every row is in banks 8 to 11, so eight reads are needed. Right: row r keeps "
        "piece p at place p exclusive-or r, so the eight pieces 2 are in different "
        "banks, and one read is enough.");
    svg_text(30, 24, "start", "", "plain: piece p is at place p");
    svg_text(30, 44, "start", "soft", "banks");
    draw(40, 66, 0);
    svg_text(390, 24, "start", "", "swizzle128: piece p is at place p ^ (r %% 8)");
    svg_text(390, 44, "start", "soft", "banks");
    draw(400, 66, 1);
}
