/* roofline.c -- the figure of chapter 18: a roofline plot of kernels and whole passes.
 *
 * Points come from build/book/results/roofline.tsv, which book/tables.py writes from
 * bench/results/: first "roof TB/s TFLOP/s", then rows of name, operations per byte,
 * TFLOP/s. Lines join chapter 17's eight kernels; five whole passes have names. */
#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PASSES = 5 };
/* The passes, and the position of each name relative to its dot. */
static const struct { const char *name, *says; double dx, dy; const char *anchor; }
    pass[PASSES] = {
        { "08/v1_stages", "forward, a thread per column", 10, 4, "start" },
        { "08/v2_stages", "forward, taught stages", 8, 14, "start" },
        { "08/v3_prepare_scan", "forward, fast", 8, 14, "start" },
        { "13/v2_stages", "backward, taught stages", 10, 4, "start" },
        { "13/v4_scans_finish", "backward, fast", 10, 4, "start" } };

static double x(double intensity) { return 60 + (log10(intensity) - 1) * 290; }
static double y(double tflops) { return 340 - log10(tflops) * 104; }

static void axes(double copy, double tensor)
{
    for (int e = 0; e <= 3; e++) {
        const double at = pow(10, e);
        if (e) svg_line(x(at), 24, x(at), 372, "stroke:var(--line)");
        if (e) svg_text(x(at), 390, "middle", "soft", "%g", at);
        svg_line(60, y(at), 700, y(at), "stroke:var(--line)");
        svg_text(52, y(at) + 4, "end", "soft", "%g", at);
    }
    const double knee = tensor / copy;
    svg_line(x(10), y(10 * copy), x(knee), y(tensor),
             "stroke:var(--ink);stroke-width:2");
    svg_line(x(knee), y(tensor), 700, y(tensor), "stroke:var(--ink);stroke-width:2");
    svg_text(x(15), y(15 * copy) + 22, "start", "", "memory: %.1f TB/s", copy);
    svg_text(x(1000) - 8, y(tensor) + 20, "end", "", "tensor cores: %.0f TFLOP/s",
             tensor);
    svg_text(380, 412, "middle", "soft", "operations per byte");
    svg_text(8, 16, "start", "soft", "TFLOP/s");
}

int main(void)
{
    FILE *f = fopen("build/book/results/roofline.tsv", "r");
    char name[64];
    double at, rate, before = 0;
    svg_begin(720, 424, "Roofline of the H200: eight rungs and five whole passes",
              "Attainable rate against operations per byte: a slope, the measured "
              "copy, and one roof, the measured product of matrices. The eight rungs "
              "of chapter 17 climb one vertical line from 0.8 TFLOP/s to memory's "
              "slope; of five whole passes the fast ones are near it too.");
    while (f && fscanf(f, "%63s %lf %lf", name, &at, &rate) == 3) {
        if (!strcmp(name, "roof")) axes(at, rate);
        if (!strncmp(name, "17/v", 4)) {
            if (before)
                svg_line(x(at), y(before), x(at), y(rate),
                         "stroke:var(--a);stroke-width:2");
            svg_dot(x(at), y(rate), 5, "var(--a)");
            const int rung = atoi(name + 4), even = rung % 2 == 0;
            svg_text(x(at) + (even ? 10 : -10), y(rate) + 4, even ? "start" : "end",
                     "mono", "%d", rung);
            before = rate;
        }
        for (int i = 0; i < PASSES; i++)
            if (!strcmp(name, pass[i].name)) {
                svg_dot(x(at), y(rate), 5, name[0] == '0' ? "var(--c)" : "var(--b)");
                svg_text(x(at) + pass[i].dx, y(rate) + pass[i].dy, pass[i].anchor, "",
                         "%s", pass[i].says);
            }
    }
}
