/* step.c -- the figure of chapter 01: the state after each of the example's tokens.
 *
 * Computes each state from tokens.h by the recurrence; larger numbers are darker. */
#include "../tokens.h"
#include "svg.h"

#include <math.h>

static void state(double x, double y, double S[EX_K][EX_V], const char *name)
{
    svg_text(x + 48, y - 8, "middle", "", "%s", name);
    for (int i = 0; i < EX_K; i++)
        for (int v = 0; v < EX_V; v++) {
            const double part = fmin(fabs(S[i][v]) / 2, 1);
            svg_rect(x + 48 * v, y + 34 * i, 48, 34,
                     "fill:%s;fill-opacity:%.2f;stroke:var(--line)",
                     S[i][v] < 0 ? "var(--b)" : "var(--a)", 0.55 * part);
            svg_text(x + 48 * v + 24, y + 34 * i + 21, "middle", "mono", "%.2f",
                     S[i][v] == 0 ? 0 : S[i][v]);
        }
}

int main(void)
{
    double S[EX_K][EX_V] = { { 0 } };
    svg_begin(720, 392, "The state through three tokens",
              "For each of the three tokens: the state before, the state after its "
              "rows have faded, and the state after the correction under the key. "
              "Positive numbers are blue, negative ones red.");
    for (int t = 0; t < EX_T; t++) {
        const double y = 46 + 122 * t;
        double e[EX_V];
        svg_text(4, y + 30, "start", "", "token %d", t);
        svg_text(4, y + 48, "start", "soft", "k (%.1f, %.1f)", ex_k[t][0], ex_k[t][1]);
        state(110, y, S, t ? "" : "before");
        for (int i = 0; i < EX_K; i++)
            for (int v = 0; v < EX_V; v++)
                S[i][v] *= exp2(ex_log2_decay[t][i]);
        svg_arrow(212, y + 34, 316, y + 34, "var(--ink)");
        svg_text(264, y + 26, "middle", "soft", "fade rows by");
        svg_text(264, y + 50, "middle", "mono", "%.2f, %.2f",
                 exp2(ex_log2_decay[t][0]), exp2(ex_log2_decay[t][1]));
        state(322, y, S, t ? "" : "faded, S'");
        for (int v = 0; v < EX_V; v++)
            e[v] = ex_v[t][v] - S[0][v] * ex_k[t][0] - S[1][v] * ex_k[t][1];
        for (int i = 0; i < EX_K; i++)
            for (int v = 0; v < EX_V; v++)
                S[i][v] += ex_beta[t] * ex_k[t][i] * e[v];
        svg_arrow(424, y + 34, 576, y + 34, "var(--ink)");
        svg_text(500, y + 26, "middle", "soft", "add %.2f k times", ex_beta[t]);
        svg_text(500, y + 50, "middle", "mono", "e = %.2f, %.2f", e[0], e[1]);
        state(582, y, S, t ? "" : "after");
    }
}
