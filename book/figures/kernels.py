"""kernels.py -- draws the figures of Part II (one GPU).

Book: chapters 17, T and 18.
"""
import math

from plot import points
from svg import (arrow, box, dot, figure, line, mono, rect, rows_of, soft, text,
                 words_of)


# ---- 17
@figure(720, 370)
def ladder_coalesce():
    def draw(x0, y0, addresses):
        """Lane l loads 16 bytes at addresses[l]. Draws rows of 8 sectors of 32 bytes,
        and marks the fetched sectors. Returns the number of marked sectors."""
        met = {(at // 256, at % 256 // 32) for at in addresses}
        for r in range(32):
            for s in range(8):
                rect(x0 + s * 34, y0 + r * 8, 33, 7, "fill:var(--%s);stroke:none" % (
                    "wash-b" if (r, s) in met else "code"))
        for at in addresses:
            rect(x0 + at % 256 // 16 * 17 + 1, y0 + at // 256 * 8 + 1, 14, 5,
                 "fill:var(--b);stroke:none")
        return len(met)

    text(30, 28, "lane l takes row l")
    apart = draw(30, 42, [256 * lane for lane in range(32)])
    text(30, 326, "%d sectors for 512 bytes" % apart)
    soft(30, 346, "half of what is fetched is not needed")
    text(400, 28, "lane l takes piece l")
    together = draw(400, 42, [16 * lane for lane in range(32)])
    text(400, 326, "%d sectors for 512 bytes" % together)
    soft(400, 346, "two whole rows; the next load fetches the next two")


@figure(720, 282)
def ladder_roles():
    """Draws the cycles of book/data/ladder-trace.tsv. The bar of a copy goes from the
    announcement of its bytes to their arrival. A warpgroup has two bars per chunk: for
    w S, and from the end of w S to the release of the pipeline stage."""
    first, last = -6000, 26400

    def x(cycle):
        return 104 + (min(max(cycle, first), last) - first) * 608 / (last - first)

    def bar(start, end, y, ink, words):
        if end > first and start < last:
            box(x(start), y, x(end) - x(start), 22, ink,
                words if x(end) - x(start) > 24 else "")

    def mark(cycle, y):
        line(x(cycle), y - 3, x(cycle), y + 25, "d", "stroke-width:3")

    for row in rows_of("book/data/ladder-trace.tsv", header=True):
        c, announced, full, *times = map(int, row)
        y = 26 + 28 * (c % 4)
        bar(announced, full, y, "b", "copy %d" % c)
        if announced > first:
            mark(announced, y)
        for y, t in ((158, times[:5]), (198, times[5:])):
            bar(t[1], t[2], y, "a", "")
            bar(t[2], t[4], y, "c", "%d" % c)
            if t[4] < last:
                mark(t[4], y)
    for s in range(4):
        text(96, 42 + 28 * s, "TMA, stage %d" % s, "end")
    text(96, 173, "group 0", "end")
    text(96, 213, "group 1", "end")
    for t in range(0, last + 1, 8000):
        line(x(t), 226, x(t), 232, "ink")
        soft(x(t), 246, "%d" % t, "middle")
    soft(96, 246, "cycles", "end")
    soft(104, 272, "violet: announced, released; blue: w S; green: v_new and the state")


@figure(720, 275)
def ladder_stages():
    """Simulates two timelines. A copy takes the time `copy`. The products of a chunk
    take the time `work`. A pipeline stage is free after its chunk's products."""
    copy, work = 60, 95

    def play(y, stages):
        done, now = [], 0
        for c in range(4):
            if stages == 1:                               # no overlap
                issued = now
            else:
                issued = 0 if c < stages - 1 else done[c - stages + 1] - work
            begin = max(now, issued + copy)
            box(90 + issued, y + 26 * (c % stages), copy, 22, "b", "%d" % c)
            box(90 + begin, y + 26 * stages + 4, work, 22, "a", "%d" % c)
            now = begin + work
            done.append(now)
        for s in range(stages):
            soft(82, y + 26 * s + 15, "load" if stages == 1 else "stage %d" % s, "end")
        soft(82, y + 26 * stages + 19, "products", "end")
        line(90 + now, y - 4, 90 + now, y + 26 * stages + 30, "soft",
             "stroke-dasharray:2 3")

    text(20, 24, "Fourth rung: load, barrier, multiply, barrier")
    play(40, 1)
    text(20, 138, "Fifth rung: three stages, one barrier per chunk")
    play(154, 3)


@figure(720, 250)
def ladder_thread():
    def matrix(x, y, h, name, size, column=True):
        rect(x, y, 130, h, "fill:var(--code);stroke:var(--line)")
        if column:
            box(x + 130 * 0.6, y, 12, h, "b")
        else:
            box(x, y + h * 0.45, 130, 9, "a")
        text(x + 65, y - 8, name, "middle")
        soft(x + 65, y + h + 16, size, "middle")

    matrix(30, 50, 70, "v_new", "64 tokens by 128")
    text(175, 90, "=", "middle")
    matrix(190, 50, 70, "u", "64 by 128")
    text(335, 90, "-", "middle")
    matrix(350, 50, 70, "w", "64 by 128 keys", column=False)
    matrix(510, 30, 130, "S", "128 keys by 128")
    text(650, 60, "thread v")
    soft(650, 78, "owns this")
    soft(650, 94, "column")
    soft(350, 168, "all 128 threads read")
    soft(350, 184, "the same row of w")
    soft(30, 168, "thread v writes column v")
    text(30, 218, "One block per head: 128 threads, four warps, one multiprocessor.")
    soft(30, 238, "The other 36 of an H200's 132 multiprocessors have no head when "
         "there are 96.")


@figure(720, 310)
def ladder_times():
    """Line 1 of ladder.tsv has "floor" and microseconds. Each other line has the name
    of a kernel version and its microseconds."""
    def x(us):
        return 130 + (math.log10(us) - 2) * 122

    soft(560, 16, "ms", "end")
    soft(632, 16, "step", "end")
    soft(712, 16, "total", "end")
    for t in (100, 1000, 10000, 100000):
        line(x(t), 24, x(t), 270)
        soft(x(t), 288, ("%.1f ms" if t < 1000 else "%.0f ms") % (t / 1000), "middle")
    (_, floor), *rungs = [(name, float(us)) for name, us in words_of("ladder.tsv")]
    line(x(floor), 24, x(floor), 270, "b", "stroke-width:1.5;stroke-dasharray:5 3")
    soft(x(floor) + 6, 16, "what memory needs: %.3f ms" % (floor / 1000))
    first, before = rungs[0][1], None
    for i, (name, us) in enumerate(rungs):
        y = 44 + 30 * i
        if before:
            line(x(before), y - 30, x(us), y, "a", "stroke-width:1.5")
        dot(x(us), y, 5, "a")
        mono(122, y + 4, name, "end")
        mono(560, y + 4, "%.3f" % (us / 1000), "end")
        if before:
            mono(632, y + 4, "\u00d7 %.2f" % (before / us), "end")
            mono(712, y + 4, "\u00d7 %.*f" % (us * 10 >= first, first / us), "end")
        before = us


@figure(720, 400)
def ladder_fragments():
    def cell(x, y, lane, reg):
        edge = "ink);stroke-width:1.8" if lane == 13 else "line);stroke-width:0.6"
        rect(x, y, 20, 17, "fill:var(--wash-%s);stroke:var(--%s" % ("abcd"[reg], edge))
        mono(x + 10, y + 12.5, "%d" % lane)

    def draw(of, x0):
        for matrix, lane, reg, row, column in points("fragments"):
            if matrix == of:
                cell(x0 + 20 * column, 44 + 17 * row, lane, reg)

    text(16, 30, "A, 16 x 16")
    draw(0, 16)
    text(366, 30, "B, 16 x 8")
    text(351, 184, "x", "middle")
    draw(1, 366)
    text(541, 184, "=", "middle")
    text(556, 30, "D, 16 x 8")
    draw(2, 556)
    for i in range(4):
        rect(20 + i * 170, 332, 16, 14,
             "fill:var(--wash-%s);stroke:var(--line)" % "abcd"[i])
        soft(42 + i * 170, 344, "a[%d], b[%d], d[%d] d[%d]" % (i, i, 2 * i, 2 * i + 1)
             if i < 2 else "a[%d]" % i)
    text(20, 370, "A number in a cell is a lane. What lane 13 holds is framed: row g = "
         "lane / 4, columns")
    text(20, 388, "e = 2 (lane % 4) and e + 1. Two tiles of D side by side have the "
         "colours of one tile of A.")


@figure(720, 366)
def ladder_ldmatrix():
    def block(x0, y0, cells, addresses, second, third):
        for i, (lane, reg) in enumerate(cells):
            x = x0 + i % 16 * 19 + (10 if i % 16 > 7 else 0)
            y = y0 + i // 16 * 15 + (10 if i // 16 > 7 else 0)
            rect(x, y, 19, 15, "fill:var(--wash-%s);stroke:var(--%s" % (
                "abcd"[reg], "ink);stroke-width:1.8" if lane == 5 else "line)"))
            mono(x + 9.5, y + 11.5, "%d" % lane)
        for at in addresses:
            rect(x0 + at // 16 % 2 * 162, y0 + at // 32 // 8 * 130, 152, 120,
                 "fill:none;stroke:var(--b);stroke-width:1.2")
        soft(x0, y0 + 272, "lanes that give row addresses: upper left 0-7,")
        soft(x0, y0 + 288, "upper right %s, lower left %s, lower right 24-31"
             % (second, third))

    rows = points("ldmatrix")
    text(20, 28, "ldmatrix: w, whose rows are B's columns")
    block(20, 42, rows[:256], rows[256], "8-15", "16-23")
    text(380, 28, "ldmatrix.trans: kg, whose rows are B's rows")
    block(380, 42, rows[257:-1], rows[-1], "16-23", "8-15")
    soft(20, 356, "Colour: register r[0], r[1], r[2] or r[3]. Number: the lane that "
         "receives the cell. Framed: lane 5.")


@figure(720, 300)
def ladder_banks():
    """A cell is four banks. The number in a cell says which piece (16 bytes) of the row
    is there. Piece 2 of each row is marked."""
    def draw(x0, y0, rows, reads):
        for row in rows:
            for piece, at in enumerate(row):
                x, y = x0 + at % 128 // 16 * 38, y0 + at // 128 * 24
                rect(x, y, 38, 24, "fill:var(--wash-b);stroke:var(--b)" if piece == 2
                     else "fill:var(--code);stroke:var(--line)")
                mono(x + 19, y + 16, "%d" % piece)
        for b in range(8):
            soft(x0 + b * 38 + 19, y0 - 6, "%d-%d" % (4 * b, 4 * b + 3), "middle")
        for row in range(8):
            soft(x0 - 6, y0 + row * 24 + 16, "%d" % row, "end")
        text(x0, y0 + 216, "loading piece 2 of eight rows takes %d read%s"
             % (reads, "s" * (reads > 1)))

    *plain, (reads,) = points("banks")[:9]
    *swizzled, (fewer,) = points("banks")[9:]
    text(30, 24, "plain: piece p is at place p")
    soft(30, 44, "banks")
    draw(40, 66, plain, reads)
    text(390, 24, "swizzle128: piece p is at place p ^ (r % 8)")
    soft(390, 44, "banks")
    draw(400, 66, swizzled, fewer)


FIELDS = (("address", 0, 14, "a"), ("leading offset", 16, 14, "b"),
          ("stride offset", 32, 14, "c"), ("base", 49, 3, "d"), ("swizzle", 62, 2, "d"))


@figure(720, 300)
def ladder_descriptor():
    def draw(y, name, d, *means):
        """Draws bits 63 .. 0, with the value and the meaning of each field."""
        mono(20, y, "%s: 0x%016x" % (name, d), "start")
        for bit in range(64):
            fill = ["var(--wash-%s)" % ink for _, start, n, ink in FIELDS
                    if start <= bit < start + n]
            rect(20 + (63 - bit) * 10.6, y + 12, 10.6, 20,
                 "fill:%s;stroke:var(--line)" % (fill or ["none"])[0])
            mono(25.3 + (63 - bit) * 10.6, y + 26, "%d" % (d >> bit & 1))
            assert fill or not d >> bit & 1, "a bit is outside of the fields"
        for (field, start, n, _), meaning in zip(FIELDS, means):
            at, anchor = 20 + (64 - start - n / 2) * 10.6, "middle"
            if start + n == 64:
                at, anchor = 20, "start"
            soft(at, y + 48, "%s %d" % (field, d >> start & (1 << n) - 1), anchor)
            soft(at, y + 64, meaning, anchor)

    (w, kg), (key, column, tile) = points("descriptors")
    draw(28, "smem_desc_k_major, w at byte 0x8400", w, "x 16 bytes", "not used",
         "8 rows: 1024", "", "128")
    draw(132, "smem_desc_mn_major, kg at byte 0x8400", kg, "x 16 bytes",
         "next tile: 8192", "8 rows: 1024", "", "128")
    text(20, 236, "A step of 16 adds %d (K-major: %d bytes) or %d (MN-major: %d bytes); "
         "the next 64 columns add %d." % (key, key << 4, column, column << 4, tile))
    soft(20, 260, "A number added to a descriptor is added to its address, unless the "
         "field overflows.")
    soft(20, 278, "The address has 14 bits, in units of 16 bytes: 256 KiB, more than the "
         "shared memory of an SM.")


# ---- T
@figure(720, 208)
def inverse():
    for x, n, title, corner in ((40, 1, "four blocks of 16", "by substitution"),
                                (288, 2, "two of 32", "corners: two products each"),
                                (536, 4, "one of 64", "one corner, 32 by 32")):
        text(x + 72, 20, title, "middle")
        box(x, 32, 144, 144, "line")
        for i in range(4):
            for j in range(i + 1):
                known = i // n == j // n
                fresh = known and n > 1 and i // (n // 2) != j // (n // 2)
                ink = "a" if known else "line"
                box(x + j * 36, 32 + i * 36, 36, 36, "b" if fresh else ink)
        soft(x + 72, 196, corner, "middle")
    arrow(200, 104, 272, 104)
    arrow(448, 104, 520, 104)


@figure(720, 212)
def pieces():
    for i in range(3):
        text(250 + 80 * i, 24, "piece %d of S" % (i + 1), "middle")
        text(196, 60 + 50 * i, "piece %d of M" % (i + 1), "end")
        for j in range(3):
            box(212 + 80 * j, 34 + 50 * i, 76, 44, "a" if i + j <= 2 else "line",
                "2^-%d" % (8 * (i + j)) if i + j else "1")
    text(470, 60, "blue: computed, smallest first")
    soft(470, 160, "not filled: left out")


@figure(720, 250)
def straddle():
    full = "fill:var(--b);stroke:var(--b)"
    for i in range(8):
        for j in range(i):
            at = 120 + 24 * j, 30 + 24 * i, 22, 22
            if i >= 5 > j:
                rect(*at, full)
            else:
                box(*at, "d" if i >= 5 else "line")
    line(100, 149, 330, 149, "ink")
    line(239, 24, 239, 230, "ink")
    text(94, 154, "t", "end")
    text(239, 18, "t", "middle")
    soft(60, 130, "row i", "middle")
    soft(210, 246, "column j", "middle")
    rect(370, 60, 16, 16, full)
    text(396, 73, "straddle t: added once")
    box(370, 96, 16, 16, "d")
    text(396, 109, "i, j \u2265 t: added and subtracted")
    box(370, 132, 16, 16, "line")
    text(396, 145, "i, j &lt; t: not in the sum")


# ---- 18
@figure(720, 290)
def backward_roles():
    for y, name, words, ink, way in ((14, "factors", "of forward, %d", "d", 0),
                                     (82, "states", "h, v_new %d", "a", 1),
                                     (150, "reverse", "dS, dv %d", "b", -1),
                                     (230, "finish", "dq .. dg %d", "c", 0)):
        text(4, y + 19, name)
        for c in range(4):
            x = 120 + c * 148
            box(x, y, 118, 32, ink, words % c)
            if way > 0 and c < 3:
                arrow(x + 119, y + 16, x + 146, y + 16)
            if way < 0 and c:
                arrow(x - 2, y + 16, x - 29, y + 16)
    for c in range(4):
        x = 120 + c * 148
        arrow(x + 40, 48, x + 40, 80, "d")
        turn = (100, 46), (100, 62), (133, 62), (133, 130), (78, 130)
        for (x1, y1), (x2, y2) in zip(turn, turn[1:]):   # around states to reverse
            line(x + x1, y1, x + x2, y2, "d", "stroke-width:1.5")
        arrow(x + 78, 130, x + 78, 148, "d")
        arrow(x + 24, 116, x + 24, 228, "a")
        arrow(x + 96, 184, x + 96, 228, "b")
    soft(120, 282, "left to right: the chunks of a head. states and reverse share the "
         "GPU.")


@figure(720, 270)
def cluster():
    text(200, 24, "a factor in memory", "end")
    box(210, 8, 150, 26, "a", "half 0")
    box(360, 8, 150, 26, "b", "half 1")
    soft(520, 24, "each is read once")
    for i, (x, columns) in enumerate(((30, "0 to 63"), (390, "64 to 127"))):
        box(x, 84, 300, 176, "line")
        box(x + 20, 100, 80, 26, "a", "half 0")
        box(x + 100, 100, 80, 26, "b", "half 1")
        box(x + 200, 100, 84, 26, "d", "full")
        soft(x + 284, 142, "bytes of both halves", "end")
        box(x + 20, 156, 160, 26, "c", "4 consumer warps")
        box(x + 200, 206, 84, 26, "d", "empty")
        soft(x + 284, 250, "8 arrivals", "end")
        text(x + 8, 250, "block %d: columns %s" % (i, columns))
    for to in range(2):
        for half in range(2):
            arrow(285 + 150 * half, 34, 90 + 360 * to + 80 * half, 99, "ab"[half])
    for at in range(2):
        for to in range(2):
            arrow(130 + 360 * at, 182, 360 * to + (314 if to < at else 230),
                  214 if to == at else 224, "soft")


@figure(720, 330)
def factors():
    """Sizes are from struct chunk_factors, for K = 128 and C = 64."""
    tiles, triangle = 2 * 64 * 128, 10 * 512
    parts = ((tiles, "-k~", "a"), (triangle, "A beta", "b"), (tiles, "kg", "a"),
             (tiles, "scale qg", "a"), (triangle, "Aqk", "b"), (4 * 128, "", "d"))
    whole, at = sum(size for size, *_ in parts), 0

    def x(size):
        return 16 + size * 688 / whole

    text(16, 24, "one chunk and head: %.1f KiB, %d bytes per token"
         % (whole / 1024, whole // 64))
    for size, name, ink in parts:
        box(x(at), 40, x(at + size) - x(at) - 1, 44, ink, name)
        if name:
            soft((x(at) + x(at + size)) / 2, 104, "%g KiB" % (size / 1024), "middle")
        at += size
    soft(704, 120, "decay, 512 bytes", "end")
    text(16, 150, "a triangle: ten blocks of 16 x 16")
    for i in range(4):
        for j in range(4):
            place = 4 * j - j * (j - 1) // 2 + (i - j) if j <= i else 0
            box(16 + j * 36, 162 + i * 36, 35, 35, "b" if j <= i else "line",
                "%d" % place)
    soft(180, 190, "numbers: their order in memory,")
    soft(180, 208, "block column by block column;")
    soft(180, 226, "the zeros exist on chip only")
    text(410, 150, "a tile: eight rows of 128 bytes, swizzled")
    for row in range(8):
        for piece in range(8):
            box(410 + piece * 34, 162 + row * 18, 33, 17, "c" if row == 3 else "a",
                "%d" % (piece ^ row))
    soft(410, 324, "number in a cell: which 16 bytes of the row")


# `lane` draws the line of some warps; `doing` draws their work as a bar, not to scale.
def lane(y, name, more=""):
    text(4, y + 12, name)
    soft(4, y + 27, more)
    line(150, y + 15, 712, y + 15)


def doing(y, start, end, ink, what):
    box(150 + start, y, end - start - 1, 30, ink, what)


def roles_of_scan(y):
    text(4, y, "scan kernel of the two-kernel forward: four pipelines, two chunks")
    for p, (name, lag) in enumerate((("Aqk %d", 60), ("qg %d", 60),
                                     ("A beta, kg %d", 30), ("k~ and v %d", 0))):
        lane(y + 12 + 36 * p, "" if p else "4 producer warps")
        for c in range(3):
            at = lag + c * 160
            doing(y + 12 + 36 * p, at, at + 110, "d", name % c)
    lane(y + 162, "consumer", "warpgroups")
    for at, chunk in ((112, 0), (336, 1)):
        doing(y + 162, at, at + 78, "b", "y=v-k~S %d" % chunk)
        doing(y + 162, at + 78, at + 136, "b", "A beta y")
        doing(y + 162, at + 136, at + 222, "b", "\u039bS + kg'v")
        if chunk:
            doing(y + 195, at + 36, at + 92, "c", "o 0 out")
        doing(y + 195, at + 92, at + 222, "b", "qg S, Aqk v: o")
    arrow(262, y + 144, 268, y + 160)
    line(294, y + 100, 294, y + 153, "ink", "stroke-width:1.5")
    arrow(294, y + 153, 338, y + 161)
    arrow(350, y + 160, 466, y + 146, "soft")
    soft(500, y + 246, "strong arrows: full; pale: released")


def roles_of_one_kernel(y):
    text(4, y - 10, "one kernel: six stages, two steps")
    for at, name, more in ((4, "loads", "1 warp"), (48, "gates", "8 warps"),
                           (92, "decay", "the warp that loads"),
                           (136, "inverse", "warp 0: even steps"),
                           (180, "", "warp 1: odd steps"),
                           (224, "queries", "1 warp"), (268, "scan", "8 warps")):
        lane(y + at, name, more)
    # Each arrow is a barrier, from the role that arrives to the role that waits.
    for x0, y0, x1, y1, name in (
            (46, 34, 54, 47, "raw"), (112, 78, 122, 91, "gated"),
            (182, 122, 190, 267, ""), (268, 166, 276, 267, ""),
            (222, 254, 300, 267, "scored")):
        arrow(150 + x0, y + y0, 150 + x1, y + y1)
        soft(150 + x1 + 5, y + y1 - 3, name)
    soft(342, y + 134, "decayed")
    soft(427, y + 178, "inverted")
    arrow(590, y + 267, 602, y + 35, "soft")
    soft(606, y + 126, "empty: stage read,")
    soft(606, y + 142, "o 0 has left")
    for at, step in ((0, 0), (52, 1), (104, 2), (448, 6)):
        doing(y + 4, at, at + 52, "d", "rows %d" % step)
    for i in range(2):
        doing(y + 48, 54 + 64 * i, 118 + 64 * i, "a", "gate %d" % i)
    for at, step in ((122, 0), (224, 1)):
        doing(y + 92, at, at + 62, "a", "factor %d" % step)
        doing(y + 136 + 44 * step, at, at + 150, "b", "L, A beta %d" % step)
        doing(y + 224, at, at + 100, "b", "Aqk %d" % step)
    for at, step in ((188, 0), (374, 1)):
        doing(y + 268, at, at + 86, "b", "qf S, kf S %d" % step)
        doing(y + 268, at + 86, at + 144, "b", "A beta y")
        doing(y + 268, at + 144, at + 184, "b", "o, S")


@figure(720, 600)
def roles():
    roles_of_scan(18)
    roles_of_one_kernel(292)


@figure(720, 150)
def backward_steps():
    """The barriers are those of step 0."""
    lane(14, "chain", "2 warpgroups")
    lane(110, "finish", "2 warpgroups")
    for step, at in ((0, 0), (1, 252)):
        for start, end, ink, what in ((0, 60, "a", "gates %d" % step), (60, 94, "b", "dS"),
                                      (94, 152, "b", "dU, dv"), (152, 186, "b", "dS"),
                                      (186, 230, "b", "X, Y")):
            doing(14, at + start, at + end, ink, what)
    for start, end, what in ((100, 174, "v_new dS'"), (174, 272, "dO S', dv S'"),
                             (272, 352, "X kb, ..."), (352, 436, "dG, dq, dk"),
                             (436, 510, "v_new dS'")):
        doing(110, start, end, "c", what)
    for x0, x1, y, name in ((94, 100, 88, "dS_full"), (152, 174, 72, "dv_full"),
                            (230, 272, 100, "triangles_full")):
        arrow(150 + x0, 45, 150 + x1, 109)
        soft(156 + x1, y, name)
    for x0, x1, name in ((176, 312, "dS_empty"), (366, 438, "dots")):
        arrow(150 + x0, 109, 150 + x1, 45, "soft")
        soft(150 + x1, 64, name)


# Labels of whole passes in the roofline, and their positions relative to the dots.
PASSES = {"08/v1_stages": ("forward, a thread per column", -10, -17),
          "08/v2_stages": ("forward, taught stages", 8, 14),
          "08/v3_prepare_scan": ("forward, fast", 8, 14),
          "13/v1_stages": ("backward, a thread per column", 10, 4),
          "13/v2_stages": ("backward, taught stages", 10, 4),
          "13/v4_scans_finish": ("backward, fast", 10, 4)}


@figure(720, 424)
def roofline():
    """Line 1 of roofline.tsv has "roof", TB/s and TFLOP/s. Each other line has a name,
    operations per byte and TFLOP/s. A line joins the dots of chapter 17's kernels."""
    def x(intensity):
        return 60 + (math.log10(intensity) - 1) * 290

    def y(tflops):
        return 340 - math.log10(tflops) * 104

    (_, *roof), *points = words_of("roofline.tsv")
    copy, tensor = map(float, roof)
    for e in range(4):
        if e:
            line(x(10 ** e), 24, x(10 ** e), 372)
            soft(x(10 ** e), 390, "%g" % 10 ** e, "middle")
        line(60, y(10 ** e), 700, y(10 ** e))
        soft(52, y(10 ** e) + 4, "%g" % 10 ** e, "end")
    knee = tensor / copy
    line(x(10), y(10 * copy), x(knee), y(tensor), "ink", "stroke-width:2")
    line(x(knee), y(tensor), 700, y(tensor), "ink", "stroke-width:2")
    text(x(15), y(15 * copy) + 22, "memory: %.1f TB/s" % copy)
    text(x(1000) - 8, y(tensor) + 20, "tensor cores: %.0f TFLOP/s" % tensor, "end")
    soft(380, 412, "operations per byte", "middle")
    soft(8, 16, "TFLOP/s")
    before = None
    for name, *numbers in points:
        at, rate = map(float, numbers)
        if name.startswith("17/v"):
            if before:
                line(x(at), y(before), x(at), y(rate), "a", "stroke-width:2")
            dot(x(at), y(rate), 5, "a")
            even = int(name[4]) % 2 == 0
            mono(x(at) + (10 if even else -10), y(rate) + 4, name[4],
                 "start" if even else "end")
            before = rate
        if name in PASSES:
            words, dx, dy = PASSES[name]
            dot(x(at), y(rate), 5, "c" if name[0] == "0" else "b")
            text(x(at) + dx, y(rate) + dy, words)


@figure(720, 276)
def schedules():
    """The lengths are not to scale."""
    text(4, 30, "strips")
    text(4, 148, "windows")
    text(4, 222, "walk")
    box(90, 14, 147, 22, "d", "prepare")
    for s in range(4):
        if s < 3:
            box(242, 14 + 26 * s, 147, 22, "a", "map %d" % s)
        box(450, 14 + 26 * s, 147, 22, "c", "scan %d" % s)
    box(394, 14, 51, 22, "b", "fold")
    for y, then, ink in ((132, "scan", "c"), (206, "map", "a")):
        x, free_at = 90, 0
        for w, width in enumerate((150, 120, 95, 75)):
            box(x, y, width - 3, 22, "d", "prepare %d" % w)
            x += width
            start = max(x, free_at)
            box(start, y + 28, 0.8 * width - 3, 22, ink, "%s %d" % (then, w))
            free_at = start + 0.8 * width
    soft(90, 270, "time runs to the right")
