/* measured.c -- the README's figure: our time on 1, 2 and 4 GPUs; other systems' times.
 *
 * Book: none; README.md shows it.  Checked by: make book-lint.
 * Next: book/figures/scaling.c.
 * Numbers are read from bench/results/. All points at the left are from one run. */
#include "plot.h"
#include "records.h"

enum { CONDITIONS = 9 };

static const char *const columns[CONDITIONS] = { "stage", "variant", "model", "T",
                                                 "H", "ranks", "save", "gate",
                                                 "sequences" };

/* Returns the least time in ms of rows with values `want`; exits if there is no row. */
static double best(const char *record, const char *const want[CONDITIONS])
{
    static struct record r;
    char path[256];
    double least = 0;
    snprintf(path, sizeof path, "bench/results/%s.tsv", record);
    for (int more = record_open(&r, path); more && record_next(&r);) {
        int equal = 0;
        for (int k = 0; k < CONDITIONS; k++)
            equal += record_is(&r, columns[k], want[k]);
        const double ms = record_number(&r, "us") / 1e3;
        if (equal == CONDITIONS && (least == 0 || ms < least)) least = ms;
    }
    if (least == 0) {
        fprintf(stderr, "measured.c: %s: found no row of %s %s\n", path, want[0],
                want[1]);
        exit(1);
    }
    return least;
}

/* Draws one pass of KDA over 131072 tokens and 32 heads on 1, 2 and 4 GPUs. */
static void pass(const struct frame *f, const char *stage, const char *variant,
                 const char *name, const char *ink)
{
    static const char *const record = "2026-11-27c-51677d3b-4gpu";
    static const char *const ranks[] = { "1", "2", "4" };
    double ours[MOST_ROWS][MOST_COLS], ideal[MOST_ROWS][MOST_COLS];
    for (int i = 0; i < 3; i++) {
        ours[i][0] = ideal[i][0] = 1 << i;
        ours[i][1] = best(record, (const char *[]){ stage, variant, "kda", "131072",
                          "32", ranks[i], "recompute", "live", "1" });
        ideal[i][1] = ours[0][1] / (1 << i);
        svg_text(frame_x(f, 1 << i) + 4, frame_y(f, ours[i][1]) + (i == 2 ? 16 : -7),
                 "start", "mono", "%.2f", ours[i][1]);
    }
    curve(f, ideal, 3, 0, 1, "var(--soft)", "3 4");
    curve(f, ours, 3, 0, 1, ink, "none");
    svg_text(frame_x(f, 1) + 4, frame_y(f, ours[0][1]) + 37, "start", "", "%s", name);
    const double fla = best(record, (const char *[]){ stage, "fla_kda_cp4", "kda",
                            "131072", "32", "4", "recompute", "live", "1" });
    svg_rect(frame_x(f, 4) - 4, frame_y(f, fla) - 4, 8, 8, "fill:var(--d)");
    svg_text(frame_x(f, 4) + 8, frame_y(f, fla) + 4, "start", "mono", "FLA %.2f", fla);
}

struct bar { const char *name, *variant; };

/* Draws times as bars, relative to the first time; returns y of the next group. */
static double bars(double y, const char *title, const char *stage, const char *model,
                   const struct bar *b, int n)
{
    static const char *const record = "2026-11-27d-51677d3b-1gpu";
    const char *tokens = strcmp(model, "kda") == 0 ? "8192" : "32768";
    const char *heads = strcmp(model, "kda") == 0 ? "96" : "16";
    double first = 0;
    svg_text(430, y + 12, "start", "", "%s", title);
    y += 18;
    for (int i = 0; i < n; i++, y += 17) {
        const double ms = best(record, (const char *[]){ stage, b[i].variant, model,
                               tokens, heads, "1", "recompute", "live", "1" });
        if (i == 0)
            first = ms;
        svg_text(494, y + 11, "end", "soft", "%s", b[i].name);
        svg_rect(500, y, 15 * ms / first, 14, i ? "fill:var(--d)" : "fill:var(--a)");
        svg_text(506 + 15 * ms / first, y + 11, "start", "mono", "%.3f ms (%.1f)", ms,
                 ms / first);
    }
    return y + 8;
}

int main(void)
{
    const struct frame f = { -0.06, 0.66, 0, 1.5, 40, 330, 46, 270 };
    svg_begin(720, 346, "Measured times",
              "Left: KDA, 131072 tokens, 32 heads, forward and backward on 1, 2 and 4 "
              "GPUs, with ideal lines and flash-linear-attention on 4. Right: KDA and "
              "GDN on one GPU, as multiples of our time.");
    svg_text(40, 16, "start", "", "KDA, 131072 tokens, 32 heads");
    svg_text(40, 34, "start", "soft", "ms; dotted: ideal; squares: FLA");
    frame_rows(&f, 1);
    frame_powers(&f, 1, 4, 2);
    frame_axes(&f, "GPUs", NULL);
    pass(&f, "13_backward", "v4_scans_finish", "backward", "var(--b)");
    pass(&f, "08_forward", "v3_prepare_scan", "forward", "var(--a)");
    svg_text(430, 16, "start", "", "One GPU");
    svg_text(430, 34, "start", "soft", "ms (multiple of ours)");
    const struct bar kda_forward[] = { { "ours", "v5_one_kernel" },
                                       { "FlashKDA", "flashkda" },
                                       { "FLA", "fla_kda" } };
    const struct bar kda_backward[] = { { "ours", "v5_steps" }, { "FLA", "fla_kda" } };
    const struct bar gdn_forward[] = { { "ours", "v3_prepare_scan" },
                                       { "FlashQLA", "flash_qla, ready inputs, kept" },
                                       { "FLA", "fla_gdn" } };
    const struct bar gdn_backward[] = { { "ours", "v4_scans_finish" },
                                        { "FlashQLA", "flash_qla, ready inputs" },
                                        { "FLA", "fla_gdn" } };
    double y = bars(44, "KDA, 8192 tokens, 96 heads, forward", "08_forward", "kda",
                    kda_forward, 3);
    y = bars(y, "KDA, backward", "13_backward", "kda", kda_backward, 2);
    y = bars(y, "GDN, 32768 tokens, 16/32 heads, forward", "08_forward", "gdn",
             gdn_forward, 3);
    bars(y, "GDN, backward", "13_backward", "gdn", gdn_backward, 3);
}
