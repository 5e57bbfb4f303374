/* family_rows.c -- the second figure of chapter 16: DPLR writes two rows per token. */
#include "svg.h"

int main(void)
{
    static const char *const head[] = { "u", "w", "v_new", "writes along", "q reads" };
    static const double x[] = { 150, 250, 350, 450, 570 };
    static const double w[] = { 92, 92, 92, 112, 92 };
    svg_begin(720, 236, "A chunk of DPLR as rows",
              "Each token has two rows. The first has u and w of its system and writes "
              "what it found along b. The second has v for u and zero for w, and "
              "writes along k; the query reads there.");
    for (int i = 0; i < 5; i++)
        svg_text(x[i] + w[i] / 2, 18, "middle", "", "%s", head[i]);
    for (int t = 0; t < 3; t++) {
        const double y = 30 + 64 * t;
        svg_text(4, y + 30, "start", "", "token %d", t);
        svg_text(138, y + 16, "end", "soft", "row %d", 2 * t);
        svg_text(138, y + 42, "end", "soft", "row %d", 2 * t + 1);
        const char *const first[] = { "u", "w", "x = u + w S", "b", "" };
        const char *const second[] = { "v", "0", "v", "k", "o" };
        for (int i = 0; i < 5; i++) {
            svg_box(x[i], y, w[i], 24, i < 4 ? "a" : "line", first[i]);
            svg_box(x[i], y + 26, w[i], 24, i != 1 ? "a" : "line", second[i]);
        }
    }
}
