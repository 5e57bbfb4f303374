"""plot.py -- draws curves over logarithmic axes from the output of book programs.

Book: chapters 02, 05, 06, 10, 17 to 20, B.
Numbers are read from build/book/example.txt, which the pages also show.
"""
import math
import re

from svg import dot, line, soft, text

NUMBERS = re.compile(r"( *[-+]?\d[\d.]*(e[-+]?\d+)?[ %]*)*")


def printed(section):
    """Returns the lines of a section, without named values (@name value)."""
    with open("build/book/example.txt", encoding="utf-8") as f:
        part = f.read().partition("== %s\n" % section)[2].partition("\n== ")[0]
    return [s for s in part.split("\n") if s[:1] != "@"]


def points(section, kind=int):
    """Returns a section's rows of numbers, as points.c or ladder.c printed them."""
    return [[kind(x) for x in s.split()] for s in printed("points-" + section) if s]


def printed_rows(section, after):
    """Returns a section's rows of numbers after the first line with text `after`."""
    lines, rows = iter(printed(section)), []
    next(s for s in lines if after in s)
    for s in lines:
        found = NUMBERS.match(s)[0].replace("%", " ").split()
        if len(found) > 2:
            rows.append([float(x) for x in found])
        elif rows:
            break
    return rows


class Frame:
    """A plot's frame: log10 of x and y at its edges, and the edges' coordinates."""

    def __init__(self, lx0, lx1, ly0, ly1, x0, x1, y0, y1):
        self.lx0, self.lx1, self.ly0, self.ly1 = lx0, lx1, ly0, ly1
        self.x0, self.x1, self.y0, self.y1 = x0, x1, y0, y1

    def x(self, v):
        return self.x0 + (math.log10(v) - self.lx0) / (self.lx1 - self.lx0) * \
            (self.x1 - self.x0)

    def y(self, v):
        at = (math.log10(v) - self.ly0) / (self.ly1 - self.ly0)
        return self.y1 - min(max(at, 0), 1) * (self.y1 - self.y0)

    def rows(self, step=1):
        """Draws a horizontal line at every `step`-th power of ten."""
        lowest = -2 if self.ly0 > -3 else 0     # powers below 10^lowest: 1e-N
        for e in range(math.ceil(self.ly0), math.floor(self.ly1) + 1, step):
            y = self.y(10 ** e)
            line(self.x0, y, self.x1, y)
            name = "%g" % 10 ** e if lowest <= e < 5 else "1e%d" % e
            soft(self.x0 - 8, y + 4, name, "end")

    def column(self, v, words):
        line(self.x(v), self.y0, self.x(v), self.y1)
        soft(self.x(v), self.y1 + 18, words, "middle")

    def powers(self, first, last, step):
        """Draws a numbered vertical line at first, first * step, ... up to last."""
        while first <= last:
            self.column(first, "%d" % first)
            first *= step

    def axes(self, x, y=None):
        """Writes the axes' names: `x` below the plot, `y` above its left edge."""
        soft((self.x0 + self.x1) / 2, self.y1 + 38, x, "middle")
        if y:
            soft(4, 14, y)

    def name(self, y, down, name, look=""):
        """Writes a name at the right edge, `down` units below the value y."""
        text(self.x1 + 8, self.y(y) + down, name, "start", look)

    def curve(self, points, ink, dash="none"):
        at = [(self.x(abs(x)), self.y(y)) for x, y in points]
        path = "".join("%s%.1f %.1f" % ("L" if i else "M", x, y)
                       for i, (x, y) in enumerate(at))
        print('<path d="%s" style="fill:none;stroke:var(--%s);stroke-width:2;'
              'stroke-dasharray:%s"/>' % (path, ink, dash))
        for x, y in at:
            dot(x, y, 2.6, ink)
