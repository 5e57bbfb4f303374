/* parts.c -- a figure of chapter 18: time and lower bounds of each part of a pass.
 *
 * Times are read from book/data/forward-steps.tsv, backward-steps.tsv and
 * backward-plan.tsv. Floors of whole passes come from the output of book/clusters.c. */
#include "svg.h"

#include <stdlib.h>
#include <string.h>

static double x(double ms) { return 172 + ms * 112; }

static void bars(double y, const char *name, double floor, double own, double measured)
{
    svg_text(164, y + 14, "end", "", "%s", name);
    svg_rect(x(0), y, x(measured) - x(0), 18, "fill:var(--wash-a);stroke:var(--a)");
    svg_rect(x(0), y + 4, x(own) - x(0), 10, "fill:var(--a);fill-opacity:.55");
    if (floor > 0)
        svg_rect(x(0), y + 6, x(floor) - x(0), 6, "fill:var(--ink)");
    svg_text(x(measured) + 6, y + 14, "start", "soft", "%.2f", measured);
}

/* Draws the rows of a table: name, bytes, own bytes, ..., measured milliseconds. */
static double table(const char *file, const char *const *names, double y, double *own,
                    double *measured)
{
    char line[256], *cell[6];
    FILE *f = fopen(file, "r");
    int n = -1;
    while (f && fgets(line, sizeof line, f)) {
        if (*line == '#' || n++ < 0)
            continue;
        int k = 0;
        for (char *p = strtok(line, "\t"); p && k < 6; p = strtok(NULL, "\t"))
            cell[k++] = p;
        if (k >= 5 && !strncmp(cell[0], "all", 3)) {
            *own = atof(cell[2]);
            *measured = atof(cell[k - 1]);
            break;
        }
        if (k < 5)
            continue;
        bars(y, names[n - 1], 0, atof(cell[2]), atof(cell[k - 1]));
        *own += atof(cell[2]);
        *measured += atof(cell[k - 1]);
        y += 24;
    }
    if (f)
        fclose(f);
    return y;
}

static double value(const char *name)
{
    char line[256];
    double v = 0;
    FILE *f = fopen("build/book/example.txt", "r");
    while (f && fgets(line, sizeof line, f))
        if (*line == '@' && !strncmp(line + 1, name, strlen(name)))
            v = atof(line + 1 + strlen(name));
    if (f)
        fclose(f);
    return v;
}

int main(void)
{
    static const char *const forward[] = { "chunk_prepare", "scan" };
    static const char *const backward[] = { "G, u, w, kg, qg", "h, v_new by the scan",
                                            "dAqk, dv_local", "reverse scan",
                                            "d of q k v g beta", "norms and gate" };
    static const char *const plan[] = { "states", "reverse", "finish" };
    double own = 0, measured = 0;
    svg_begin(720, 486, "Floor, own bytes and measured time of each part",
              "Bars for the two kernels of forward, their sum, the six steps of "
              "backward and their sum. Backward's steps are close to their own bytes, "
              "and their sum is far above the floor of the pass.");
    for (int ms = 0; ms <= 4; ms++) {
        svg_line(x(ms), 20, x(ms), 450, "stroke:var(--line)");
        svg_text(x(ms), 14, "middle", "soft", "%d ms", ms);
    }
    double y = table("book/data/forward-steps.tsv", forward, 28, &own, &measured);
    bars(y, "forward", value("18/floor_forward"), own, measured);
    own = measured = 0;
    y = table("book/data/backward-steps.tsv", backward, y + 44, &own, &measured);
    bars(y, "backward", value("18/floor_backward"), own, measured);
    own = measured = 0;
    y = table("book/data/backward-plan.tsv", plan, y + 44, &own, &measured);
    bars(y, "backward, new plan", value("18/floor_backward"), own, measured);
    svg_text(172, 474, "start", "soft",
             "thin: the floor of the pass; inner: its own bytes; outer: measured");
}
