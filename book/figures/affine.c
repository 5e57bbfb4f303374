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

/* Coordinates from -2.6 to 2.6 become a square of 270 units; row 0 is horizontal. */
static double px(double x0, double a) { return x0 + 135 + a * 52; }
static double py(double b) { return 165 - b * 52; }

static void grid(double x0, int tokens, const char *ink)
{
    for (int k = -2; k <= 2; k++)
        for (int way = 0; way < 2; way++) {
            double a[2] = { way ? k : -2, way ? -2 : k },
                   b[2] = { way ? k : 2, way ? 2 : k };
            char style[96];
            for (int t = 0; t < tokens; t++) {
                token(t, 0, a);
                token(t, 0, b);
            }
            snprintf(style, sizeof style, "stroke:%s;stroke-width:%s", ink,
                     k ? "1" : "2");
            svg_line(px(x0, a[0]), py(a[1]), px(x0, b[0]), py(b[1]), style);
        }
}

static void dot(double x0, const double S[2], const char *ink, const char *name,
                double dx, double dy)
{
    svg_dot(px(x0, S[0]), py(S[1]), 4.5, ink);
    svg_text(px(x0, S[0]) + dx, py(S[1]) + dy, "start", "", "%s", name);
}

int main(void)
{
    double zero[2] = { 0, 0 }, one[2] = { -2, 2 }, h[2] = { 0, 0 }, to[2] = { -2, 2 };
    for (int t = 0; t < 2; t++) {
        token(t, 0, h);
        token(t, 0, to);
    }
    svg_begin(720, 330, "The affine map of two tokens",
              "Left: a square grid of possible start states with the origin and a "
              "corner of the grid. "
              "Right: the same grid after two tokens, squeezed to a narrow slanted "
              "band and moved "
              "so that the origin is at h_ext.");
    for (int side = 0; side < 2; side++) {
        const double x0 = 20 + side * 400;
        svg_line(px(x0, -2.5), py(0), px(x0, 2.5), py(0), "stroke:var(--line)");
        svg_line(px(x0, 0), py(-2.5), px(x0, 0), py(2.5), "stroke:var(--line)");
    }
    grid(20, 0, "var(--a)");
    grid(420, 2, "var(--b)");
    dot(20, zero, "var(--ink)", "0", 8, 16);
    dot(20, one, "var(--c)", "S", 8, -8);
    dot(420, h, "var(--ink)", "h_ext", 26, -14);
    dot(420, to, "var(--c)", "M S + h_ext", -30, -12);
    svg_arrow(312, 165, 408, 165, "var(--soft)");
    svg_text(360, 155, "middle", "", "two tokens");
    svg_text(155, 315, "middle", "soft", "states rank 0 may start with");
    svg_text(555, 315, "middle", "soft", "where its tokens take them");
    svg_end();
    return 0;
}
