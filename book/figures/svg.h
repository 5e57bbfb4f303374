/* svg.h -- functions that draw the book's figures.
 *
 * Book: every figure.  Checked by: make book-lint.
 * Included by book/figures/NAME.c, which prints NAME.svg.
 * Colours are CSS variables, which the page defines for light and dark mode. */
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

/* Draws a rectangle. `style` is a format, as of printf; an example of the text that it
 * gives is "fill:var(--wash-a);stroke:var(--a)". */
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

/* Draws a line; `style` is a format, as for svg_rect. */
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

/* Draws a rectangle: `ink` a, b, c or d fills it with a wash of this colour; with any
 * other name only the outline has the colour. Writes a text into its middle. */
static inline void svg_box(double x, double y, double w, double h, const char *ink,
                           const char *fmt, ...)
{
    char fill[24] = "none", text[80];
    va_list ap;
    if (!ink[1])
        snprintf(fill, sizeof fill, "var(--wash-%s)", ink);
    svg_rect(x, y, w, h, "fill:%s;stroke:var(--%s)", fill, ink);
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (*text)
        svg_text(x + w / 2, y + (int)(h / 2) + (h > 32 ? 5 : 4), "middle", "mono", "%s",
                 text);
}

static inline void svg_dot(double x, double y, double r, const char *ink)
{
    printf("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" style=\"fill:%s\"/>\n", x, y, r,
           ink);
}

/* Animates a figure: a click uncovers the area x0..x1, y0..y1 from left to right in
 * `seconds`. In print, and if scripts are off, the whole figure is visible. */
static inline void svg_moves(double x0, double x1, double y0, double y1, double seconds)
{
    printf("<rect class=\"veil\" x=\"%.1f\" y=\"%.1f\" width=\"0\" height=\"%.1f\" "
           "style=\"fill:var(--paper);fill-opacity:.88\"/>\n<text class=\"player\" "
           "x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" tabindex=\"0\" role=\"button\" "
           "style=\"fill:var(--link,#1f4f8f);cursor:pointer\">\u25b6 play</text>\n"
           "<style>@media print{.player{display:none}}</style><script>(function(){"
           "var s=document.currentScript.closest('svg'),v=s.querySelector('.veil'),"
           "b=s.querySelector('.player'),id;function play(){"
           "var t0=performance.now();cancelAnimationFrame(id);(function step(t){"
           "var p=Math.min(Math.max(0,(t-t0)/%.0f),1),x=%.1f+p*%.1f;"
           "v.setAttribute('x',x);v.setAttribute('width',%.1f-x);"
           "if(p<1)id=requestAnimationFrame(step)})(t0)}b.onclick=play;"
           "b.onkeydown=function(e){if(e.key=='Enter'||e.key==' ')play()}})()"
           "</script>\n",
           x0, y0, y1 - y0, x1, y0 - 4, seconds * 1000, x0, x1 - x0, x1);
}

#endif
