/* schedules.c -- a figure of chapter 18: strips, windows and a walk in time.
 *
 * The lengths are not to scale. */
#include "svg.h"

/* Draws windows 0 to 3 of chunk_prepare, and below each the kernel that follows it. */
static void windows(double y, const char *then, const char *ink)
{
    static const double width[] = { 150, 120, 95, 75 };
    double x = 90, free_at = 0;
    for (int w = 0; w < 4; w++) {
        svg_box(x, y, width[w] - 3, 22, "d", "prepare %d", w);
        x += width[w];
        const double from = x > free_at ? x : free_at;
        svg_box(from, y + 28, 0.8 * width[w] - 3, 22, ink, "%s %d", then, w);
        free_at = from + 0.8 * width[w];
    }
}

int main(void)
{
    svg_begin(720, 276, "Strips, windows and a walk",
              "Strips: maps of four strips side by side, a fold, four scans side by "
              "side. Windows: prepare 1 runs beside scan 0, and so on. Walk: the map "
              "grows beside prepare in the same way.");
    svg_text(4, 30, "start", "", "strips");
    svg_text(4, 148, "start", "", "windows");
    svg_text(4, 222, "start", "", "walk");
    svg_box(90, 14, 147, 22, "d", "prepare");
    for (int s = 0; s < 4; s++) {
        if (s < 3) svg_box(242, 14 + 26 * s, 147, 22, "a", "map %d", s);
        svg_box(450, 14 + 26 * s, 147, 22, "c", "scan %d", s);
    }
    svg_box(394, 14, 51, 22, "b", "fold");
    windows(132, "scan", "c");
    windows(206, "map", "a");
    svg_text(90, 270, "start", "soft", "time runs to the right");
}
