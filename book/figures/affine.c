/* affine.c -- the figure of chapter 05: how the two tokens of rank 0 change a state.
 *
 * A column of the state is a point of the plane; a token moves this point (eq. 1.3). */
#include "book/tokens.h"
#include "svg.h"

#include <math.h>

static void token(int t, int v, double S[2])
{
    double e = ex_v[t][v];
    for (int i = 0; i < 2; i++)
        S[i] *= exp2(ex_log2_decay[t][i]);
    for (int i = 0; i < 2; i++)
        e -= S[i] * ex_k[t][i];
    for (int i = 0; i < 2; i++)
        S[i] += ex_beta[t] * ex_k[t][i] * e;
}

/* A plane: row 0 of the column is horizontal. (0, 0) is drawn at (x, y), and `unit` is
 * the length of 1. */
struct plane { double x, y, unit; };

static double px(const struct plane *p, double a) { return p->x + a * p->unit; }
static double py(const struct plane *p, double b) { return p->y - b * p->unit; }

/* Draws both axes with a number every `step` from `low` to `high`, except at 0. */
static void axes(const struct plane *p, const double low[2], const double high[2],
                 double step)
{
    svg_line(px(p, low[0]), py(p, 0), px(p, high[0]), py(p, 0), "stroke:var(--line)");
    svg_line(px(p, 0), py(p, low[1]), px(p, 0), py(p, high[1]), "stroke:var(--line)");
    for (int k = -4; k <= 4; k++) {
        const double v = k * step;
        if (k && v >= low[0] && v <= high[0])
            svg_text(px(p, v), py(p, 0) + 14, "middle", "soft", "%g", v);
        if (k && v >= low[1] && v <= high[1])
            svg_text(px(p, 0) - 5, py(p, v) + 4, "end", "soft", "%g", v);
    }
    svg_text(px(p, high[0]), py(p, 0) - 6, "end", "soft", "row 0");
    svg_text(px(p, 0) + 6, py(p, high[1]) + 8, "start", "soft", "row 1");
}

static void grid(const struct plane *p, int tokens, const char *ink)
{
    for (int k = -2; k <= 2; k++)
        for (int way = 0; way < 2; way++) {
            double a[2] = { way ? k : -2, way ? -2 : k },
                   b[2] = { way ? k : 2, way ? 2 : k };
            for (int t = 0; t < tokens; t++) {
                token(t, 0, a);
                token(t, 0, b);
            }
            svg_line(px(p, a[0]), py(p, a[1]), px(p, b[0]), py(p, b[1]),
                     "stroke:%s;stroke-width:%d", ink, k ? 1 : 2);
        }
}

/* Draws a point and, `dx`, `dy` away, its name with the point's coordinates. */
static void dot(const struct plane *p, const double S[2], const char *ink,
                const char *name, double dx, double dy)
{
    const double x = px(p, S[0]), y = py(p, S[1]);
    svg_line(x, y, x + dx, y + dy, "stroke:var(--soft)");
    svg_dot(x, y, 4.5, ink);
    svg_text(x + dx + (dx < 0 ? -3 : 3), y + dy + 4, dx < 0 ? "end" : "start", "",
             "%s (%.4g, %.4g)", name, S[0], S[1]);
}

int main(void)
{
    const struct plane in = { 155, 165, 52 }, out = { 522, 60, 130 };
    const double low[2] = { -2.5, -2.5 }, high[2] = { 2.5, 2.5 };
    const double out_low[2] = { -1.2, -1.6 }, out_high[2] = { 0.9, 0.4 };
    const double S[2] = { 1, 0.5 };            /* the first column of S_in */
    double h[2] = { 0, 0 }, to[2] = { 1, 0.5 }, unit[2][2] = { { 1, 0 }, { 0, 1 } };
    for (int t = 0; t < 2; t++) {
        token(t, 0, h);
        token(t, 0, to);
        token(t, 0, unit[0]);
        token(t, 0, unit[1]);
    }
    svg_begin(720, 330, "The affine map of two tokens",
              "Left: a square grid of possible start states, with the first column of "
              "S_in. Right, enlarged 2.5 times: the same grid after two tokens, "
              "squeezed to a narrow slanted band and moved so that the origin is at "
              "h_ext. Two arrows from h_ext are the columns of M.");
    axes(&in, low, high, 1);
    axes(&out, out_low, out_high, 0.5);
    grid(&in, 0, "var(--a)");
    grid(&out, 2, "var(--b)");
    dot(&in, S, "var(--c)", "S", 70, -62);
    dot(&out, h, "var(--ink)", "h_ext", -90, 50);
    dot(&out, to, "var(--c)", "M S + h_ext", 12, -66);
    for (int i = 0; i < 2; i++)
        svg_arrow(px(&out, h[0]), py(&out, h[1]), px(&out, unit[i][0]),
                  py(&out, unit[i][1]), "var(--ink)");
    svg_arrow(306, 165, 392, 165, "var(--soft)");
    svg_text(349, 155, "middle", "", "two tokens");
    svg_text(155, 315, "middle", "soft", "states rank 0 may start with");
    svg_text(530, 315, "middle", "soft", "where its tokens take them");
}
