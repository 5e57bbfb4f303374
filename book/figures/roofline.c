/* roofline.c -- the figure of chapter 17: the H200's roofline and the recorded variants.
 *
 * Book: chapter 17.  Checked by: make book-lint.  Next: none.
 * Points come from build/book/results/roofline.tsv (name, flop a byte, TFLOP/s), which
 * book/results.sh makes from bench/results/; without it the roof stands alone. */
#include "svg.h"

#include <math.h>
#include <string.h>

static const double copy = 4.3, tensor = 790;          /* TB/s, TFLOP/s, measured */

static double x(double intensity) { return 70 + (log10(intensity) + 0.5) * 150; }
static double y(double tflops) { return 300 - (log10(tflops) + 0.5) * 75; }

int main(void)
{
    FILE *f = fopen("build/book/results/roofline.tsv", "r");
    char name[64];
    double intensity, rate;
    int n = 0;
    svg_begin(720, 350, "Roofline of the H200",
              "Attainable rate against operations per byte: a slope of 4.3 TB/s up to 184 operations "
              "a byte, then a flat roof of 790 TFLOP/s. The forward pass of KDA has 132 operations "
              "a byte at its floor.");
    for (int e = 0; e <= 3; e++) {
        svg_line(x(pow(10, e)), 30, x(pow(10, e)), 310, "stroke:var(--line)");
        svg_text(x(pow(10, e)), 328, "middle", "soft", "%g", pow(10, e));
        svg_line(70, y(pow(10, e)), 640, y(pow(10, e)), "stroke:var(--line)");
        svg_text(62, y(pow(10, e)) + 4, "end", "soft", "%g", pow(10, e));
    }
    const double knee = tensor / copy;
    svg_line(x(0.4), y(0.4 * copy), x(knee), y(tensor), "stroke:var(--a);stroke-width:2");
    svg_line(x(knee), y(tensor), x(2000), y(tensor), "stroke:var(--a);stroke-width:2");
    svg_text(x(2), y(14), "end", "", "4.3 TB/s");
    svg_text(x(420), y(tensor) - 8, "start", "", "790 TFLOP/s");
    const double floor_ = 169301.0 / 1282;
    svg_line(x(floor_), y(floor_ * copy), x(floor_), 310, "stroke:var(--b);stroke-dasharray:4 3");
    svg_text(x(floor_) - 6, 290, "end", "soft", "KDA forward at its floor");
    while (f && fscanf(f, "%63s %lf %lf", name, &intensity, &rate) == 3) {
        printf("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" style=\"fill:var(--c)\"/>\n", x(intensity), y(rate));
        svg_text(x(intensity) + 7, y(rate) + 4, "start", "mono", "%s", name);
        n++;
    }
    if (!n)
        svg_text(330, 220, "middle", "soft", "no variant recorded yet");
    svg_text(355, 346, "middle", "soft", "operations a byte");
    svg_text(8, 22, "start", "soft", "TFLOP/s");
    if (f)
        fclose(f);
    svg_end();
    return 0;
}
