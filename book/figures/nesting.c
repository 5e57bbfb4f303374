/* nesting.c -- the second figure of chapter 00: sequence, ranks, chunks and tokens. */
#include "svg.h"

static const double LEFT = 100, WIDTH = 610;

static double at(double part) { return LEFT + part * WIDTH; }

static void piece(double y, double from, double to, const char *ink, const char *name)
{
    svg_box(at(from), y, at(to) - at(from) - 1.5, 22, ink, name);
}

/* Draws lines from the ends of a piece to the next row, where the piece is enlarged. */
static void spread(double y, double from, double to)
{
    svg_line(at(from), y, at(0), y + 18, "stroke:var(--soft);stroke-dasharray:2 3");
    svg_line(at(to), y, at(1), y + 18, "stroke:var(--soft);stroke-dasharray:2 3");
}

static void name(double y, const char *what, const char *how)
{
    svg_text(4, y + 11, "start", "", "%s", what);
    svg_text(4, y + 25, "start", "soft", "%s", how);
}

int main(void)
{
    svg_begin(720, 330, "How sequences, ranks, segments, strips, chunks and subchunks "
              "nest",
              "A batch of two sequences on two ranks gives three segments. One segment "
              "is cut into four strips, one strip into four chunks, one chunk into "
              "four subchunks of sixteen tokens. A window is a run of chunks of every "
              "strip, launched together.");
    name(8, "sequences", "documents");
    piece(8, 0, 0.7, "d", "sequence 0");
    piece(8, 0.7, 1, "d", "sequence 1");
    name(48, "ranks", "GPUs");
    piece(48, 0, 0.5, "c", "rank 0");
    piece(48, 0.5, 1, "c", "rank 1");
    name(88, "segments", "of one rank");
    piece(88, 0, 0.5, "a", "segment 0");
    piece(88, 0.5, 0.7, "a", "segment 1");
    piece(88, 0.7, 1, "a", "segment 2");
    spread(112, 0, 0.5);
    name(132, "strips", "share a GPU");
    for (int i = 0; i < 4; i++)
        piece(132, i / 4.0, (i + 1) / 4.0, "a", "strip");
    spread(156, 0.25, 0.5);
    name(176, "chunks", "C = 64 tokens");
    for (int i = 0; i < 8; i++)
        piece(176, i / 8.0, (i + 1) / 8.0, "b", "chunk");
    svg_rect(at(0) - 2, 172, at(0.5) - at(0), 30, "fill:none;stroke:var(--ink);"
             "stroke-width:1.5;stroke-dasharray:5 3");
    svg_rect(at(0.5) + 1, 172, at(0.5) - at(0) - 1, 30, "fill:none;stroke:var(--ink);"
             "stroke-width:1.5;stroke-dasharray:5 3");
    svg_text(at(0.25), 216, "middle", "soft", "window 0: its kernels start first");
    svg_text(at(0.75), 216, "middle", "soft", "window 1");
    spread(222, 0.375, 0.5);
    name(242, "subchunks", "16 tokens");
    for (int i = 0; i < 4; i++)
        piece(242, i / 4.0, (i + 1) / 4.0, "b", "subchunk");
    spread(266, 0.5, 0.75);
    name(286, "tokens", "");
    for (int i = 0; i < 16; i++)
        piece(286, i / 16.0, (i + 1) / 16.0, "d", "");
}
