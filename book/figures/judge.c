/* judge.c -- the figure of users.md: what the judge does with a case. */
#include "svg.h"

static void box(double x, double y, double w, const char *ink, const char *line,
                const char *more)
{
    svg_box(x, y, w, 50, ink, "");
    svg_text(x + w / 2, y + 21, "middle", "", "%s", line);
    svg_text(x + w / 2, y + 39, "middle", "", "%s", more);
}

int main(void)
{
    svg_begin(720, 182, "What the judge does with a case",
              "A case goes to your function and to the recurrence in double. Their "
              "outputs are compared, per head and rank, and the report names the first "
              "element that is wrong.");
    box(4, 66, 140, "d", "a case", "sizes, options, arrays");
    box(192, 12, 160, "b", "your function", "bf16 or fp32");
    box(192, 120, 160, "a", "the recurrence", "token by token, double");
    box(412, 66, 140, "c", "compare", "per head and rank");
    box(580, 66, 136, "d", "the report", "first wrong element");
    svg_arrow(146, 82, 189, 40, "var(--b)");
    svg_arrow(146, 100, 189, 142, "var(--a)");
    svg_arrow(354, 40, 409, 82, "var(--b)");
    svg_arrow(354, 142, 409, 100, "var(--a)");
    svg_arrow(554, 91, 577, 91, "var(--ink)");
}
