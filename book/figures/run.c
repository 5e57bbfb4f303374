/* run.c -- the index page: the stages of four ranks over time, from one `make run`.
 *
 * Reads book/data/run.tsv: a row per stage and rank with its start and length in ms. */
#include "svg.h"

#include <string.h>

enum { KINDS = 6 };
static const struct { const char *stages, *name, *style; } kind[KINDS] = {
    { "embed logits gradients", "embedding, projections, loss",
      "fill:var(--code);stroke:var(--soft)" },
    { "14", "convolution", "fill:var(--wash-d);stroke:var(--d)" },
    { "02 03 10", "within chunks", "fill:var(--wash-c);stroke:var(--c)" },
    { "05 11", "affine map", "fill:var(--a);stroke:var(--a)" },
    { "07", "exchange", "fill:var(--b);stroke:var(--b)" },
    { "04 09", "scan over chunks", "fill:var(--wash-a);stroke:var(--a)" } };

/* Returns the style of a stage, which is known by the start of its name. */
static const char *style_of(const char *stage)
{
    char word[32];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(stage, " ,"), stage);
    for (int k = 0; k < KINDS; k++)
        if (strstr(kind[k].stages, word)) return kind[k].style;
    return kind[0].style;
}

int main(void)
{
    char line[256], stage[64];
    int rank;
    double from, ms, end = 0;
    FILE *f = fopen("book/data/run.tsv", "r");
    if (!f) return 1;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%d\t%63[^\t]\t%lf\t%lf", &rank, stage, &from, &ms) == 4
            && from + ms > end)
            end = from + ms;
    rewind(f);
    svg_begin(720, 196, "The stages of make run on four ranks over time",
              "Forward and backward of one layer: convolution, the work within chunks, "
              "the affine map, a short exchange, the scan over chunks, the loss, and "
              "the same in reverse order.");
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%d\t%63[^\t]\t%lf\t%lf", &rank, stage, &from, &ms) != 4)
            continue;
        svg_rect(60 + 656 * from / end, 8 + 28 * rank, 656 * ms / end, 20,
                 style_of(stage));
    }
    fclose(f);
    for (int r = 0; r < 4; r++) svg_text(52, 22 + 28 * r, "end", "soft", "rank %d", r);
    svg_text(60, 138, "middle", "soft", "0");
    svg_text(716, 138, "end", "soft", "%.0f ms", end);
    for (int k = 0; k < KINDS; k++) {
        const double x = 60 + 230 * (k % 3), y = 152 + 22 * (k / 3);
        svg_rect(x, y, 14, 14, kind[k].style);
        svg_text(x + 20, y + 12, "start", "soft", "%s", kind[k].name);
    }
}
