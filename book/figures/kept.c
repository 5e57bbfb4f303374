/* kept.c -- the figure of chapter 12: numbers that each mode saves per token and head.
 *
 * Book: chapter 12.  Checked by: make book-lint.  Next: book/figures/mirror.c.
 * The counts are for H = HV, K = V = 128, C = 64. */
#include "svg.h"

enum { K = 128, V = 128, C = 64, LEAST = 3, LESS = 5, MORE = 7 };
struct piece { const char *name; double n; };

static double stack(double y, const char *title, const struct piece *p, int n,
                    double at, const char *style)
{
    svg_text(8, y - 8, "start", "", "%s", title);
    for (int i = 0; i < n; i++) {
        const double w = p[i].n * 0.485;
        svg_rect(8 + at, y, w - 1, 36, style);
        if (w > 16)
            svg_text(8 + at + w / 2, y + 22, "middle", "mono", "%s", p[i].name);
        at += w;
    }
    return at;
}

int main(void)
{
    static const struct piece less[LESS] = {
        { "Aqk", C }, { "A", C }, { "", 3 }, { "q", K }, { "k", K } };
    static const struct piece more[MORE] = {
        { "G", K }, { "w", K }, { "qg", K }, { "kg", K }, { "u", V }, { "v_new", V },
        { "h", (double)K * V / C } };
    double least = 0, a = 0, b = 0;
    for (int i = 0; i < LEAST; i++)
        least += less[i].n;
    for (int i = 0; i < LESS; i++)
        a += less[i].n;
    for (int i = 0; i < MORE; i++)
        b += more[i].n;
    svg_begin(720, 276, "What each memory mode keeps",
              "Light keeps Aqk, A and three numbers. Recompute keeps q and k too. "
              "Save-all adds G, w, qg, kg, u, v_new and the states of all chunks, as "
              "large as two of them.");
    char title[80];
    snprintf(title, sizeof title, "light: %.0f numbers per token and head", least);
    stack(30, title, less, LEAST, 0, "fill:var(--wash-a);stroke:var(--a)");
    snprintf(title, sizeof title, "recompute: %.0f", a);
    stack(110, title, less, LESS, 0, "fill:var(--wash-a);stroke:var(--a)");
    snprintf(title, sizeof title, "save all: %.0f more", b);
    const double end =
        stack(190, title, less, LESS, 0, "fill:var(--wash-a);stroke:var(--a)");
    stack(190, "", more, MORE, end, "fill:var(--wash-c);stroke:var(--c)");
    svg_text(8, 258, "start", "soft", "H = HV, K = V = 128, C = 64. The sliver: rho of "
             "q and of k, and beta.");
    svg_end();
    return 0;
}
