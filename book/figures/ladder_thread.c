/* ladder_thread.c -- chapter 17: one column of the state, and its inputs. */
#include "svg.h"

/* Draws a matrix and marks one column or one row. */
static void matrix(double x, double y, double w, double h, const char *name,
                   const char *size, int column)
{
    svg_rect(x, y, w, h, "fill:var(--code);stroke:var(--line)");
    if (column) svg_rect(x + w * 0.6, y, 12, h, "fill:var(--wash-b);stroke:var(--b)");
    else svg_rect(x, y + h * 0.45, w, 9, "fill:var(--wash-a);stroke:var(--a)");
    svg_text(x + w / 2, y - 8, "middle", "", "%s", name);
    svg_text(x + w / 2, y + h + 16, "middle", "soft", "%s", size);
}

int main(void)
{
    svg_begin(
        720, 250, "What one thread of the first rung keeps and reads",
        "The new values are u minus w times S. Column v of the result needs column "
        "v of u, column v of the state S, and every row of w. One thread keeps "
        "column v of the state; 128 threads keep the whole state.");
    matrix(30, 50, 130, 70, "v_new", "64 tokens by 128", 1);
    svg_text(175, 90, "middle", "", "=");
    matrix(190, 50, 130, 70, "u", "64 by 128", 1);
    svg_text(335, 90, "middle", "", "-");
    matrix(350, 50, 130, 70, "w", "64 by 128 keys", 0);
    matrix(510, 30, 130, 130, "S", "128 keys by 128", 1);
    svg_text(650, 60, "start", "", "thread v");
    svg_text(650, 78, "start", "soft", "owns this");
    svg_text(650, 94, "start", "soft", "column");
    svg_text(350, 168, "start", "soft", "all 128 threads read");
    svg_text(350, 184, "start", "soft", "the same row of w");
    svg_text(30, 168, "start", "soft", "thread v writes column v");
    svg_text(30, 218, "start", "",
             "One block per head: 128 threads, four warps, one "
             "multiprocessor.");
    svg_text(30, 238, "start", "soft",
             "The other 36 of an H200's 132 multiprocessors "
             "have no head when there are 96.");
}
