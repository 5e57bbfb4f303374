/* roofline.c -- the figure of chapter 18: an H200's roofline, every recorded variant.
 *
 * Book: chapter 18.  Checked by: make book-lint.  Next: none.
 * Points come from build/book/results/roofline.tsv, which book/tables.py makes from
 * bench/results/: first "roof TB/s TFLOP/s" as measured there, then name, operations a
 * byte, TFLOP/s. A name stands where it covers no other. */
#include "svg.h"

#include <math.h>
#include <string.h>

enum { MOST = 120, HEIGHT = 560 };
struct box { double x0, y0, x1, y1; };
struct point { char name[64]; double intensity, rate; };

static struct box taken[3 * MOST];
static int ntaken;

static double x(double intensity) { return 60 + log10(intensity) * 213; }
static double y(double tflops) { return 424 - log10(tflops) * 130; }

static void take(double x0, double y0, double x1, double y1)
{
    taken[ntaken++] = (struct box){ x0, y0, x1, y1 };
}

/* How much of a box lies over others, or outside of the figure. */
static double covered(struct box b)
{
    double s = b.x0 < 60 || b.x1 > 716 || b.y0 < 24 || b.y1 > 512 ? 1e4 : 0;
    for (int i = 0; i < ntaken; i++) {
        const double w = fmin(b.x1, taken[i].x1) - fmax(b.x0, taken[i].x0);
        const double h = fmin(b.y1, taken[i].y1) - fmax(b.y0, taken[i].y0);
        s += w > 0 && h > 0 ? w * h : 0;
    }
    return s;
}

/* The nearest place around the point that is free, with a line to it when it is far. */
static void name_it(const struct point *p)
{
    const double px = x(p->intensity), py = y(p->rate), w = 6.7 * strlen(p->name) + 8;
    struct box best = { 0 };
    double least = 1e9, away = 0;
    for (int ring = 0; ring < 12; ring++)
        for (int a = 0; a < 16; a++) {
            const double r = 7 + 7 * ring, u = cos(a * 0.392699), v = sin(a * 0.392699);
            const double cx = px + u * r, cy = py + v * r;
            double x0 = cx - w / 2;
            if (u > 0.3) x0 = cx;
            if (u < -0.3) x0 = cx - w;
            const struct box b = { x0, cy - 7, x0 + w, cy + 7 };
            const double cost = covered(b) + r;
            if (cost < least) {
                least = cost;
                best = b;
                away = r;
            }
        }
    if (away > 12)
        svg_line(px, py, fmin(fmax(px, best.x0), best.x1), (best.y0 + best.y1) / 2,
                 "stroke:var(--soft);stroke-width:.7");
    svg_text(best.x0 + 4, best.y1 - 3, "start", "mono", "%s", p->name);
    take(best.x0, best.y0, best.x1, best.y1);
}

static void axes(double copy, double tensor)
{
    for (int e = 0; e <= 3; e++) {
        const double at = pow(10, e);
        svg_line(x(at), 24, x(at), 508, "stroke:var(--line)");
        svg_text(x(at), 526, "middle", "soft", "%g", at);
        svg_line(60, y(at), 700, y(at), "stroke:var(--line)");
        svg_text(52, y(at) + 4, "end", "soft", "%g", at);
    }
    const double knee = tensor / copy;
    svg_line(x(1), y(copy), x(knee), y(tensor), "stroke:var(--a);stroke-width:2");
    svg_line(x(knee), y(tensor), 700, y(tensor), "stroke:var(--a);stroke-width:2");
    svg_text(x(10), y(10 * copy) - 6, "end", "", "%.1f TB/s", copy);
    svg_text(690, y(tensor) - 8, "end", "", "%.0f TFLOP/s", tensor);
    svg_text(380, HEIGHT - 12, "middle", "soft", "operations a byte");
    svg_text(8, 16, "start", "soft", "TFLOP/s");
}

int main(void)
{
    static struct point p[MOST];
    FILE *f = fopen("build/book/results/roofline.tsv", "r");
    double copy = 4.3, tensor = 790;               /* until a run says otherwise */
    int n = 0;
    while (f && n < MOST && fscanf(f, "%63s %lf %lf", p[n].name, &p[n].intensity,
                                   &p[n].rate) == 3) {
        char *sm90 = strstr(p[n].name, "_sm90");
        if (sm90)
            memmove(sm90, sm90 + 5, strlen(sm90 + 5) + 1);
        if (strcmp(p[n].name, "roof")) {
            n++;
        } else {
            copy = p[n].intensity;
            tensor = p[n].rate;
        }
    }
    if (f)
        fclose(f);
    svg_begin(720, HEIGHT, "Roofline of the H200 and the recorded variants",
              "Attainable rate against operations per byte: a slope, the measured "
              "copy, and a flat roof, the measured product of matrices. Each recorded "
              "variant of each stage is a point below, in TFLOP/s; the tables of the "
              "chapters have the same numbers.");
    axes(copy, tensor);
    for (int i = 0; i < n; i++) {
        const double px = x(p[i].intensity), py = y(p[i].rate);
        printf("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" style=\"fill:var(--c)\"/>\n",
               px, py);
        take(px - 4, py - 4, px + 4, py + 4);
    }
    for (double at = 1; at < tensor / copy; at *= 1.05)        /* keep off the slope */
        take(x(at) - 3, y(at * copy) - 3, x(at) + 3, y(at * copy) + 3);
    for (int i = 0; i < n; i++)
        name_it(&p[i]);
    if (!n)
        svg_text(330, 220, "middle", "soft", "no variant recorded yet");
    svg_end();
    return 0;
}
