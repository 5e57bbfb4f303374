/* survival.c -- a figure of chapter 05: which share of the initial state remains.
 *
 * M is the product of the tokens' A_t = (I - beta k k^T) diag(exp g); K = 64. */
#include "svg.h"
#include "base/random.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { K = 64, T = 1024, CURVES = 5 };

static uint64_t seed;

static double normal(void) { return random_normal(&seed); }

static double M[K][K];

/* Computes M <- A_t M with a random unit key. Gates are -strength |N(0,1)|, or
 * logsigmoid(N(0,1)) if strength < 0. */
static void token(double strength)
{
    double k[K], length = 0, row[K];
    for (int i = 0; i < K; i++) {
        k[i] = normal();
        length += k[i] * k[i];
    }
    const double beta = 1 / (1 + exp(3 - normal()));
    memset(row, 0, sizeof row);
    for (int i = 0; i < K; i++) {
        const double z = normal();
        const double g = strength < 0 ? -log1p(exp(-z)) : -strength * fabs(z);
        k[i] /= sqrt(length);
        for (int p = 0; p < K; p++) {
            M[i][p] *= exp(g);
            row[p] += k[i] * M[i][p];
        }
    }
    for (int i = 0; i < K; i++)
        for (int p = 0; p < K; p++)
            M[i][p] -= beta * k[i] * row[p];
}

static double alive(void)
{
    double s = 0;
    for (int i = 0; i < K; i++)
        for (int p = 0; p < K; p++)
            s += M[i][p] * M[i][p];
    return sqrt(s / K);
}

static double px(int t) { return 60 + t * (460.0 / T); }
static double py(double a) { return 30 - 30 * (a > 1e-8 ? log10(a) : -8); }

int main(void)
{
    const double strength[CURVES] = { 0, 1.0 / 1024, 1.0 / 128, 1.0 / 16, -1 };
    const char *name[CURVES] = { "no decay", "gates \u2212|N|/1024", "\u2212|N|/128",
                                 "\u2212|N|/16", "logsigmoid" };
    const char *ink[CURVES] = { "var(--c)", "var(--a)", "var(--d)", "var(--b)",
                                "var(--soft)" };
    svg_begin(720, 330, "How much of the first state is alive",
              "Log scale. Without decay about a third is left after 1024 tokens "
              "because keys overwrite the state; "
              "with logsigmoid gates almost nothing is left after 30 tokens.");
    for (int e = 0; e <= 8; e += 2) {
        svg_line(60, 30 + 30 * e, 520, 30 + 30 * e, "stroke:var(--line)");
        svg_text(52, 34 + 30 * e, "end", "soft", e ? "1e-%d" : "1", e);
    }
    svg_text(4, 14, "start", "soft", "\u2016M\u2016 / \u221aK");
    svg_text(px(0), 292, "middle", "soft", "0");
    for (int r = 1; r <= 4; r++) {
        svg_text(px(r * T / 4), 292, "middle", "soft", "%d", r * T / 4);
        svg_line(px(r * T / 4), 24, px(r * T / 4), 276,
                 "stroke:var(--line);stroke-width:2");
        svg_text(px(r * T / 4 - T / 8), 292, "middle", "soft", "rank %d", r - 1);
    }
    for (int c = 0; c < CURVES; c++) {
        double y = 30, end = 0;
        seed = 5;
        memset(M, 0, sizeof M);
        for (int i = 0; i < K; i++)
            M[i][i] = 1;
        printf("<polyline style=\"fill:none;stroke:%s;stroke-width:2\" points=\"",
               ink[c]);
        for (int t = 0; t <= T; t++) {
            const double a = alive();
            if (t % 8 == 0 || a < 0.01) {
                end = px(t);
                y = py(a);
                printf("%.1f,%.1f ", end, y);
            }
            if (a < 1e-8)
                break;
            token(strength[c]);
        }
        printf("\"/>\n");
        if (y < 262)
            svg_text(end + 8, y + (c ? 10 : 0), "start", "", "%s", name[c]);
        else
            svg_text(end + 8, c == CURVES - 1 ? 200 : 244, "start", "", "%s", name[c]);
    }
    svg_text(290, 318, "middle", "soft",
             "number of the token, in one sequence on four ranks");
}
