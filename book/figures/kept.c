/* kept.c -- the figure of chapter 12: bytes that each mode saves per token and head.
 *
 * KDA with T = 8192, H = HV, K = V = 128, C = 64. */
#include "svg.h"

enum { K = 128, V = 128, C = 64, T = 8192 };
struct piece { const char *name; double bytes; };

/* The pieces of the light mode, of recompute and of save-all, one after another; the
 * numbers say how many pieces each mode has. */
static const struct piece factors[] = {
    { "", 4.0 * K * V / T }, { "", 12 }, { "Aqk", 2 * C }, { "A", 2 * C },
    { "q", 2 * K }, { "k", 2 * K }, { "G", 4 * K }, { "w", 2 * K }, { "qg", 2 * K },
    { "kg", 2 * K }, { "u", 2 * V }, { "v_new", 2 * V }, { "h", 2.0 * K * V / C } };
static const struct piece chunks[] = {
    { "", 4.0 * K * V / T }, { "", 12 }, { "k~", 2 * K }, { "kg", 2 * K },
    { "qg", 2 * K }, { "", 4.0 * K / C }, { "A", 5120.0 / C }, { "", 5120.0 / C },
    { "h", 2.0 * K * V / C }, { "v_new", 2 * V } };
static const int of_factors[] = { 4, 6, 13 }, of_chunks[] = { 1, 8, 10 };

static void rows(double y, const char *title, const struct piece *p, const int *count)
{
    static const char *const mode[] = { "light", "recompute", "save all" };
    svg_text(4, y - 8, "start", "", "%s", title);
    for (int m = 0; m < 3; m++, y += 32) {
        double at = 88, sum = 0;
        svg_text(4, y + 17, "start", "soft", "%s", mode[m]);
        for (int i = 0; i < count[m]; i++) {
            const double w = p[i].bytes * 0.185;
            svg_box(at, y, w > 2 ? w - 1 : w, 26, i < count[1] ? "a" : "c",
                    w > 14 ? p[i].name : "");
            at += w;
            sum += p[i].bytes;
        }
        svg_text(at + 6, y + 17, "start", "", "%.0f", sum);
    }
}

int main(void)
{
    svg_begin(720, 280, "What each mode of the saved block keeps",
              "Bytes per token and head. Format factors: light 276, recompute 788, "
              "save-all 3092. Format chunks: light 8, recompute 956, save-all 1724.");
    rows(26, "format factors, by tokens", factors, of_factors);
    rows(158, "format chunks, by chunks", chunks, of_chunks);
    svg_text(4, 272, "start", "soft", "Bytes per token and head. Unlabelled: "
             "initial state, rho, beta, decay and, after A, the triangle Aqk.");
}
