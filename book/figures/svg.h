/* svg.h -- the few strokes that the book's figures are drawn with.
 *
 * Book: every figure.  Included by book/figures/NAME.c, which prints NAME.svg.
 * Colours are the page's own variables, so a figure follows light and dark. */
#ifndef BOOK_SVG_H
#define BOOK_SVG_H

#include <stdarg.h>
#include <stdio.h>

static inline void svg_begin(int w, int h, const char *title, const char *desc)
{
    printf("<svg viewBox=\"0 0 %d %d\" role=\"img\"><title>%s</title><desc>%s</desc>\n",
           w, h, title, desc);
}

static inline void svg_end(void)
{
    printf("</svg>\n");
}

/* style: CSS, e.g. "fill:var(--wash-a);stroke:var(--a)" */
static inline void svg_rect(double x, double y, double w, double h, const char *style)
{
    printf("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\" "
           "style=\"%s\"/>\n",
           x, y, w, h, style);
}

static inline void svg_line(double x1, double y1, double x2, double y2,
                            const char *style)
{
    printf("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" style=\"%s\"/>\n", x1,
           y1, x2, y2, style);
}

/* An arrow: a line and a small head, both in the same colour. */
static inline void svg_arrow(double x1, double y1, double x2, double y2,
                             const char *ink)
{
    const double dx = x2 - x1, dy = y2 - y1;
    double n = dx * dx + dy * dy, r = 1;
    for (int i = 0; i < 40; i++)              /* Newton's square root: no -lm needed */
        r = n > 0 ? (r + n / r) / 2 : 1;
    const double ux = dx / r, uy = dy / r;
    printf("<path d=\"M%.1f %.1fL%.1f %.1fM%.1f %.1fL%.1f %.1fL%.1f %.1f\" "
           "style=\"fill:none;stroke:%s;stroke-width:1.5\"/>\n",
           x1, y1, x2, y2, x2 - 7 * ux + 4 * uy, y2 - 7 * uy - 4 * ux, x2, y2,
           x2 - 7 * ux - 4 * uy, y2 - 7 * uy + 4 * ux, ink);
}

/* anchor: start, middle, end; class: "", "soft", "mono" */
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
