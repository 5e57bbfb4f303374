/* svg.c -- draws the figure of make run's page.
 *
 * x is in percent and y in pixels: the figure is as wide as the page, and the size of
 * text does not depend on this width. */
#include "text.h"
#include <math.h>

/* Prints n bytes (n = -1: the whole string) with escapes; bytes above 126 are dots. */
void print_html(FILE *o, const char *s, int64_t n)
{
    for (int64_t i = 0; n < 0 ? s[i] != 0 : i < n; i++) {
        const unsigned char c = s[i];
        if (c == '<' || c == '>' || c == '&' || c == '\'' || c == '"')
            fprintf(o, "&#%d;", c);
        else if (c >= 127) fputs("&middot;", o);
        else fputc(c < ' ' ? ' ' : c, o);
    }
}

static void text(FILE *o, double x, double y, const char *css, const char *s)
{
    fprintf(o, "<text x='%.2f%%' y='%.0f' class='%s'>", x, y, css);
    print_html(o, s, -1);
    fputs("</text>", o);
}

static void rect(FILE *o, double x, double y, double w, double h, const char *fill,
                 const char *title)
{
    fprintf(o, "<rect x='%.3f%%' y='%.0f' width='%.3f%%' height='%.0f' "
            "fill='var(%s)'><title>", x, y, w, h, fill);
    print_html(o, title, -1);
    fputs("</title></rect>", o);
}

static const struct { const char *name, *fill; } kind[] = {
    { "embedding, projections, loss", "--k0" }, { "convolution", "--k1" },
    { "within chunks", "--k2" }, { "affine map", "--k3" }, { "exchange", "--k4" },
    { "scan over chunks", "--k5" },
};
enum { KINDS = 6 };

static int kind_of(enum mark m)
{
    switch (m) {
    case MARK_CONV: case MARK_CONV_BACK: return 1;
    case MARK_GATE: case MARK_WY: case MARK_WY_BACK: case MARK_GATE_BACK: return 2;
    case MARK_AFFINE: case MARK_MERGE_BACK: return 3;
    case MARK_EXCHANGE: return 4;
    case MARK_CHUNK: case MARK_CHUNK_BACK: return 5;
    default: return 0;
    }
}

/* Draws the stages of each rank over wall-clock time. */
void svg_lanes(FILE *o, const struct finding *f)
{
    const int shown = f->R < 16 ? f->R : 16;
    double end = 1e-9;
    char s[120];
    for (int r = 0; r < shown; r++)
        for (int i = 0; i < f->many->lane[r].n; i++)
            end = fmax(end, f->many->lane[r].e[i].to);
    const double high = 40.0 * shown + 22;
    fprintf(o, "<svg width='100%%' height='%.0f' role='img' aria-label='stages over "
            "time'>", high);
    for (int r = 0; r < shown; r++) {
        snprintf(s, sizeof s, "rank %d", r);
        text(o, 0, 40.0 * r + 12, "small", s);
        for (int i = 0; i < f->many->lane[r].n; i++) {
            const struct event *e = &f->many->lane[r].e[i];
            snprintf(s, sizeof s, "rank %d: %s%s, %.2f ms, CPU time %.2f ms", r,
                     mark_name[e->mark],
                     e->mark == MARK_EXCHANGE && e->back ? " back" : "",
                     1e3 * (e->to - e->from), 1e3 * e->busy);
            rect(o, 100 * e->from / end, 40.0 * r + 17, 100 * (e->to - e->from) / end,
                 17, kind[kind_of(e->mark)].fill, s);
        }
    }
    snprintf(s, sizeof s, "%.0f ms", 1e3 * end);
    text(o, 0, high - 5, "small", "0");
    text(o, 100, high - 5, "end small", s);
    fputs("</svg>\n<p class='legend'>", o);
    for (int k = 0; k < KINDS; k++)
        fprintf(o, "<span><i style='background:var(%s)'></i>%s</span> ", kind[k].fill,
                kind[k].name);
    fputs("</p>\n", o);
}
