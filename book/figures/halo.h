/* halo.h -- draws ranks of 5, 1, 0, 1 and 5 tokens, and the rows that each rank needs.
 *
 * Book: chapter 14.  Included by halo.c and halo_back.c.
 * Each needed row is drawn below its token, so the figure needs no arrows. */
#ifndef BOOK_HALO_H
#define BOOK_HALO_H

#include "svg.h"

enum { RANKS = 5, W = 4 };
static const int cuts[RANKS + 1] = { 0, 5, 6, 6, 7, 12 };

/* Returns x of token t on rank r. A rank adds a gap, even without tokens. */
static double halo_x(int r, int t) { return 104 + 35 * t + 48 * r; }

static int holder(int t)
{
    int r = 0;
    while (cuts[r + 1] <= t) r++;
    return r;
}

static void token(int t, double y, const char *wash)
{
    svg_box(halo_x(holder(t), t), y, 32, 26, wash, "%d", t);
}

/* Draws all tokens, grouped by rank. */
static void halo_tokens(const char *wash)
{
    svg_text(4, 63, "start", "", "held by");
    for (int r = 0; r < RANKS; r++) {
        svg_text(halo_x(r, cuts[r]), 20, "start", "", "rank %d", r);
        if (cuts[r] == cuts[r + 1])
            svg_text(halo_x(r, cuts[r]), 37, "start", "soft", "empty");
        for (int t = cuts[r]; t < cuts[r + 1]; t++)
            token(t, 46, wash);
    }
}

/* Draws the tokens first .. first + W - 2, which rank r needs, in line 0, 1 or 2 below
 * all tokens. */
static void halo_needs(int r, int first, const char *what, int line)
{
    static const char *const washes[] = { "b", "c", "a" };
    const double y = 94 + 40 * line;
    svg_text(4, y + 10, "start", "", "rank %d needs", r);
    svg_text(4, y + 26, "start", "soft", "%s", what);
    svg_line(4, y - 8, 716, y - 8, "stroke:var(--line)");
    for (int t = first; t < first + W - 1; t++)
        token(t, y, washes[line]);
}

#endif
