/* log.c -- the figure of appendix B: how far each outcome was from its prediction.
 *
 * Each point is a row of bench/LOG.md, above "Over ranks", with both of these times. */
#include "plot.h"

enum { MOST_PAIRS = 96, MOST_CELLS = 8, MOST_TIMES = 4 };

struct pair { double ratio; int backward, gdn; char what[40]; };

/* Reads the times in a cell, such as "0.20, 0.90 ms"; a range "1.85 to 1.91 ms" becomes
 * 1.88. Copies the unit. Returns the number of times; 0 if "less" follows them. */
static int times_in(const char *cell, double *times, char unit[8])
{
    int n = 0;
    char *end;
    for (double t = strtod(cell, &end); end != cell && n < MOST_TIMES;
         t = strtod(cell, &end)) {
        times[n++] = t;
        if (!strncmp(end, " to ", 4)) {
            times[n - 1] = (t + strtod(end + 4, &end)) / 2;
            cell = end;
            break;
        }
        cell = end + strspn(end, ", ");
    }
    cell += strspn(cell, " ");
    snprintf(unit, 8, "%.*s", (int)strcspn(cell, " ,;"), cell);
    const int is_time = !strcmp(unit, "ms") || !strcmp(unit, "µs");
    const char *less = strstr(cell, " less");
    return is_time && !(less && less < cell + strcspn(cell, ";")) ? n : 0;
}

/* Splits a row into cells, trims blanks, and returns the number of cells. */
static int cells_of(char *line, char *cells[MOST_CELLS])
{
    int n = 0;
    for (char *p = strtok(line, "|\n"); p && n < MOST_CELLS; p = strtok(NULL, "|\n")) {
        char *last = p + strlen(p);
        while (last > p && last[-1] == ' ') *--last = 0;
        cells[n++] = p + strspn(p, " ");
    }
    return n;
}

static int begins(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

static int read_log(struct pair pairs[MOST_PAIRS])
{
    FILE *f = fopen("bench/LOG.md", "r");
    char line[4096], *cells[MOST_CELLS];
    int n = 0, backward = 0, gdn = 0, predicted = -1, outcome = -1;
    while (f && fgets(line, sizeof line, f)) {
        if (begins(line, "## Over ranks")) break;
        if (begins(line, "## Backward")) backward = 1;
        if (!begins(line, "| ")) continue;
        const int count = cells_of(line, cells);
        if (!strcmp(cells[0], "asked")) {
            for (int i = 0; i < count; i++) {
                if (!strcmp(cells[i], "predicted")) predicted = i;
                if (!strcmp(cells[i], "measured")) outcome = i;
            }
            continue;
        }
        /* A row that begins with "the same" or "both" has the previous row's model. */
        if (strstr(cells[0], "GDN") || strstr(cells[0], "one gate a head")) gdn = 1;
        else if (!begins(cells[0], "the same") && !begins(cells[0], "both")) gdn = 0;
        double p[MOST_TIMES], o[MOST_TIMES];
        char unit[8], other[8];
        if (predicted < 0 || outcome >= count) continue;
        const int times = times_in(cells[predicted], p, unit);
        if (!times || times != times_in(cells[outcome], o, other)) continue;
        if (strcmp(unit, other)) continue;
        for (int i = 0; i < times && n < MOST_PAIRS; i++) {
            pairs[n] = (struct pair){ o[i] / p[i], backward, gdn, "" };
            snprintf(pairs[n++].what, sizeof pairs[0].what, "%s", cells[0]);
        }
    }
    if (f) fclose(f);
    return n;
}

/* Prints a summary of the rows of one pass, forward or backward. */
static void sum_up(const struct pair *pairs, int n, int backward, double x)
{
    int all = 0, near = 0, faster = 0;
    for (int i = 0; i < n; i++) {
        if (pairs[i].backward != backward) continue;
        all++;
        if (fabs(log(pairs[i].ratio)) <= log(1.1)) near++;
        else if (pairs[i].ratio < 1) faster++;
    }
    svg_text(x, 34, "start", "", "%s: %d predictions",
             backward ? "backward" : "forward", all);
    svg_text(x, 52, "start", "soft", "%d within a tenth, %d slower, %d faster", near,
             all - near - faster, faster);
}

int main(void)
{
    static struct pair pairs[MOST_PAIRS];
    const int n = read_log(pairs);
    const struct frame f = { 0, 1, log10(0.75), log10(7.5), 46, 708, 64, 300 };
    const double step = (f.x1 - f.x0 - 24) / (n > 1 ? n - 1 : 1);
    static const double at[] = { 1, 1.5, 2, 3, 5, 7 };
    svg_begin(720, 346, "Measured time divided by the predicted one, row by row",
              "Most outcomes are slower than predicted. The first prediction of all "
              "was off by the most; of the later ones half are right to a tenth.");
    svg_text(4, 14, "start", "soft", "measured / predicted");
    for (int i = 0; i < 6; i++) {
        const double y = frame_y(&f, at[i]);
        svg_line(f.x0, y, f.x1, y,
                 i ? "stroke:var(--line)"
                   : "stroke:var(--ink);stroke-dasharray:5 4");
        svg_text(f.x0 - 8, y + 4, "end", "soft", "%g", at[i]);
    }
    int first = 0;
    while (first < n && !pairs[first].backward) first++;
    const double cut = f.x0 + 12 + (first - 0.5) * step;
    svg_line(cut, 22, cut, f.y1, "stroke:var(--line)");
    sum_up(pairs, n, 0, f.x0 + 110);
    sum_up(pairs, n, 1, cut + 8);
    for (int i = 0; i < n; i++) {
        const double x = f.x0 + 12 + i * step, y = frame_y(&f, pairs[i].ratio);
        svg_dot(x, y, 3.4, pairs[i].gdn ? "var(--b)" : "var(--a)");
        if (pairs[i].ratio > 1.6)
            svg_text(x + 9, y + (y < f.y0 + 30 ? 12 : 4), "start", "", "%s",
                     pairs[i].what);
    }
    svg_text((f.x0 + f.x1) / 2, f.y1 + 20, "middle", "soft",
             "the rows of the tables that name both times, in their order");
    svg_rect(f.x0 + 12, f.y1 + 32, 10, 10, "fill:var(--a)");
    svg_text(f.x0 + 28, f.y1 + 41, "start", "soft", "one gate per channel (KDA)");
    svg_rect(f.x0 + 212, f.y1 + 32, 10, 10, "fill:var(--b)");
    svg_text(f.x0 + 228, f.y1 + 41, "start", "soft", "one gate per head (GDN)");
    svg_end();
    return 0;
}
