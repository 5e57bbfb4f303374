/* paths.c -- a figure of chapter 10: the four paths from a chunk's gradients to inputs.
 *
 * Book: chapter 10.  Checked by: make book-lint.  Next: book/figures/leaveout.c. */
#include "svg.h"

static const struct path {
    const char *name, *gives, *ink, *wash;
    const char *to;                      /* inputs that the path reaches */
} paths[] = {
    { "states", "dq1, dks, dw", "var(--a)", "var(--wash-a)", "qkG" },
    { "u and w", "d(beta v), d(beta k~), dA", "var(--b)", "var(--wash-b)", "kvbG" },
    { "inverse", "dL", "var(--d)", "var(--wash-d)", "" },
    { "pairs", "dq2, dk2, dkt", "var(--c)", "var(--wash-c)", "qkbG" },
};
static const char inputs[] = "qkvbG";
static const char *const names[] = { "q", "k", "v", "beta", "G" };
enum { PATHS = 4, INPUTS = 5 };

static void box(double x, double y, double w, const char *what, const char *ink,
                const char *wash)
{
    char style[80];
    snprintf(style, sizeof style, "fill:%s;stroke:%s", wash, ink);
    svg_rect(x, y, w, 34, style);
    svg_text(x + w / 2, y + 22, "middle", "mono", "%s", what);
}

static double row(int i) { return 44 + 66 * i; }
static double input(int i) { return 38 + 52 * i; }

int main(void)
{
    svg_begin(720, 304, "From a chunk's gradients to the inputs, by four paths",
              "The states give to q, k and G; u and w to k, v, beta and G; the inverse "
              "passes dA on as dL; the pairs give to q, k, beta and G.");
    svg_text(10, 22, "start", "soft", "from chapter 09");
    svg_text(200, 22, "start", "soft", "through");
    svg_text(610, 22, "start", "soft", "gradient of");
    box(10, row(0), 128, "dO, h, dS, dU", "var(--ink)", "none");
    box(10, row(1), 128, "dU", "var(--ink)", "none");
    box(10, row(3), 128, "dAqk", "var(--ink)", "none");
    for (int i = 0; i < INPUTS; i++)
        box(610, input(i), 100, names[i], "var(--ink)", "none");
    for (int p = 0; p < PATHS; p++) {
        const double y = row(p);
        box(200, y, 220, paths[p].gives, paths[p].ink, paths[p].wash);
        svg_text(206, y - 5, "start", "", "%s", paths[p].name);
        if (p != 2) svg_arrow(140, y + 17, 198, y + 17, "var(--ink)");
        if (p) svg_arrow(310, row(p - 1) + 36, 310, y - 2, "var(--ink)");
        for (const char *c = paths[p].to; *c; c++)
            for (int i = 0; i < INPUTS; i++)
                if (inputs[i] == *c)
                    svg_arrow(422, y + 17, 608, input(i) + 8 + 6 * p, paths[p].ink);
    }
    svg_text(318, row(1) - 8, "start", "soft", "dw");
    svg_text(318, row(2) - 8, "start", "soft", "dA");
    svg_text(318, row(3) - 8, "start", "soft", "dL");
    svg_end();
    return 0;
}
