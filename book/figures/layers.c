/* layers.c -- a figure of chapter 20: the parts of a layer on four GPUs.
 *
 * Book: chapter 20.  Checked by: make book-lint.  Next: book/figures/errata.c.
 * The fastest recorded plan of each pass and mode, T = 131072, 32 heads, KDA, from
 * bench/results/2026-11-21-c7198c2-4gpu.tsv; every part is the slowest rank's. */
#include "svg.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 64 };
struct bar { const char *stage, *save, *name; double us, part[4]; } bars[] = {
    { "08_forward", "none", "forward, nothing kept", 0, { 0 } },
    { "08_forward", "recompute", "forward, recompute", 0, { 0 } },
    { "13_backward", "recompute", "backward", 0, { 0 } } };

static const char *cell(char *const *row, char *const *head, const char *name)
{
    for (int i = 0; i < COLUMNS && head[i]; i++)
        if (!strcmp(head[i], name))
            return row[i] ? row[i] : "";
    return "";
}

static void split(char *line, char **cells)
{
    int n = 0;
    memset(cells, 0, COLUMNS * sizeof *cells);
    line[strcspn(line, "\n")] = 0;
    for (char *p = line; p && n < COLUMNS; n++) {
        char *tab = strchr(p, '\t');
        cells[n] = p;
        if (tab)
            *tab++ = 0;
        p = tab;
    }
}

static void read_record(const char *file)
{
    static const char *const parts[] = { "front", "sum", "exchange", "main" };
    static char first[4096], line[8192];
    char *head[COLUMNS], *row[COLUMNS];
    FILE *f = fopen(file, "r");
    if (!f || !fgets(first, sizeof first, f))
        exit(1);
    split(first, head);
    while (fgets(line, sizeof line, f)) {
        split(line, row);
        for (int i = 0; i < 3; i++) {
            struct bar *b = &bars[i];
            const double us = atof(cell(row, head, "us"));
            if (strcmp(cell(row, head, "stage"), b->stage) ||
                strcmp(cell(row, head, "save"), b->save) ||
                strcmp(cell(row, head, "model"), "kda") ||
                strcmp(cell(row, head, "gate"), "live") ||
                atoi(cell(row, head, "T")) != 131072 ||
                atoi(cell(row, head, "H")) != 32 ||
                atoi(cell(row, head, "ranks")) != 4 || *cell(row, head, "peer") ||
                !*cell(row, head, "front") || (b->us > 0 && us >= b->us))
                continue;
            b->us = us;
            for (int k = 0; k < 4; k++)
                b->part[k] = atof(cell(row, head, parts[k]));
        }
    }
    fclose(f);
}

int main(void)
{
    static const char *const style[] = {
        "fill:var(--wash-d);stroke:var(--d)", "fill:var(--wash-a);stroke:var(--a)",
        "fill:var(--b);stroke:var(--b)", "fill:var(--wash-c);stroke:var(--c)" };
    static const char *const names[] = { "front end", "maps", "exchange", "main pass" };
    read_record("bench/results/2026-11-21-c7198c2-4gpu.tsv");
    svg_begin(720, 222, "The parts of a layer on four GPUs",
              "Bars for forward and backward: front end, maps, exchange and main pass. "
              "The exchange is the thinnest part of each.");
    for (int i = 0; i < 3; i++) {
        double x = 160;
        const double y = 20 + 44 * i, scale = 0.078;
        svg_text(152, y + 19, "end", "", "%s", bars[i].name);
        for (int k = 0; k < 4; k++) {
            svg_rect(x, y, bars[i].part[k] * scale - 1, 28, style[k]);
            x += bars[i].part[k] * scale;
        }
        svg_text(x + 6, y + 19, "start", "soft", "%.2f", bars[i].us / 1000);
    }
    for (int k = 0; k < 4; k++) {
        svg_rect(160 + 130 * k, 162, 14, 14, style[k]);
        svg_text(180 + 130 * k, 174, "start", "", "%s", names[k]);
    }
    svg_text(160, 206, "start", "soft",
             "ms; T = 131072, 32 heads, KDA; parts are the slowest rank's");
    svg_end();
    return 0;
}
