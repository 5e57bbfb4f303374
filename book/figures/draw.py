"""draw.py -- prints a figure of the book as SVG.

Book: every figure that no C program draws.
Usage: python3 draw.py NAME. Names are in book/data/figures.tsv.
"""
import sys

import kernels                  # each module adds its figures to svg.figures
import mathematics
import models
import ranks
import svg

sys.stdout.reconfigure(encoding="utf-8")
if len(sys.argv) != 2 or sys.argv[1] not in svg.figures:
    sys.exit("draw.py: found %s, expected one of %s" % (
        sys.argv[1:], " ".join(sorted(svg.figures))))
svg.draw_figure(sys.argv[1])
