/* errors.c -- chapter 19: the error of each judged kernel, divided by the limit.
 *
 * Reads from bench/results/ the newest verdict, passed or failed, of each variant that
 * exists and of each number of GPUs. */
#define _GNU_SOURCE                  /* GLOB_BRACE */
#include "records.h"
#include "svg.h"

enum { MOST = 320 };
static struct seen {
    char stage[64], name[64];
    int ranks, f32, failed;
    double share;
} seen[MOST];
static int n;

static double x(double share) { return 185 + 495 * (share < 1.04 ? share : 1.04); }

/* Returns whether the variant's file still exists. Names of fp32 variants end in _f32,
 * names of files for one architecture in _sm90. */
static int exists(const char *stage, const char *name)
{
    char pattern[512];
    const size_t length = strlen(name);
    const int f32 = length > 4 && !strcmp(name + length - 4, "_f32");
    glob_t g;
    snprintf(pattern, sizeof pattern, "cuda/{%s,18_hopper,18_hopper/*}/%.*s{,_sm90}.cu",
             stage, (int)(length - 4 * f32), name);
    if (glob(pattern, GLOB_BRACE, NULL, &g)) return 0;
    globfree(&g);
    return 1;
}

static void take(const struct record *r)
{
    char stage[128], name[128];
    const double allowed = record_number(r, "allowed");
    const int ranks = (int)record_number(r, "ranks");
    if (!record_is(r, "kind", "verdict") || !(allowed > 0)) return;
    int i = 0;
    record_get(r, "stage", stage);
    record_get(r, "variant", name);
    if (!exists(stage, name)) return;
    while (i < n && (strcmp(seen[i].stage, stage) || strcmp(seen[i].name, name) ||
                     seen[i].ranks != ranks)) i++;
    if (i == MOST) return;
    snprintf(seen[i].stage, sizeof seen[i].stage, "%.63s", stage);
    snprintf(seen[i].name, sizeof seen[i].name, "%.63s", name);
    seen[i].ranks = ranks;
    seen[i].f32 = record_is(r, "storage", "f32");
    seen[i].failed = record_is(r, "verdict", "FAIL");
    seen[i].share = record_number(r, "error") / allowed;
    if (i == n) n++;
}

/* Keeps one mark per variant: of its numbers of GPUs the largest error. */
static void keep_worst(void)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        int j = 0;
        while (j < kept && (strcmp(seen[j].stage, seen[i].stage) ||
                            strcmp(seen[j].name, seen[i].name))) j++;
        if (j == kept)
            seen[kept++] = seen[i];
        else if (seen[i].share > seen[j].share)
            seen[j] = seen[i];
    }
    n = kept;
}

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

static int by_stage(const void *a, const void *b)
{
    return strcmp(a, b);
}

int main(void)
{
    static struct records all;
    records_open(&all, "bench/results/*.tsv");
    while (records_next(&all)) take(&all.row);
    keep_worst();
    qsort(seen, n, sizeof *seen, by_stage);
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
    svg_end();
    return 0;
}
