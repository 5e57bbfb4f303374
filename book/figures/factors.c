/* factors.c -- a figure of chapter 18: the bytes of one chunk's factors.
 *
 * Sizes are from struct chunk_factors, for K = 128 and C = 64. */
#include "svg.h"

enum { K = 128, C = 64, TILES = 2 * C * K, TRIANGLE = 10 * 512, DECAY = 4 * K };

static double x(double bytes) { return 16 + bytes * 688 / (3 * TILES + 2 * TRIANGLE +
                                                           DECAY); }

static double at;
static void part(int bytes, const char *name, const char *ink)
{
    svg_box(x(at), 40, x(at + bytes) - x(at) - 1, 44, ink, name);
    if (bytes >= TRIANGLE)
        svg_text((x(at) + x(at + bytes)) / 2, 104, "middle", "soft", "%g KiB",
                 bytes / 1024.0);
    at += bytes;
}

int main(void)
{
    svg_begin(720, 330, "The factors of one chunk and head",
              "A bar of 58.5 KiB: minus k tilde, the triangle A beta, kg, qg, the "
              "triangle Aqk, and the decay. Below, a triangle as ten blocks, and a "
              "swizzled tile of eight rows.");
    svg_text(16, 24, "start", "", "one chunk and head: %.1f KiB, %d bytes per token",
             (3 * TILES + 2 * TRIANGLE + DECAY) / 1024.0,
             (3 * TILES + 2 * TRIANGLE + DECAY) / C);
    part(TILES, "-k~", "a");
    part(TRIANGLE, "A beta", "b");
    part(TILES, "kg", "a");
    part(TILES, "scale qg", "a");
    part(TRIANGLE, "Aqk", "b");
    part(DECAY, "", "d");
    svg_text(704, 120, "end", "soft", "decay, 512 bytes");
    svg_text(16, 150, "start", "", "a triangle: ten blocks of 16 x 16");
    for (int I = 0; I < 4; I++)
        for (int J = 0; J < 4; J++)
            svg_box(16 + J * 36, 162 + I * 36, 35, 35, J <= I ? "b" : "line", "%d",
                    J <= I ? 4 * J - J * (J - 1) / 2 + (I - J) : 0);
    svg_text(180, 190, "start", "soft", "numbers: their order in memory,");
    svg_text(180, 208, "start", "soft", "block column by block column;");
    svg_text(180, 226, "start", "soft", "the zeros exist on chip only");
    svg_text(410, 150, "start", "", "a tile: eight rows of 128 bytes, swizzled");
    for (int row = 0; row < 8; row++)
        for (int piece = 0; piece < 8; piece++)
            svg_box(410 + piece * 34, 162 + row * 18, 33, 17, row == 3 ? "c" : "a",
                    "%d", piece ^ row);
    svg_text(410, 324, "start", "soft", "number in a place: which 16 bytes of the row");
}
