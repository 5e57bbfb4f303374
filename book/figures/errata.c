/* errata.c -- the figure of appendix A: the error that some wrong statements cause.
 *
 * The numbers come from the attributes `figure=` in book/A-errata.md. */
#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double x(double error) { return 150 + (log10(error) + 2) * 235; }

int main(void)
{
    static const struct { const char *name, *ink; } tensors[] = {
        { "o", "var(--ink)" }, { "dq", "var(--soft)" }, { "dk", "var(--a)" },
        { "dv", "var(--c)" }, { "dg", "var(--b)" }, { "dbeta", "var(--d)" } };
    char line[512];
    double y = 44;
    FILE *f = fopen("book/A-errata.md", "r");
    svg_begin(720, 300, "What errata cost",
              "For each statement with numbers, the relative error of outputs and "
              "gradients when it is implemented as written: from one per cent to twice "
              "the tensor's size.");
    for (int k = 0; k < 3; k++) {
        static const char *const ticks[] = { "1 %", "10 %", "100 %" };
        svg_line(x(pow(10, k - 2)), 26, x(pow(10, k - 2)), 240, "stroke:var(--line)");
        svg_text(x(pow(10, k - 2)), 256, "middle", "soft", "%s", ticks[k]);
    }
    svg_text(4, 256, "start", "soft", "relative error");
    while (f && fgets(line, sizeof line, f)) {
        char *no = strstr(line, "erratum no="), *p = strstr(line, "figure=\"");
        if (!no || !p || !strpbrk(p, "0123456789") || strstr(p, "as row"))
            continue;
        svg_text(142, y + 4, "end", "", "erratum %d", atoi(no + 11));
        int k = 0;
        for (p = strtok(p + 8, ",\""); p && k < 4; p = strtok(NULL, ",\""), k++) {
            char what[16] = "";
            double error = 0;
            if (sscanf(p, " %15s %lf", what, &error) != 2 || error <= 0)
                continue;
            for (int i = 0; i < 6; i++)
                if (!strcmp(tensors[i].name, what))
                    svg_dot(x(error), y, 4.5, tensors[i].ink);
        }
        y += 28;
    }
    for (int i = 0; i < 6; i++) {
        svg_dot(160 + 90 * i, 282, 4.5, tensors[i].ink);
        svg_text(172 + 90 * i, 286, "start", "", "%s", tensors[i].name);
    }
}
