/* svg.h -- functions that draw the book's figures.
 *
 * Book: chapters 02, 05, 06 and 17.  Checked by: make book-lint.
 * Included by book/figures/NAME.c, which prints NAME.svg. Figures in C call functions
 * of ref/ or cuda/; svg.py draws all other figures. */
#ifndef BOOK_SVG_H
#define BOOK_SVG_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static inline void svg_end(void)
{
    printf("</svg>\n");
}

/* Begins the figure, which ends when the program ends. */
static inline void svg_begin(int w, int h, const char *title, const char *desc)
{
    atexit(svg_end);
    printf("<svg viewBox=\"0 0 %d %d\" role=\"img\"><title>%s</title><desc>%s</desc>\n",
           w, h, title, desc);
}

/* Draws a rectangle. `style` is a printf format that gives CSS, such as
 * "fill:var(--wash-a);stroke:var(--a)". */
static inline void svg_rect(double x, double y, double w, double h, const char *style,
                            ...)
{
    va_list ap;
    va_start(ap, style);
    printf("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\" "
           "style=\"", x, y, w, h);
    vprintf(style, ap);
    printf("\"/>\n");
    va_end(ap);
}

/* Draws a line; `style` is a printf format that gives CSS. */
static inline void svg_line(double x1, double y1, double x2, double y2,
                            const char *style, ...)
{
    va_list ap;
    va_start(ap, style);
    printf("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" style=\"", x1, y1,
           x2, y2);
    vprintf(style, ap);
    printf("\"/>\n");
    va_end(ap);
}

/* Draws an arrow: a line and a small head in one colour. */
static inline void svg_arrow(double x1, double y1, double x2, double y2,
                             const char *ink)
{
    const double dx = x2 - x1, dy = y2 - y1;
    double n = dx * dx + dy * dy, r = 1;
    for (int i = 0; i < 40; i++)              /* Newton's square root, without -lm */
        r = n > 0 ? (r + n / r) / 2 : 1;
    const double ux = dx / r, uy = dy / r;
    printf("<path d=\"M%.1f %.1fL%.1f %.1fM%.1f %.1fL%.1f %.1fL%.1f %.1f\" "
           "style=\"fill:none;stroke:%s;stroke-width:1.5\"/>\n",
           x1, y1, x2, y2, x2 - 7 * ux + 4 * uy, y2 - 7 * uy - 4 * ux, x2, y2,
           x2 - 7 * ux - 4 * uy, y2 - 7 * uy + 4 * ux, ink);
}

/* `anchor` is start, middle or end; `class` is "", "soft" or "mono". */
static inline void svg_text(double x, double y, const char *anchor, const char *class,
                            const char *fmt, ...)
{
    va_list ap;
    printf("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor,
           class);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("</text>\n");
}

#endif
