"""mathematics.py -- draws the figures of Part I (the mathematics).

Book: chapters 00 to 13.
"""
import math
import re

from plot import Frame, points, printed_rows
from svg import (arrow, box, dot, example, figure, line, mono, rect, rows_of,
                 soft, text)

# The keys, values, betas and log2 decays of the worked example.
TOKENS = list(zip(*map(example, ("ex_k", "ex_v", "ex_beta", "ex_log2_decay"))))


# ---- 00
@figure(720, 392)
def journey():
    def label(y, name, chapters):
        text(4, y, name)
        soft(4, y + 16, chapters)

    def boxes(y, count, h, ink):
        """Draws `count` boxes per rank."""
        w = (200 - (count - 1) * 4) / count
        for r in range(3):
            for c in range(count):
                box(left[r] + c * (w + 4), y, w, h, ink)

    left, number = (96, 304, 512), "\u2080\u2081\u2082"
    thirds = [(r, c, left[r] + 32 + c * 68) for r in range(3) for c in range(3)]
    for r in range(3):
        text(left[r] + 100, 16, "GPU %d" % r, "middle")
    label(40, "tokens", "chapter 01")
    for r, c, _ in thirds:
        for t in range(8):
            rect(left[r] + c * 68 + t * 8, 32, 6.5, 14,
                 "fill:var(--wash-d);stroke:var(--d);stroke-width:.7")
    label(84, "chunks", "02 to 04")
    boxes(76, 3, 20, "a")
    for _, _, x in thirds:
        arrow(x, 50, x, 73, "d")
        mono(x, 91, "M, h")
    label(134, "one map", "05, 06")
    boxes(126, 1, 24, "a")
    for r, c, x in thirds:
        if c == 0:
            mono(left[r] + 100, 143, "S \u2192 M%s S + h%s" % (number[r], number[r]))
        arrow(x, 98, left[r] + 70 + c * 30, 124, "a")
    label(192, "exchange", "07")
    for x0, x1, y in (246, 334, 196), (216, 524, 200), (454, 542, 196):
        arrow(x0, 152, x1, y, "b")
    boxes(204, 1, 24, "b")
    for r, state in enumerate(("starts from 0", "S = h\u2080",
                               "S = M\u2081 h\u2080 + h\u2081")):
        mono(left[r] + 100, 221, state)
    label(262, "outputs", "04, 08")
    boxes(254, 3, 20, "c")
    for _, c, x in thirds:
        mono(x, 269, "o")
        if c < 2:
            arrow(x + 26, 264, x + 40, 264, "c")
    label(312, "gradients", "09 to 13")
    boxes(304, 3, 20, "line")
    for r, c, x in thirds:
        mono(x, 319, "gradients")
        if r and c == 2:
            arrow(left[r] - 2, 338, left[r - 1] + 100, 338, "b")
    soft(96, 362, "In backward, transposed maps are sent from later GPUs to earlier "
         "GPUs.")
    soft(96, 382, "14 to 16: convolutions, scans, other models. 17 to 20: speed, "
         "precision, clusters.")


@figure(720, 330)
def nesting():
    def at(part):
        return 100 + part * 610

    def row(y, what, how, *pieces):
        """Draws one row. Each piece is a tuple of start, end, colour and name."""
        text(4, y + 11, what)
        soft(4, y + 25, how)
        for start, end, ink, name in pieces:
            box(at(start), y, at(end) - at(start) - 1.5, 22, ink, name)

    def equal(n, ink, name):
        return [(i / n, (i + 1) / n, ink, name) for i in range(n)]

    def spread(y, start, end):
        """Joins a piece's ends to those of the next row, which shows it enlarged."""
        line(at(start), y, at(0), y + 18, "soft", "stroke-dasharray:2 3")
        line(at(end), y, at(1), y + 18, "soft", "stroke-dasharray:2 3")

    row(8, "sequences", "documents", (0, 0.7, "d", "sequence 0"),
        (0.7, 1, "d", "sequence 1"))
    row(48, "ranks", "GPUs", (0, 0.5, "c", "rank 0"), (0.5, 1, "c", "rank 1"))
    row(88, "segments", "of one rank", (0, 0.5, "a", "segment 0"),
        (0.5, 0.7, "a", "segment 1"), (0.7, 1, "a", "segment 2"))
    spread(112, 0, 0.5)
    row(132, "strips", "share a GPU", *equal(4, "a", "strip"))
    spread(156, 0.25, 0.5)
    row(176, "chunks", "C = 64 tokens", *equal(8, "b", "chunk"))
    dashed = "fill:none;stroke:var(--ink);stroke-width:1.5;stroke-dasharray:5 3"
    rect(at(0) - 2, 172, at(0.5) - at(0), 30, dashed)
    rect(at(0.5) + 1, 172, at(0.5) - at(0) - 1, 30, dashed)
    soft(at(0.25), 216, "window 0: its kernels start first", "middle")
    soft(at(0.75), 216, "window 1", "middle")
    spread(222, 0.375, 0.5)
    row(242, "subchunks", "16 tokens", *equal(4, "b", "subchunk"))
    spread(266, 0.5, 0.75)
    row(286, "tokens", "", *equal(16, "d", ""))


# ---- 01
@figure(720, 392)
def step():
    """Draws states of the recurrence; the larger |number|, the darker its cell."""
    def state(x, y, name):
        text(x + 48, y - 8, name, "middle")
        for i in range(2):
            for v in range(2):
                rect(x + 48 * v, y + 34 * i, 48, 34,
                     "fill:var(--%s);fill-opacity:%.2f;stroke:var(--line)" % (
                         "b" if S[i][v] < 0 else "a", 0.55 * min(abs(S[i][v]) / 2, 1)))
                mono(x + 48 * v + 24, y + 34 * i + 21, "%.2f" % (S[i][v] or 0))

    S = [[0, 0], [0, 0]]
    for t, (k, v, beta, decay) in enumerate(TOKENS):
        y = 46 + 122 * t
        text(4, y + 30, "token %d" % t)
        soft(4, y + 48, "k (%.1f, %.1f)" % tuple(k))
        state(110, y, "" if t else "before")
        S = [[2 ** decay[i] * x for x in S[i]] for i in range(2)]
        arrow(212, y + 34, 316, y + 34)
        soft(264, y + 26, "fade rows by", "middle")
        mono(264, y + 50, "%.2f, %.2f" % (2 ** decay[0], 2 ** decay[1]))
        state(322, y, "" if t else "faded, S'")
        e = [v[j] - S[0][j] * k[0] - S[1][j] * k[1] for j in range(2)]
        S = [[S[i][j] + beta * k[i] * e[j] for j in range(2)] for i in range(2)]
        arrow(424, y + 34, 576, y + 34)
        soft(500, y + 26, "add %.2f k times" % beta, "middle")
        mono(500, y + 50, "e = %.2f, %.2f" % tuple(e))
        state(582, y, "" if t else "after")


# ---- 02
@figure(720, 300)
def gate():
    def x(t):
        return 60 + t * 2.5

    def y(G):
        return 40 - G * 13

    rows = points("gates", float)
    for k in range(0, 16, 5):
        line(60, y(-k), 700, y(-k))
        soft(52, y(-k) + 4, "%d" % -k, "end")
    for c in range(5):
        line(x(64 * c), 30, x(64 * c), 250, "soft", "stroke-dasharray:2 4")
        if c < 4:
            soft(x(64 * c + 32), 22, "chunk %d" % c, "middle")
    path = "".join("%s%.1f %.1f" % ("L" if t % 64 else "M", x(t + 0.5), y(G))
                   for t, (_, G) in enumerate(rows))
    print('<path d="%s" style="fill:none;stroke:var(--a);stroke-width:1.8"/>' % path)
    for t, (g, _) in enumerate(rows):
        rect(x(t) + .4, 40, 1.7, -g * 13, "fill:var(--b);stroke:none")
    soft(380, 286, "token", "middle")
    text(60, 286, "bars: g; line: G, both in base two")
    for t in range(0, 257, 64):
        soft(x(t), 268, "%d" % t, "middle")


# ---- 03
@figure(720, 290)
def solve():
    n, s, y = 6, 30, 50

    def column(x0, name, wash, known):
        for i in range(n):
            rect(x0, y + i * s, 60, s, "fill:%s;stroke:var(--line)" % (
                "var(--wash-%s)" % wash if i < known else "none"))
            mono(x0 + 30, y + i * s + s / 2 + 4, "%s%d" % (name, i))

    text(20 + n * s / 2, 34, "I + L", "middle")
    for i in range(n):
        for j in range(n):
            fill = "var(--wash-%s)" % ("c" if i == j else "a") if j <= i else "none"
            rect(20 + j * s, y + i * s, s, s, "fill:%s;stroke:var(--line)" % fill)
            if i == j:
                mono(20 + j * s + s / 2, y + i * s + s / 2 + 4, "1")
    rect(20, y + 3 * s, n * s, s, "fill:none;stroke:var(--b);stroke-width:2")
    column(220, "x", "b", 3)
    text(250, 34, "unknown", "middle")
    text(305, y + n * s / 2 + 4, "=", "middle")
    column(330, "b", "d", n)
    text(360, 34, "known", "middle")
    text(430, y + 30, "Row 3 reads:")
    mono(430, y + 54, "L30 x0 + L31 x1 + L32 x2 + x3 = b3", "start")
    text(430, y + 84, "so x3 follows from the rows above it,")
    text(430, y + 104, "and no state is needed: L and b come")
    text(430, y + 124, "from this chunk alone.")
    soft(20, y + n * s + 34, "L_ij: how strongly the key of token i reads what token j "
         "wrote. Red: already solved.")


def cut_triangle(first, n):
    """Cuts the triangle of rows [first, first + 2n): draws the n x n square below its
    diagonal, then cuts the two triangles that remain."""
    side, x, y = 6.2, 60 + first * 6.2, 34 + first * 6.2
    ink = {32: "a", 16: "b", 8: "c"}.get(n, "d")
    rect(x, y + n * side, n * side, n * side,
         "fill:var(--wash-%s);stroke:var(--%s);stroke-width:.8" % (ink, ink))
    if n >= 8:
        mono(x + n / 2 * side, y + n * 1.5 * side + 4, "%d" % n)
    if n >= 4:
        dot(x + n * side - 3, y + n * side + 3, 2.6 if n >= 8 else 1.6, ink)
    if n > 1:
        cut_triangle(first, n // 2)
        cut_triangle(first + n, n // 2)


@figure(720, 460)
def squares():
    rect(60, 34, 64 * 6.2, 64 * 6.2, "fill:none;stroke:var(--line)")
    for t in range(0, 65, 16):
        soft(52, 34 + t * 6.2 + 4, "%d" % t, "end")
        soft(60 + t * 6.2, 26, "%d" % t, "middle")
    cut_triangle(0, 32)
    text(52, 284, "row i", "end")
    text(310, 26, "column j", "middle")
    text(480, 70, "The square of 32:")
    text(480, 92, "rows 32 to 63 begin with")
    text(480, 112, "the anchor a, row 32;")
    text(480, 132, "columns 0 to 31 are earlier.")
    mono(480, 166, "G_i - a  <= 0", "start")
    mono(480, 186, "a - G_j  <= 0", "start")
    text(480, 220, "so both factors are at most 1,")
    text(480, 240, "and the square is a product")
    text(480, 260, "of two small matrices.")


# ---- 04
@figure(720, 290)
def chain():
    for c, x in enumerate((20, 386)):
        text(x + 150, 24, "chunk %d" % c, "middle")
        box(x, 34, 310, 214, "line")
        box(x + 10, 64, 62, 30, "a", "S")
        arrow(x + 72, 79, x + 92, 79, "a")
        box(x + 94, 64, 92, 30, "a", "v = u - w S")
        arrow(x + 186, 79, x + 204, 79, "a")
        box(x + 206, 64, 98, 30, "a", "\u039bS + kg\u1d40 v")
        arrow(x + 40, 96, x + 40, 150, "c")
        box(x + 10, 154, 74, 30, "c", "qg S")
        arrow(x + 140, 96, x + 140, 150, "c")
        box(x + 100, 154, 84, 30, "c", "Aqk v")
        arrow(x + 47, 186, x + 84, 208, "c")
        arrow(x + 140, 186, x + 112, 208, "c")
        box(x + 76, 210, 50, 30, "c", "o")
    arrow(324, 79, 394, 79, "a")
    soft(20, 276, "Here v is v_new, and \u039b is the decay over the chunk.")


# ---- 05: how the two tokens of rank 0 change a column of the state (eq. 1.3)
def two_tokens(column):
    """Applies tokens 0 and 1 to column 0 of a state, and returns the new column."""
    for k, v, beta, decay in TOKENS[:2]:
        S = [2 ** d * x for d, x in zip(decay, column)]
        e = v[0] - S[0] * k[0] - S[1] * k[1]
        column = [x + beta * p * e for x, p in zip(S, k)]
    return column


class Plane:
    """A plane in which a column of the state is a point: row 0 is the horizontal
    coordinate. (0, 0) is at (x, y), and `unit` is the length of 1."""

    def __init__(self, x, y, unit):
        self.x, self.y, self.unit = x, y, unit

    def at(self, S):
        return self.x + S[0] * self.unit, self.y - S[1] * self.unit

    def axes(self, low, high):
        line(*self.at((low[0], 0)), *self.at((high[0], 0)))
        line(*self.at((0, low[1])), *self.at((0, high[1])))
        soft(self.at((high[0], 0))[0], self.y - 6, "row 0", "end")
        soft(self.x + 6, self.at((0, high[1]))[1] + 8, "row 1")

    def numbers(self, low, high, step):
        """Writes the multiples of `step`, except 0, along both axes. A margin in the
        page's colour separates the numbers from the grid lines under them."""
        for v in [k * step for k in range(-4, 5) if k]:
            if low[0] <= v <= high[0]:
                text(self.at((v, 0))[0], self.y + 14, "%g" % v, "middle", "soft halo")
            if low[1] <= v <= high[1]:
                text(self.x - 5, self.at((0, v))[1] + 4, "%g" % v, "end", "soft halo")

    def grid(self, moved, ink):
        for k in range(-2, 3):
            for a, b in (((-2, k), (2, k)), ((k, -2), (k, 2))):
                line(*self.at(moved(a)), *self.at(moved(b)), ink,
                     "stroke-width:%d" % (1 if k else 2))

    def dot(self, S, ink, name, dx, dy):
        """Draws the point S; writes its name and coordinates at an offset (dx, dy)."""
        x, y = self.at(S)
        line(x, y, x + dx, y + dy, "soft")
        dot(x, y, 4.5, ink)
        text(x + dx + (-3 if dx < 0 else 3), y + dy + 4,
             "%s (%.4g, %.4g)" % (name, *S), "end" if dx < 0 else "start")


@figure(720, 330)
def affine():
    before, after = Plane(155, 165, 52), Plane(522, 60, 130)
    S, h = (1, 0.5), two_tokens((0, 0))                # S: the first column of S_in
    for plane, low, high, step, moved, ink in (
            (before, (-2.5, -2.5), (2.5, 2.5), 1, lambda column: column, "a"),
            (after, (-1.2, -1.6), (0.9, 0.4), 0.5, two_tokens, "b")):
        plane.axes(low, high)
        plane.grid(moved, ink)
        plane.numbers(low, high, step)
    before.dot(S, "c", "S", 70, -62)
    after.dot(h, "ink", "h_ext", -90, 50)
    after.dot(two_tokens(S), "c", "M S + h_ext", 12, -66)
    arrow(*after.at(h), *after.at(two_tokens((1, 0))))
    arrow(*after.at(h), *after.at(two_tokens((0, 1))))
    arrow(306, 165, 392, 165, "soft")
    text(349, 155, "two tokens", "middle")
    soft(155, 315, "initial states of rank 0", "middle")
    soft(530, 315, "the states after two tokens", "middle")


CURVES = (("no decay", "c"), ("gates \u2212|N|/1024", "a"), ("\u2212|N|/128", "d"),
          ("\u2212|N|/16", "b"), ("logsigmoid", "soft"))


@figure(720, 330)
def survival():
    def x(t):
        return 60 + t * (460 / 1024)

    for e in range(0, 9, 2):
        line(60, 30 + 30 * e, 520, 30 + 30 * e)
        soft(52, 34 + 30 * e, "1e-%d" % e if e else "1", "end")
    soft(4, 14, "\u2016M\u2016 / \u221aK")
    soft(x(0), 292, "0", "middle")
    for r in range(1, 5):
        soft(x(256 * r), 292, "%d" % (256 * r), "middle")
        line(x(256 * r), 24, x(256 * r), 276, more="stroke-width:2")
        soft(x(256 * r - 128), 292, "rank %d" % (r - 1), "middle")
    rows = points("survival", float)
    for c, (name, ink) in enumerate(CURVES):
        at = [(x(t), 30 - 30 * (math.log10(alive) if alive > 1e-8 else -8))
              for curve, t, alive in rows if curve == c]
        print('<polyline style="fill:none;stroke:var(--%s);stroke-width:2" points="%s"/>'
              % (ink, "".join("%.1f,%.1f " % point for point in at)))
        end, low = at[-1]
        down = low + (10 if c else 0)
        text(end + 8, down if low < 262 else 200 if ink == "soft" else 244, name)
    soft(290, 318, "number of the token, in one sequence on four ranks", "middle")


# ---- 06: four packed sequences on three ranks
@figure(720, 250)
def plan():
    def x(t):
        return 30 + t * 22

    segments = points("segments")
    for n in range(4):
        own = [segment for segment in segments if segment[0] == n]
        text((x(own[0][1]) + x(own[-1][2])) / 2, 26, "sequence %d" % n, "middle")
    for n, begin, end, last, maps in segments:
        for t in range(begin, end):
            rect(x(t), 40, 22, 34, "fill:var(--wash-%s);stroke:var(--line)" % "abcd"[n])
            mono(x(t) + 11, 61, "%d" % t)
        rect(x(begin) + 1, 40, x(end) - x(begin) - 2, 34,
             "fill:none;stroke:var(--%s);stroke-width:2" % "abcd"[n])
        mono(x(end) - 6, 120,
             ("", "computes h_ext", "computes h_ext and M")[maps], "end")
        if not last:
            arrow(x(end) - 30, 88, x(end) + 30, 88, "abcd"[n])
    for r, (begin, before, after, count, chunks) in enumerate(points("ranks")):
        line(x(begin), 34, x(begin), 232, "ink", "stroke-dasharray:3 3")
        text(x(begin) + 10, 156, "rank %d" % r)
        mono(x(begin) + 10, 178, "pre_num_ranks %d" % before, "start")
        mono(x(begin) + 10, 196, "post_num_ranks %d" % after, "start")
        mono(x(begin) + 10, 214, "%d segment%s, %d chunks of 4"
             % (count, "s" * (count != 1), chunks), "start")
    line(x(30), 34, x(30), 232, "ink", "stroke-dasharray:3 3")


# ---- 07: four forms of the exchange, drawn to scale, measured on four H200s
class Timelines:
    """`us` has times in us of the messages `state`, `map`, `block` and `gather`, of the
    map products `apply` and `compose`, and of the passes `sum` and `main`."""
    R, BLOCKS = 4, 4

    def __init__(self):
        self.us = {name: float(us) for name, us, *_ in
                   rows_of("book/data/exchange.tsv", header=True)}
        self.sum, self.arrows = self.us["sum"], []      # drawn after the bars

    def x(self, t):
        return 92 + (t - self.sum + 60) * 1.62

    def arrow(self, y0, r, t0, to, t1, head=True):
        self.arrows.append((self.x(t0), y0 + 22 * r + 17, self.x(t1), y0 + 22 * to + 4,
                            head))

    def bar(self, y, start, end, ink, wash="wash-"):
        start = max(start, self.sum - 60)
        if end > start:
            rect(self.x(start), y + 3, self.x(end) - self.x(start), 14,
                 "fill:var(--%s%s);stroke:var(--%s)" % (wash, ink, ink))

    def head(self, y0):
        for r in range(self.R):
            y = y0 + 22 * r
            soft(84, y + 14, "rank %d" % r, "end")
            line(self.x(self.sum - 60), y + 10, self.x(self.sum + 325), y + 10)
            self.bar(y, 0, self.sum, "a")

    def main_pass(self, y0, r, start):
        self.bar(y0 + 22 * r, start, self.sum + 325, "c")
        mono(self.x(self.sum + 325) - 6, y0 + 22 * r + 14,
             "+%.0f \u00b5s" % (start - self.sum), "end")

    def gather(self, y0):
        got = self.sum + self.us["gather"]
        self.head(y0)
        for r in range(self.R):
            folded = got + max(r - 1, 0) * self.us["apply"]
            self.bar(y0 + 22 * r, self.sum, got, "b")
            self.bar(y0 + 22 * r, got, folded, "b", "")
            self.main_pass(y0, r, folded)

    def chain(self, y0, blocks):
        """Draws a chain in which each rank sends the state S in `blocks` messages. A
        message waits only for its own columns and for the wire, not for all of S."""
        message = self.us["block" if blocks > 1 else "state"]
        wire = (self.us["map"] - self.us["state"]) / blocks       # of one message
        ready = [self.sum] * blocks   # time at which the sender has block b
        self.head(y0)
        self.main_pass(y0, 0, self.sum)
        for r in range(1, self.R):
            free, wire_free = self.sum, 0
            for b in range(blocks):
                sent = max(ready[b], wire_free)
                here, wire_free = sent + message, sent + wire
                self.arrow(y0, r - 1, sent, r, here, b in (0, blocks - 1))
                start, free = max(here, free), here
                if r < self.R - 1:
                    free = start + self.us["apply"] / blocks
                    self.bar(y0 + 22 * r, start, free, "b", "")
                ready[b] = free
            self.main_pass(y0, r, free)

    def scan(self, y0):
        """Draws comm/form/scan.c. In the round with distance d, rank r sends map W to
        rank r + d. W is composed of map r and up to d - 1 maps before it. Map X is
        composed of all maps before map r, so its h is the initial state of rank r."""
        self.head(y0)
        W, state, d = [self.sum] * self.R, [self.sum] * self.R, 1
        while d < self.R:
            sent = W.copy()
            for r in range(d, self.R):
                here = max(sent[r - d] + self.us["map"], sent[r])
                self.arrow(y0, r - d, sent[r - d], r, here)
                sent_again = 2 * d <= self.R - 1 - r
                W[r] = state[r] = here + self.us["compose"] * (sent_again + (d > 1))
                self.bar(y0 + 22 * r, here, W[r], "b", "")  # if d = 1, X is a copy of W
            d *= 2
        for r in range(self.R):
            self.main_pass(y0, r, state[r])


@figure(720, 532)
def timelines():
    t = Timelines()
    t.gather(26)
    t.chain(146, 1)
    t.chain(266, t.BLOCKS)
    t.scan(386)
    for x1, y1, x2, y2, head in t.arrows:
        (arrow if head else line)(x1, y1, x2, y2, "ink")
    text(4, 20, "All-gather and fold")
    text(4, 140, "Chain")
    text(4, 260, "Chain, pipelined over four blocks of V")
    text(4, 380, "Scan")
    soft(92, 496, "Measured, in \u00b5s. To send a state: %(state).1f; a map: "
         "%(map).1f; a quarter of a state: %(block).1f; the all-gather: %(gather).1f."
         % t.us)
    soft(92, 514, "To apply a map: %(apply).1f; to compose two: %(compose).1f. Cut "
         "off: the maps' pass, %(sum).0f, and the main pass, %(main).0f." % t.us)


# ---- 08
@figure(720, 262)
def program():
    at, wide = (70, 180, 290, 400, 520), (110, 110, 110, 120, 190)
    titles = "1 front end", "2 factors", "3 map", "4 exchange", "5 scan, output"
    for x, w, title in zip(at, wide, titles):
        text(x + w / 2, 24, title, "middle")
    for r in range(3):
        y = 42 + 66 * r
        text(4, y + 25, "rank %d" % r)
        box(at[0], y, wide[0] - 2, 40, "d", "q k g G")
        box(at[1], y, wide[1] - 2, 40, "d", "A w u kg qg")
        if r < 2:
            box(at[2], y, wide[2] - 2, 40, "a", "h_ext, M" if r else "h_ext")
        box(at[3], y, wide[3] - 2, 40, "b", "gets S_in" if r else "gives h_ext")
        box(at[4], y, wide[4] - 2, 40, "c", "S, v_new, o")
        if r < 2:
            arrow(at[3] + 60, y + 42, at[3] + 60, y + 64)
    soft(70, 254, "A rank waits for other ranks only in step 4.")


@figure(720, 306)
def strips():
    """A bar's length is its step's number of operations (chapter 08), in millions."""
    C, K, V, count, heads, SMs = 64, 128, 128, 4, 32, 132
    factors = (4 * C * C * K + 2 * C * C * (K + V)) / 1e6
    maps, scan = 4 * C * K * (K + V) / 1e6, (6 * C * K * V + 2 * C * C * V) / 1e6

    def steps(y, t, *bars):
        """Draws steps one after another, and returns where the last step ends."""
        for operations, ink, name in bars:
            box(76 + 13.2 * t, y, 13.2 * operations - 2, 24, ink, name)
            t += operations
        return t

    def processors(y, busy):
        for i in range(SMs):
            ink = "c" if i < busy else "line"
            rect(76 + 4.6 * i, y, 4, 10, "fill:var(--%s)" % ink)
        soft(76, y + 26, "%d heads, %d of %d processors busy" % (heads, busy, SMs))

    text(70, 41, "whole", "end")
    t = steps(24, 0, (count * factors, "d", "2 factors"), (count * scan, "c", "5 scan"))
    mono(76 + 13.2 * t - 2, 82, "%.1f" % t, "end")
    processors(56, heads)
    for s in range(count):
        y = 104 + 38 * s
        text(70, y + 17, "strip %d" % s, "end")
        t = steps(y, 0, (factors, "d", "2"), (maps, "a", "3 map"))
        if s < count - 1:
            x = 76 + 13.2 * t - 1
            arrow(x, y + 24, x, y + 38, "b")
        t = steps(y, t, (scan, "c", "5 scan"))
    mono(76 + 13.2 * t + 8, 121, "%.1f" % t, "start")
    processors(264, count * heads)


# ---- 09
@figure(720, 262)
def walks():
    for c in range(4):
        soft(154 + c * 156, 18, "chunk %d" % c, "middle")
    for y, back in ((42, False), (158, True)):
        text(4, y + 24, "backward" if back else "forward")
        for c in range(4):
            x, before = 96 + c * 156, 96 + (c - 1) * 156 + 118
            box(x, y, 116, 40, "b" if back else "a",
                "\u039b - w\u1d40 kg" if back else "\u039b - kg\u1d40 w")
            mono(x + 4, y + 56, "w", "start")
            mono(x + 114, y + 56, "kg", "end")
            if c:
                mono(x - 20, y - 8, "dS" if back else "S")
                if back:
                    arrow(x - 2, y + 20, before, y + 20, "b")
                else:
                    arrow(before, y + 20, x - 2, y + 20, "a")
            mono(x + 34, y + 76, "do" if back else "u")
            arrow(x + 34, y + 64, x + 34, y + 42, "soft")
            mono(x + 84, y + 76, "dU" if back else "o, v")
            arrow(x + 84, y + 42, x + 84, y + 64, "soft")
    soft(96, 256, "Here v is v_new. w belongs to the start of its chunk, kg to the "
         "end, in both directions.")


# ---- 10
PATHS = ("states", "dq1, dks, dw", "a", "qkG"), \
    ("u and w", "d(beta v), d(beta k~), dA", "b", "kvbG"), \
    ("inverse", "dL", "d", ""), ("pairs", "dq2, dk2, dkt", "c", "qkbG")


@figure(720, 304)
def paths():
    def row(i):
        return 44 + 66 * i

    soft(10, 22, "from chapter 09")
    soft(200, 22, "through")
    soft(610, 22, "gradient of")
    box(10, row(0), 128, 34, "ink", "dO, h, dS, dU")
    box(10, row(1), 128, 34, "ink", "dU")
    box(10, row(3), 128, 34, "ink", "dAqk")
    for i, name in enumerate(("q", "k", "v", "beta", "G")):
        box(610, 38 + 52 * i, 100, 34, "ink", name)
    for p, (name, gives, ink, inputs) in enumerate(PATHS):
        y = row(p)
        box(200, y, 220, 34, ink, gives)
        text(206, y - 5, name)
        if p != 2:
            arrow(140, y + 17, 198, y + 17)
        if p:
            arrow(310, row(p - 1) + 36, 310, y - 2)
        for c in inputs:
            arrow(422, y + 17, 608, 38 + 52 * "qkvbG".index(c) + 8 + 6 * p, ink)
    soft(318, row(1) - 8, "dw")
    soft(318, row(2) - 8, "dA")
    soft(318, row(3) - 8, "dL")


@figure(720, 366)
def leaveout():
    rows = printed_rows("10-leaveout", "left out")
    with open("tests/judge/tolerance.def", encoding="utf-8") as file:
        allowed = float(re.search(r"\(GATES, .*, (.*)\)", file.read())[1])
    f = Frame(-1.05, 1.75, -16.5, 1.2, 70, 560, 20, 320)
    f.rows(4)
    for row in rows:
        f.column(abs(row[0]), "%g" % row[0])
    for column, ink, dash in ((2, "a", "none"), (3, "a", "5 4"), (4, "b", "none"),
                              (5, "b", "5 4")):
        f.curve([(row[0], row[column]) for row in rows], ink, dash)
    line(f.x(0.09), f.y(allowed), 560, f.y(allowed), "soft", "stroke-dasharray:1 3")
    f.name(allowed, 4, "limit in bf16", "soft")
    f.name(rows[-1][4], 18, "bf16, left out")
    f.name(rows[-1][2], 4, "double, left out")
    f.name(10, 0, "dashed: let in")
    f.axes("gate of every token", "error of dg")


# ---- 11
@figure(720, 250)
def folds():
    def fold(y, first, to, ink, start, product):
        step = 1 if first < to else -1
        for r in range(first, to, step):
            a, b = 112 + r * 132, 112 + (r + step) * 132
            arrow(a, y, b - 6 * step, y, ink)
            mono((a + b) / 2, y - 7, start % r if r == first else product % (r, r))

    for r, ink in enumerate(("line", "a", "d", "b", "line")):
        box(60 + r * 132, 96, 104, 44, ink)
        text(112 + r * 132, 115, "rank %d" % r, "middle")
        mono(112 + r * 132, 132, "M%d, h%d, dh%d" % (r, r, r))
    text(60, 24, "forward: the state that rank 3 begins with")
    fold(66, 0, 3, "a", "S = h%d", "M%d S + h%d")
    text(60, 226, "backward: the gradient that rank 1 ends with")
    fold(186, 4, 1, "b", "dS = dh%d", "M%d\u1d40 dS + dh%d")


# ---- 12
@figure(720, 236)
def compress():
    edges = 150, 300, 410, 560, 700
    names = "rest of sequence 3", "sequence 4", "sequence 5", "start of sequence 6"
    text(4, 40, "tokens of the rank")
    text(4, 106, "h_in, forward")
    text(4, 160, "h_kept")
    text(4, 212, "h_in, backward")
    line(150, 8, 150, 54, "ink", "stroke-dasharray:3 3")
    line(700, 8, 700, 54, "ink", "stroke-dasharray:3 3")
    for s, name in enumerate(names):
        x, w, ink = edges[s] + 2, edges[s + 1] - edges[s] - 4, "c" if s else "b"
        box(x, 20, w, 28, "a", name)
        box(x, 88, w, 28, ink, "h0 [%d], or 0" % (3 + s) if s else "from the exchange")
        box(x, 194, w, 28, ink, "given again" if s else "the copy")
    box(152, 142, 146, 26, "b", "row 0")
    arrow(225, 117, 225, 140, "b")
    arrow(225, 169, 225, 192, "b")
    soft(236, 134, "compress")
    soft(236, 186, "expand")


# ---- 13
@figure(720, 256)
def mirror():
    box(10, 40, 112, 42, "d", "2 dv_local")
    box(10, 122, 150, 42, "d", "1 G u w kg qg")
    box(290, 40, 112, 42, "a", "3 dh_ext, M")
    box(430, 40, 112, 42, "b", "4 exchange")
    box(290, 122, 252, 42, "d", "1 states and v_new again, 2 dAqk")
    box(582, 40, 128, 42, "c", "5 reverse: dS")
    box(582, 122, 128, 42, "c", "6 dq dk dv dg")
    box(582, 204, 128, 42, "c", "7 raw inputs")
    for at in ((124, 61, 288, 61), (162, 132, 288, 76), (162, 143, 288, 143),
               (404, 61, 428, 61), (544, 61, 580, 61), (544, 143, 580, 143),
               (646, 84, 646, 120), (646, 166, 646, 202)):
        arrow(*at)
    soft(290, 184, "needs nothing from the exchange: runs beside it")
    text(10, 26, "one rank's backward")
