"""draw.py -- prints a figure of the book as SVG.

Book: every figure that no C program draws.  Checked by: make book-lint.
Usage: python3 draw.py NAME.  Next: svg.py.
"""
import sys

import part1
import part2
import part3
import part4
import svg

PARTS = part1, part2, part3, part4           # each import adds to svg.figures

sys.stdout.reconfigure(encoding="utf-8")
if len(sys.argv) != 2 or sys.argv[1] not in svg.figures:
    sys.exit("draw.py: found %s, expected one of %s" % (
        sys.argv[1:], " ".join(sorted(svg.figures))))
svg.figures[sys.argv[1]]()
