/* draw.c -- writes the page's answer: HTML with pictures of matrices as SVG.
 * Book: page "compute". */
#include "page.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static char text[1 << 21];
static size_t length;

void put(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text + length, sizeof text - length, format, args);
    va_end(args);
    if (n > 0 && length + (size_t)n < sizeof text) length += (size_t)n;
}

const char *answer(void)
{
    text[length] = 0;
    length = 0;
    return text;
}

enum { LEVELS = 6 };

/* One path for each sign and level of darkness: a cell is a unit square of the path. */
static void cells(const double *x, int rows, int cols, int down, int across,
                  double largest, int level)
{
    int open = 0;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            const double y = x[i * down + j * across] / largest;
            const int at = (int)ceil(fabs(y) * LEVELS);
            if (!(y < 0 ? -at == level : at == level)) continue;
            if (!open++)
                put("<path class=%s opacity=%.2f d=\"", level < 0 ? "neg" : "pos",
                    abs(level) / (double)LEVELS);
            put("M%d %dh1v1h-1z", j, i);
        }
    if (open)
        put("\"/>");
}

void picture(const char *label, const double *x, int rows, int cols, int down,
             int across, int wide)
{
    double largest = 0;
    int number = 1;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            const double y = fabs(x[i * down + j * across]);
            number &= isfinite(y);
            largest = y > largest ? y : largest;
        }
    put("<figure><svg role=img aria-label=\"%s\" viewBox=\"0 0 %d %d\" "
        "preserveAspectRatio=none style=\"width:%d%s;height:%dpx\"><title>%s, %d by "
        "%d</title><path class=frame d=\"M0 0h%dv%dh-%dz\"/>", label, cols, rows,
        wide ? 100 : cols * 8, wide ? "%" : "px", rows * 8, label, rows, cols, cols,
        rows, cols);
    for (int level = -LEVELS; largest > 0 && number && level <= LEVELS; level++)
        if (level) cells(x, rows, cols, down, across, largest, level);
    put("</svg><figcaption>%s%s", label, wide ? ", " : "<br>");
    put(number ? "&le; %.2g</figcaption></figure>" : "not finite</figcaption></figure>",
        largest);
}

/* A rank is a row, a step is a column. An all-gather is a line over all ranks. */
void diagram(int R, int pass, int until)
{
    int steps = 0;
    for (int i = 0; i < nposts; i++)
        if (posts[i].pass == pass && posts[i].step > steps) steps = posts[i].step;
    put("<svg class=steps role=img aria-label=\"messages by step\" "
        "viewBox=\"0 0 %d %d\" style=\"max-width:%dpx\">", 60 + 80 * steps, 22 * R + 22,
        60 + 80 * steps);
    for (int s = 1; s <= steps; s++)
        put("<text x=%d y=14>step %d</text>", 80 * s - 4, s);
    for (int r = 0; r < R; r++)
        put("<text x=0 y=%d>rank %d</text><path class=frame d=\"M52 %dH%d\"/>",
            22 * r + 36, r, 22 * r + 32, 60 + 80 * steps);
    for (int i = 0; i < nposts; i++) {
        const struct post *p = &posts[i];
        const int x = 80 * p->step - 20, y = 22 * p->from + 32;
        if (p->pass != pass || p->step > until) continue;
        if (p->to < 0) {
            put("<path class=go d=\"M%d 32V%d\"/><circle cx=%d cy=%d r=4 />", x + 24,
                22 * R + 10, x + 24, y);
            continue;
        }
        put("<path class=go d=\"M%d %dL%d %d\"/><circle cx=%d cy=%d r=4 />", x, y,
            x + 56, 22 * p->to + 32, x + 56, 22 * p->to + 32);
    }
    put("</svg>");
}
