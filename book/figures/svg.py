"""svg.py -- functions that draw the book's figures.

Book: every figure.
The page defines the colours as CSS variables, for light and dark mode: --a, --b, --c,
--d, --ink, --soft and --line, and the pale colours --wash-a to --wash-d.
"""
import json
import math
import re

figures = {}


def figure(w, h):
    """Registers a function as a figure that draw.py prints. The title and description
    are in book/data/figures.tsv. `h` is the height, or a function that returns it."""
    def keep(draw):
        figures[draw.__name__] = w, h, draw
        return draw
    return keep


def draw_figure(name):
    w, h, draw = figures[name]
    titles = {row[0]: row[1:] for row in rows_of("book/data/figures.tsv")}
    print('<svg viewBox="0 0 %d %d" role="img"><title>%s</title><desc>%s</desc>'
          % (w, h() if callable(h) else h, *titles[name]))
    draw()
    print("</svg>")


def text(x, y, words, anchor="start", look=""):
    print('<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>'
          % (x, y, anchor, look, words))


def soft(x, y, words, anchor="start"):
    text(x, y, words, anchor, "soft")


def mono(x, y, words, anchor="middle"):
    text(x, y, words, anchor, "mono")


def rect(x, y, w, h, style):
    print('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2" style="%s"/>'
          % (x, y, w, h, style))


def box(x, y, w, h, ink, words=""):
    """Draws a rectangle with `words` in the middle. If `ink` has one letter, fills the
    rectangle with this ink's pale colour; otherwise colours only the outline."""
    fill = "var(--wash-%s)" % ink if len(ink) == 1 else "none"
    rect(x, y, w, h, "fill:%s;stroke:var(--%s)" % (fill, ink))
    if words:
        mono(x + w / 2, y + h // 2 + (5 if h > 32 else 4), words)


def line(x1, y1, x2, y2, ink="line", more=""):
    """Draws a line. `more` is a style, such as stroke-width:2."""
    print('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" style="stroke:var(--%s)%s"/>'
          % (x1, y1, x2, y2, ink, more and ";" + more))


def arrow(x1, y1, x2, y2, ink="ink"):
    r = math.hypot(x2 - x1, y2 - y1)
    ux, uy = (x2 - x1) / r, (y2 - y1) / r
    print('<path d="M%.1f %.1fL%.1f %.1fM%.1f %.1fL%.1f %.1fL%.1f %.1f" '
          'style="fill:none;stroke:var(--%s);stroke-width:1.5"/>'
          % (x1, y1, x2, y2, x2 - 7 * ux + 4 * uy, y2 - 7 * uy - 4 * ux, x2, y2,
             x2 - 7 * ux - 4 * uy, y2 - 7 * uy + 4 * ux, ink))


def dot(x, y, r, ink):
    print('<circle cx="%.1f" cy="%.1f" r="%g" style="fill:var(--%s)"/>'
          % (x, y, r, ink))


def example(name):
    """Returns an array of book/tokens.h, such as ex_k, as nested lists."""
    with open("book/tokens.h", encoding="utf-8") as f:
        found = re.search(r" %s\[.* = (.*);" % name, f.read())[1]
    return json.loads(found.replace("{", "[").replace("}", "]"))


def rows_of(path, header=False):
    """Returns the rows of a file of tab-separated values, without comment lines. If
    `header`, leaves out the first row."""
    with open(path, encoding="utf-8") as f:
        rows = [s.rstrip("\n").split("\t") for s in f if not s.startswith("#")]
    return rows[1:] if header else rows


def words_of(name):
    """Returns the words of each line of a file that tables.py writes."""
    with open("build/book/results/" + name, encoding="utf-8") as f:
        return [s.split() for s in f]
