/* tokens.c -- chapter 18: time of whole passes on one GPU against the number of tokens.
 *
 * Reads the newest record of bench/results/ with cases T<tokens>_<model><heads>. */
#include "plot.h"
#include "records.h"

enum { PASSES = 3, MODELS = 2, PANELS = 2 };
static const char *const model[MODELS] = { "kda", "gdn" };
static const struct { const char *stage, *save, *name, *ink; } pass[PASSES] = {
    { "13_backward", "recompute", "backward", "var(--b)" },
    { "08_forward", "recompute", "forward, data saved", "var(--a)" },
    { "08_forward", "none", "forward, nothing saved", "var(--c)" } };

/* Rows of tokens and ms of one pass, in the order of tokens. */
static int read_curve(const char *path, int heads, int m, int p,
                      double rows[MOST_ROWS][MOST_COLS])
{
    static struct record r;
    char start[16], text[128], number[16];
    int n = 0;
    snprintf(number, sizeof number, "%d", heads);
    for (int more = record_open(&r, path); more && record_next(&r);) {
        snprintf(start, sizeof start, "T%.0f_", record_number(&r, "T"));
        if (strncmp(record_get(&r, "case", text), start, strlen(start))) continue;
        if (!record_is(&r, "H", number) || !record_is(&r, "model", model[m])) continue;
        if (!record_is(&r, "stage", pass[p].stage)) continue;
        if (!record_is(&r, "save", pass[p].save) || n == MOST_ROWS) continue;
        int i = n++;
        for (; i > 0 && rows[i - 1][0] > record_number(&r, "T"); i--)
            memcpy(rows[i], rows[i - 1], sizeof rows[i]);
        rows[i][0] = record_number(&r, "T");
        rows[i][1] = record_number(&r, "us") / 1e3;
    }
    return n;
}

static void panel(const char *path, const struct frame *f, int heads)
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
            const int n = read_curve(path, heads, m, p, rows);
            if (n) curve(f, rows, n, 0, 1, pass[p].ink, m ? "5 4" : "none");
        }
}

/* Returns the newest record with a case "T1024_kda32", or NULL. */
static const char *newest(glob_t *g)
{
    static double rows[MOST_ROWS][MOST_COLS];
    for (size_t i = g->gl_pathc; i > 0; i--)
        if (read_curve(g->gl_pathv[i - 1], 32, 0, 0, rows) > 2)
            return g->gl_pathv[i - 1];
    return NULL;
}

int main(void)
{
    const struct frame left = { 2.95, 5.2, -1.6, 1.3, 50, 366, 46, 320 };
    const struct frame right = { 2.95, 5.2, -1.6, 1.3, 400, 716, 46, 320 };
    glob_t g;
    const char *path = glob("bench/results/*.tsv", 0, NULL, &g) ? NULL : newest(&g);
    if (!path) {
        fprintf(stderr, "tokens.c: no record with cases T<tokens>_kda32\n");
        return 1;
    }
    svg_begin(720, 400, "Time against tokens on one GPU",
              "Forward and backward of KDA and GDN with 32 and 96 heads. From sixteen "
              "thousand tokens on the time is nearly proportional to the tokens.");
    panel(path, &left, 32);
    panel(path, &right, 96);
    svg_text(4, 16, "start", "soft", "ms");
    for (int p = 0; p < PASSES; p++) {
        const double x = 50 + 170 * p + 25 * (p == 2);
        char style[64];
        snprintf(style, sizeof style, "stroke:%s;stroke-width:2", pass[p].ink);
        svg_line(x, 384, x + 22, 384, style);
        svg_text(x + 28, 388, "start", "", "%s", pass[p].name);
    }
    svg_text(716, 16, "end", "soft", "solid: KDA, dashed: GDN");
    svg_end();
    globfree(&g);
    return 0;
}
