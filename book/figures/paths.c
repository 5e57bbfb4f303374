/* paths.c -- a figure of chapter 10: four paths from the gradients to the inputs. */
#include "svg.h"

static const struct path {
    const char *name, *gives, *ink;
    const char *to;                      /* inputs that the path reaches */
} paths[] = {
    { "states", "dq1, dks, dw", "a", "qkG" },
    { "u and w", "d(beta v), d(beta k~), dA", "b", "kvbG" },
    { "inverse", "dL", "d", "" },
    { "pairs", "dq2, dk2, dkt", "c", "qkbG" },
};
static const char inputs[] = "qkvbG";
static const char *const names[] = { "q", "k", "v", "beta", "G" };
enum { PATHS = 4, INPUTS = 5 };

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
    svg_box(10, row(0), 128, 34, "ink", "dO, h, dS, dU");
    svg_box(10, row(1), 128, 34, "ink", "dU");
    svg_box(10, row(3), 128, 34, "ink", "dAqk");
    for (int i = 0; i < INPUTS; i++)
        svg_box(610, input(i), 100, 34, "ink", names[i]);
    for (int p = 0; p < PATHS; p++) {
        const double y = row(p);
        svg_box(200, y, 220, 34, paths[p].ink, paths[p].gives);
        svg_text(206, y - 5, "start", "", "%s", paths[p].name);
        if (p != 2) svg_arrow(140, y + 17, 198, y + 17, "var(--ink)");
        if (p) svg_arrow(310, row(p - 1) + 36, 310, y - 2, "var(--ink)");
        char ink[16];
        snprintf(ink, sizeof ink, "var(--%s)", paths[p].ink);
        for (const char *c = paths[p].to; *c; c++)
            for (int i = 0; i < INPUTS; i++)
                if (inputs[i] == *c)
                    svg_arrow(422, y + 17, 608, input(i) + 8 + 6 * p, ink);
    }
    svg_text(318, row(1) - 8, "start", "soft", "dw");
    svg_text(318, row(2) - 8, "start", "soft", "dA");
    svg_text(318, row(3) - 8, "start", "soft", "dL");
}
