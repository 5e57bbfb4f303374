/* errors.c -- chapter 19: the error of each judged kernel, divided by the limit.
 *
 * Book: chapter 19.  Checked by: make book-lint.  Next: none.
 * Reads the newest verdict per variant and storage type from bench/results/. */
#include "records.h"
#include "svg.h"

enum { MOST = 160 };
static struct { char stage[64], name[64]; int f32; double share; } seen[MOST];
static int n;

static double x(double share) { return 150 + 530 * share; }

static void take(const struct record *r)
{
    char stage[128], name[128];
    const double allowed = record_number(r, "allowed");
    if (!record_is(r, "kind", "verdict") || !record_is(r, "verdict", "ok")) return;
    if (!(allowed > 0)) return;
    int i = 0;
    record_get(r, "stage", stage);
    record_get(r, "variant", name);
    while (i < n && (strcmp(seen[i].stage, stage) || strcmp(seen[i].name, name))) i++;
    if (i == MOST) return;
    snprintf(seen[i].stage, sizeof seen[i].stage, "%.63s", stage);
    snprintf(seen[i].name, sizeof seen[i].name, "%.63s", name);
    seen[i].f32 = record_is(r, "storage", "f32");
    seen[i].share = record_number(r, "error") / allowed;
    if (i == n) n++;
}

static int by_stage(const void *a, const void *b)
{
    return strcmp(a, b);
}

int main(void)
{
    static struct record r;
    glob_t g;
    if (glob("bench/results/*.tsv", 0, NULL, &g)) return 1;
    for (size_t i = 0; i < g.gl_pathc; i++)
        if (record_open(&r, g.gl_pathv[i]))
            while (record_next(&r)) take(&r);
    globfree(&g);
    qsort(seen, n, sizeof *seen, by_stage);
    int stages = 0;
    for (int i = 0; i < n; i++)
        stages += !i || strcmp(seen[i].stage, seen[i - 1].stage);
    const double end = 40 + 24 * stages;
    svg_begin(720, (int)end + 40, "Errors as shares of their limits",
              "A row per stage, a mark per kernel: its worst error divided by what the "
              "judge allows. Discs: bf16; rings: fp32. No mark is beyond the limit.");
    for (int i = 0; i <= 4; i++) {
        svg_line(x(i / 4.0), 26, x(i / 4.0), end,
                 i < 4 ? "stroke:var(--line)" : "stroke:var(--b);stroke-width:1.5");
        svg_text(x(i / 4.0), end + 18, "middle", "soft", "%g %%", 25.0 * i);
    }
    svg_text(x(1), 18, "end", "soft", "limit");
    svg_text(4, 18, "start", "soft", "disc: bf16, ring: fp32");
    int row = -1;
    for (int i = 0; i < n; i++) {
        if (!i || strcmp(seen[i].stage, seen[i - 1].stage)) {
            row++;
            svg_text(142, 48 + 24 * row, "end", "mono", "%s", seen[i].stage);
        }
        printf("<circle cx=\"%.1f\" cy=\"%d\" r=\"5\" style=\"fill:%s;fill-opacity:.7;"
               "stroke:var(--a)\"><title>%s %.0f %%</title></circle>\n",
               x(seen[i].share), 44 + 24 * row,
               seen[i].f32 ? "var(--paper)" : "var(--a)", seen[i].name,
               100 * seen[i].share);
    }
    svg_end();
    return 0;
}
