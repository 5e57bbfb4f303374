/* errors.c -- chapter 19: the error of each judged kernel, divided by the limit.
 *
 * book/tables.py writes the input, build/book/results/errors.tsv. Columns: stage,
 * variant, 1 for fp32, 1 for failed, error / limit. */
#include "svg.h"

#include <string.h>

enum { MOST = 320 };
struct seen { char stage[64], name[64]; int f32, failed; double share; };
static struct seen seen[MOST];

static double x(double share) { return 185 + 495 * (share < 1.04 ? share : 1.04); }

static void draw(const struct seen *s, double y)
{
    const char *fill = s->f32 ? "var(--paper)" : "var(--a)";
    if (s->failed)
        printf("<path d=\"M%.1f %.1fl10 10m0 -10l-10 10\" style=\"fill:none;"
               "stroke:var(--b);stroke-width:2\">", x(s->share) - 5, y - 5);
    else
        printf("<circle cx=\"%.1f\" cy=\"%.0f\" r=\"5\" style=\"fill:%s;"
               "fill-opacity:.7;stroke:var(--a)\">", x(s->share), y, fill);
    printf("<title>%s %.0f %%</title></%s>\n", s->name, 100 * s->share,
           s->failed ? "path" : "circle");
}

int main(void)
{
    FILE *f = fopen("build/book/results/errors.tsv", "r");
    int n = 0;
    for (struct seen *s = seen; f && n < MOST; s++, n++)
        if (fscanf(f, "%63s %63s %d %d %lf", s->stage, s->name, &s->f32, &s->failed,
                   &s->share) != 5)
            break;
    int stages = 0, failed = 0;
    for (int i = 0; i < n; i++) {
        stages += !i || strcmp(seen[i].stage, seen[i - 1].stage);
        failed += seen[i].failed;
    }
    const double end = 40 + 24 * stages;
    svg_begin(720, (int)end + 40, "Errors as shares of their limits",
              "A row per stage, a mark per kernel: its worst error divided by what the "
              "judge allows. Discs: bf16; rings: fp32; crosses: failed.");
    for (int i = 0; i <= 4; i++) {
        svg_line(x(i / 4.0), 26, x(i / 4.0), end,
                 i < 4 ? "stroke:var(--line)" : "stroke:var(--b);stroke-width:1.5");
        svg_text(x(i / 4.0), end + 18, "middle", "soft", "%g %%", 25.0 * i);
    }
    svg_text(x(1), 18, "end", "soft", "limit");
    svg_text(4, 18, "start", "soft", "disc: bf16, ring: fp32, cross: failed (%d of %d)",
             failed, n);
    int row = -1;
    for (int i = 0; i < n; i++) {
        if (!i || strcmp(seen[i].stage, seen[i - 1].stage)) {
            row++;
            svg_text(176, 48 + 24 * row, "end", "mono", "%s", seen[i].stage);
        }
        draw(&seen[i], 44 + 24 * row);
    }
}
