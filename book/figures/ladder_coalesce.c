/* ladder_coalesce.c -- chapter 17: two ways to address the 32 loads of a warp.
 *
 * This program counts the sectors from the addresses. */
#include "svg.h"

#include <string.h>

enum { ROWS = 32, SECTORS = 8 }; /* rows of 256 bytes: 8 sectors of 32 */

/* Lane l loads 16 bytes at byte[l]. Draws the rows, marks the fetched sectors of 32
 * bytes, and returns their number. */
static int draw(double x0, double y0, const int *byte)
{
    char met[ROWS][SECTORS];
    int count = 0;
    memset(met, 0, sizeof met);
    for (int l = 0; l < 32; l++) met[byte[l] / 256][byte[l] % 256 / 32] = 1;
    for (int r = 0; r < ROWS; r++)
        for (int s = 0; s < SECTORS; s++) {
            const double x = x0 + s * 34, y = y0 + r * 8;
            count += met[r][s];
            svg_rect(x, y, 33, 7,
                     met[r][s] ? "fill:var(--wash-b);stroke:none"
                               : "fill:var(--code);stroke:none");
        }
    for (int l = 0; l < 32; l++) {
        const double x = x0 + byte[l] % 256 / 16 * 17, y = y0 + byte[l] / 256 * 8;
        svg_rect(x + 1, y + 1, 14, 5, "fill:var(--b);stroke:none");
    }
    return count;
}

int main(void)
{
    int row[32], pieces[32];
    for (int l = 0; l < 32; l++) {
        row[l] = 256 * l;   /* one row per thread */
        pieces[l] = 16 * l; /* neighbouring addresses */
    }
    svg_begin(
        720, 370, "One load of a warp, uncoalesced and coalesced",
        "Left: each of 32 lanes loads 16 bytes of a row of its own, and 32 sectors "
        "of 32 bytes are fetched. Right: neighbouring lanes load neighbouring "
        "pieces, and 16 sectors are fetched for the same 512 bytes.");
    svg_text(30, 28, "start", "", "lane l takes row l");
    const int apart = draw(30, 42, row);
    svg_text(30, 326, "start", "", "%d sectors for 512 bytes", apart);
    svg_text(30, 346, "start", "soft", "half of what is fetched is not needed");
    svg_text(400, 28, "start", "", "lane l takes piece l");
    const int together = draw(400, 42, pieces);
    svg_text(400, 326, "start", "", "%d sectors for 512 bytes", together);
    svg_text(400, 346, "start", "soft",
             "two whole rows, and the next load the next two");
}
