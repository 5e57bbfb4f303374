/* plot.h -- curves over logarithmic axes, from the output of the book's programs.
 *
 * Book: chapters 10, 19, 20.  Included by leaveout.c, growth.c, forms.c and scaling.c.
 * Numbers are read from build/book/example.txt, which the pages also show. */
#ifndef BOOK_PLOT_H
#define BOOK_PLOT_H

#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 24, MOST_COLS = 9 };

/* Reads the rows of numbers that follow the line `after` of a section. */
static inline int printed_rows(const char *section, const char *after,
                               double rows[MOST_ROWS][MOST_COLS])
{
    char line[256], head[64];
    FILE *f = fopen("build/book/example.txt", "r");
    int n = 0, on = 0;
    snprintf(head, sizeof head, "== %s\n", section);
    while (f && fgets(line, sizeof line, f) && n < MOST_ROWS) {
        if (!strncmp(line, "== ", 3))
            on = !strcmp(line, head);
        if (on && strstr(line, after))
            on = 2;
        if (on < 2)
            continue;
        char *p = line, *end;
        int k = 0;
        for (double x = strtod(p, &end); end != p && k < MOST_COLS;
             x = strtod(p, &end)) {
            rows[n][k++] = x;
            p = end + strspn(end, " %");
        }
        if (k > 2)
            n++;
        else if (n)
            break;
    }
    if (f)
        fclose(f);
    return n;
}

/* A plot's frame: log10 of x and y at the edges, and the coordinates of the edges. */
struct frame { double lx0, lx1, ly0, ly1, x0, x1, y0, y1; };

static inline double frame_x(const struct frame *f, double v)
{
    return f->x0 + (log10(v) - f->lx0) / (f->lx1 - f->lx0) * (f->x1 - f->x0);
}

static inline double frame_y(const struct frame *f, double v)
{
    const double at = fmin(fmax((log10(v) - f->ly0) / (f->ly1 - f->ly0), 0), 1);
    return f->y1 - at * (f->y1 - f->y0);
}

/* Draws horizontal lines at powers of ten of y: every `step`-th power has a line. */
static inline void frame_rows(const struct frame *f, int step)
{
    for (int e = (int)ceil(f->ly0); e <= (int)floor(f->ly1); e += step) {
        const double y = frame_y(f, pow(10, e));
        svg_line(f->x0, y, f->x1, y, "stroke:var(--line)");
        if (e >= 0 && e < 5)
            svg_text(f->x0 - 8, y + 4, "end", "soft", "%.0f", pow(10, e));
        else
            svg_text(f->x0 - 8, y + 4, "end", "soft", "1e%d", e);
    }
}

static inline void frame_column(const struct frame *f, double v, const char *text)
{
    svg_line(frame_x(f, v), f->y0, frame_x(f, v), f->y1, "stroke:var(--line)");
    svg_text(frame_x(f, v), f->y1 + 18, "middle", "soft", "%s", text);
}

/* Draws a vertical line and its number at x = from, from * step, ... up to `to`. */
static inline void frame_powers(const struct frame *f, int from, int to, int step)
{
    for (int v = from; v <= to; v *= step) {
        char text[12];
        snprintf(text, sizeof text, "%d", v);
        frame_column(f, v, text);
    }
}

/* Writes the names of the axes: x below the frame, y above its left edge. */
static inline void frame_axes(const struct frame *f, const char *x, const char *y)
{
    if (x)
        svg_text((f->x0 + f->x1) / 2, f->y1 + 38, "middle", "soft", "%s", x);
    if (y)
        svg_text(4, 14, "start", "soft", "%s", y);
}

/* Writes a name at the right edge, `down` units below the value y. */
static inline void frame_name(const struct frame *f, double y, double down,
                              const char *class, const char *name)
{
    svg_text(f->x1 + 8, frame_y(f, y) + down, "start", class, "%s", name);
}

static inline void curve(const struct frame *f, double rows[MOST_ROWS][MOST_COLS],
                         int n, int cx, int cy, const char *ink, const char *dash)
{
    printf("<path d=\"");
    for (int i = 0; i < n; i++)
        printf("%c%.1f %.1f", i ? 'L' : 'M', frame_x(f, fabs(rows[i][cx])),
               frame_y(f, rows[i][cy]));
    printf("\" style=\"fill:none;stroke:%s;stroke-width:2;stroke-dasharray:%s\"/>\n",
           ink, dash);
    for (int i = 0; i < n; i++)
        svg_dot(frame_x(f, fabs(rows[i][cx])), frame_y(f, rows[i][cy]), 2.6, ink);
}

#endif
