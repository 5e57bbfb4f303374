/* cuts.c -- chapter 20: a forward on two GPUs by the first one's share of the tokens.
 *
 * Book: chapter 20.  Checked by: make book-lint.  Next: book/figures/layers.c.
 * build/book/results/20-cuts.tsv is made of the records, with the chapter's tables. A
 * row is the share in per cent, the form, and microseconds. */
#include "svg.h"

#include <string.h>

enum { LEFT = 70, RIGHT = 690, TOP = 46, BOTTOM = 300, MOST = 64, FORMS = 3 };

struct point { double share, ms; char form[24]; };

static const char *const forms[FORMS] = { "chain", "chain_window", "all_gather" };
static const char *const names[FORMS] = { "chain", "chain over windows", "all-gather" };
static const char *const inks[FORMS] = { "var(--a)", "var(--b)", "var(--c)" };

static int read_points(struct point *p)
{
    FILE *f = fopen("build/book/results/20-cuts.tsv", "r");
    int n = 0;
    while (f && n < MOST && fscanf(f, "%lf %23s %lf", &p[n].share, p[n].form,
                                   &p[n].ms) == 3) {
        p[n].ms /= 1000;
        n++;
    }
    if (f)
        fclose(f);
    return n;
}

/* By share, so that a line goes from left to right. */
static void sort_points(struct point *p, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && p[j - 1].share > p[j].share; j--) {
            const struct point x = p[j];
            p[j] = p[j - 1];
            p[j - 1] = x;
        }
}

struct axes { double share0, share1, ms0, ms1; };

static double at_x(const struct axes *a, double share)
{
    return LEFT + (share - a->share0) / (a->share1 - a->share0) * (RIGHT - LEFT);
}

static double at_y(const struct axes *a, double ms)
{
    return BOTTOM - (ms - a->ms0) / (a->ms1 - a->ms0) * (BOTTOM - TOP);
}

static struct axes axes_of(const struct point *p, int n)
{
    struct axes a = { 100, 0, 1e9, 0 };
    for (int i = 0; i < n; i++) {
        a.share0 = p[i].share < a.share0 ? p[i].share : a.share0;
        a.share1 = p[i].share > a.share1 ? p[i].share : a.share1;
        a.ms0 = p[i].ms < a.ms0 ? p[i].ms : a.ms0;
        a.ms1 = p[i].ms > a.ms1 ? p[i].ms : a.ms1;
    }
    a.share0 -= 1;
    a.share1 += 1;
    a.ms0 = (int)(a.ms0 * 20) / 20.0;
    a.ms1 = ((int)(a.ms1 * 20) + 1) / 20.0;
    return a;
}

static void frame(const struct axes *a)
{
    const double step = a->ms1 - a->ms0 > 0.45 ? 0.1 : 0.05;
    for (double ms = a->ms0; ms < a->ms1 + step / 2; ms += step) {
        svg_line(LEFT, at_y(a, ms), RIGHT, at_y(a, ms), "stroke:var(--line)");
        svg_text(LEFT - 8, at_y(a, ms) + 4, "end", "soft", "%.2f", ms);
    }
    for (int share = (int)a->share0 + 1; share < a->share1; share += 2)
        svg_text(at_x(a, share), BOTTOM + 18, "middle", "soft", "%d", share);
    svg_text((LEFT + RIGHT) / 2.0, BOTTOM + 38, "middle", "soft",
             "tokens of the first GPU, per cent");
    svg_text(LEFT - 8, 20, "end", "soft", "ms");
}

static void curve(const struct axes *a, const struct point *p, int n, int form)
{
    char style[80];
    int last = -1;
    snprintf(style, sizeof style, "stroke:%s;stroke-width:1.8", inks[form]);
    for (int i = 0; i < n; i++) {
        if (strcmp(p[i].form, forms[form]))
            continue;
        const double x = at_x(a, p[i].share), y = at_y(a, p[i].ms);
        if (last >= 0)
            svg_line(at_x(a, p[last].share), at_y(a, p[last].ms), x, y, style);
        printf("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" style=\"fill:%s\"/>\n", x, y,
               inks[form]);
        last = i;
    }
    printf("<circle cx=\"%d\" cy=\"16\" r=\"3.5\" style=\"fill:%s\"/>\n",
           LEFT + 40 + 170 * form, inks[form]);
    svg_text(LEFT + 50 + 170 * form, 20, "start", "", "%s", names[form]);
}

int main(void)
{
    struct point p[MOST];
    const int n = read_points(p);
    svg_begin(720, 350, "A forward on two GPUs by the first one's share",
              "Milliseconds of a forward in three forms against the share of the "
              "tokens that the first of two GPUs has: fastest with a little less than "
              "half, for the second one waits for the first.");
    if (n) {
        sort_points(p, n);
        const struct axes a = axes_of(p, n);
        frame(&a);
        for (int form = 0; form < FORMS; form++)
            curve(&a, p, n, form);
    }
    svg_end();
    return 0;
}
