/* tokens.c -- chapter 18: time of whole passes on one GPU against the number of tokens.
 *
 * book/tables.py writes the input, build/book/results/tokens.tsv. Columns: model,
 * heads, stage, saved block, tokens, ms; in the order of tokens. */
#include "plot.h"

enum { PASSES = 3, MODELS = 2, PANELS = 2 };
static const char *const model[MODELS] = { "kda", "gdn" };
static const struct { const char *stage, *save, *name, *ink; } pass[PASSES] = {
    { "13_backward", "recompute", "backward", "var(--b)" },
    { "08_forward", "recompute", "forward, data saved", "var(--a)" },
    { "08_forward", "none", "forward, nothing saved", "var(--c)" } };

/* Reads the rows of tokens and ms of one pass. */
static int read_curve(int heads, int m, int p, double rows[MOST_ROWS][MOST_COLS])
{
    char name[16], stage[32], save[16];
    double T, ms;
    int n = 0, H;
    FILE *f = fopen("build/book/results/tokens.tsv", "r");
    while (f && n < MOST_ROWS && fscanf(f, "%15s %d %31s %15s %lf %lf", name, &H, stage,
                                        save, &T, &ms) == 6)
        if (H == heads && !strcmp(name, model[m]) && !strcmp(stage, pass[p].stage) &&
            !strcmp(save, pass[p].save)) {
            rows[n][0] = T;
            rows[n++][1] = ms;
        }
    if (f) fclose(f);
    return n;
}

static void panel(const struct frame *f, int heads)
{
    static double rows[MOST_ROWS][MOST_COLS];
    frame_rows(f, 1);
    for (int T = 1024; T <= 131072; T *= 2) {
        char text[12];
        snprintf(text, sizeof text, "%dk", T / 1024);
        frame_column(f, T, T & 0x15400 ? text : "");
    }
    svg_text(f->x0, f->y0 - 10, "start", "", "%d heads", heads);
    frame_axes(f, "tokens", NULL);
    for (int m = 0; m < MODELS; m++)
        for (int p = 0; p < PASSES; p++) {
            const int n = read_curve(heads, m, p, rows);
            if (n) curve(f, rows, n, 0, 1, pass[p].ink, m ? "5 4" : "none");
        }
}

int main(void)
{
    const struct frame left = { 2.95, 5.2, -1.6, 1.3, 50, 366, 46, 320 };
    const struct frame right = { 2.95, 5.2, -1.6, 1.3, 400, 716, 46, 320 };
    svg_begin(720, 400, "Time against tokens on one GPU",
              "Forward and backward of KDA and GDN with 32 and 96 heads. From sixteen "
              "thousand tokens on the time is nearly proportional to the tokens.");
    panel(&left, 32);
    panel(&right, 96);
    svg_text(4, 16, "start", "soft", "ms");
    for (int p = 0; p < PASSES; p++) {
        const double x = 50 + 170 * p + 25 * (p == 2);
        svg_line(x, 384, x + 22, 384, "stroke:%s;stroke-width:2", pass[p].ink);
        svg_text(x + 28, 388, "start", "", "%s", pass[p].name);
    }
    svg_text(716, 16, "end", "soft", "solid: KDA, dashed: GDN");
}
