/* family.c -- the figure of chapter 16: the map of one token in each model. */
#include "svg.h"

enum { N = 6 };

/* Draws a diagonal matrix, or a full square for a matrix of low rank. */
static void matrix(double x, double y, const char *name, const char *how, int one_gate,
                   int rank_one, const char *write)
{
    svg_text(x, y - 26, "start", "", "%s", name);
    svg_text(x, y - 9, "start", "soft", "%s", how);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            const double shade = one_gate ? 0.5 : 0.25 + 0.12 * ((5 * i + 3) % N);
            if (i == j)
                svg_rect(x + 17 * j, y + 17 * i, 17, 17,
                         "fill:var(--a);fill-opacity:%.2f;stroke:var(--line)", shade);
            else
                svg_rect(x + 17 * j, y + 17 * i, 17, 17, "fill:%s;stroke:var(--line)",
                         rank_one ? "var(--wash-b)" : "none");
        }
    svg_text(x, y + 17 * N + 20, "start", "mono", "%s", write);
}

int main(void)
{
    svg_begin(720, 420, "The map of one token in six models",
              "Mamba-2 and GLA have a diagonal map, with one gate and with a gate a "
              "row. GDN, KDA, GDN-2 and DPLR add a correction of rank one that fills "
              "the matrix.");
    matrix(20, 52, "Mamba-2", "one gate per head", 1, 0, "+ k v'");
    matrix(260, 52, "GDN", "one gate, delta rule", 1, 1,
           "- beta k k', + beta k v'");
    matrix(500, 52, "GDN-2", "gates per row, two gates", 0, 1,
           "- k (b k)', + k (w v)'");
    matrix(20, 256, "GLA", "one gate per row", 0, 0, "+ k v'");
    matrix(260, 256, "KDA", "one gate per row, delta rule", 0, 1,
           "- beta k k', + beta k v'");
    matrix(500, 256, "DPLR, RWKV-7", "one gate per row", 0, 1, "+ b a', + k v'");
    svg_text(20, 412, "start", "soft", "blue: the gates on the diagonal; red: where "
             "the correction of rank one puts numbers");
}
