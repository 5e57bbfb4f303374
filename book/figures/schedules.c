/* schedules.c -- a figure of chapter 18: strips, windows and a walk in time.
 *
 * Book: chapter 18.  Checked by: make book-lint.  Next: backward_roles.c.
 * The lengths are not to scale. */
#include "svg.h"

static void bar(double x, double y, double w, const char *ink, const char *name)
{
    char style[80];
    snprintf(style, sizeof style, "fill:var(--wash-%s);stroke:var(--%s)", ink, ink);
    svg_rect(x, y, w - 3, 22, style);
    svg_text(x + (w - 3) / 2, y + 15, "middle", "mono", "%s", name);
}

/* Draws windows 0 to 3 of chunk_prepare, and below each the kernel that follows it. */
static void windows(double y, const char *then, const char *ink)
{
    static const double width[] = { 150, 120, 95, 75 };
    double x = 90, free_at = 0;
    for (int w = 0; w < 4; w++) {
        char name[32];
        snprintf(name, sizeof name, "prepare %d", w);
        bar(x, y, width[w], "d", name);
        x += width[w];
        const double from = x > free_at ? x : free_at;
        snprintf(name, sizeof name, "%s %d", then, w);
        bar(from, y + 28, 0.8 * width[w], ink, name);
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
    bar(90, 14, 150, "d", "prepare");
    for (int s = 0; s < 4; s++) {
        char name[32];
        snprintf(name, sizeof name, "map %d", s);
        if (s < 3) bar(242, 14 + 26 * s, 150, "a", name);
        snprintf(name, sizeof name, "scan %d", s);
        bar(450, 14 + 26 * s, 150, "c", name);
    }
    bar(394, 14, 54, "b", "fold");
    windows(132, "scan", "c");
    windows(206, "map", "a");
    svg_text(90, 270, "start", "soft", "time runs to the right");
    svg_end();
    return 0;
}
