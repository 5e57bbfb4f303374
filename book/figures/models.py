"""models.py -- draws the figures of Part IV (more of the family) and the appendices.

Book: chapters 15, 16 and 19, appendices A and B.
"""
import math

from plot import Frame, printed_rows
from svg import arrow, box, dot, figure, line, mono, rect, soft, text, words_of


# ---- 15
@figure(700, 290)
def tree():
    """Draws the loops of scan_up and scan_down. Each arrow is one product."""
    N = 7

    def node(x, y, ink, words):
        box(x - 17, y - 11, 34, 22, ink, words)

    def up(x0):
        first, top, x = list(range(N)), [270] * N, [x0 + 26 + e * 44 for e in range(N)]
        text(x0, 22, "up: maps")
        for e in range(N):
            node(x[e], 270, "a", "%d" % e)
        for d, y in ((1, 270), (2, 196), (4, 122)):
            for i in range(0, N - d, 2 * d):
                left, right = i + d - 1, min(i + 2 * d, N) - 1
                arrow(x[left], y - 13, x[right] - 8, y - 61, "a")
                line(x[right], top[right] - 13, x[right], y - 62, "a",
                     "stroke-width:1.5")
                first[right], top[right] = first[left], y - 74
                node(x[right], y - 74, "a", "%d-%d" % (first[right], right))

    def down(x0):
        y, x = [48] + [0] * (N - 1), [x0 + 26 + e * 44 for e in range(N)]
        text(x0, 22, "down: the state before each block")
        node(x[0], 48, "b", "S")
        for d, at in ((4, 48), (2, 122), (1, 196)):
            for i in range(0, N - d, 2 * d):
                arrow(x[i], at + 13, x[i + d], at + 61, "b")
                y[i + d] = at + 74
                node(x[i + d], at + 74, "b", "S%d" % (i + d))
        for e in range(N):
            if y[e] + 12 <= 258:
                line(x[e], y[e] + 12, x[e], 258, "b", "stroke-dasharray:3 3")
                mono(x[e], 274, "S%d" % e if e else "S")

    up(16)
    down(372)


@figure(720, 420)
def scan_times():
    """A row of 15-forms.tsv has K, heads, T, 1 if backward, and the times in ms of the
    algorithms `walk` (sequential), `scan` and `chunks`; time 0 means not timed."""
    def x(times):
        return 206 + (math.log10(times) + 2) / 4.4 * 494

    def mark(at, y, back, ink):
        print('<circle cx="%.1f" cy="%.1f" r="4.5" style="fill:var(--%s);'
              'stroke:var(--%s);stroke-width:1.8"/>'
              % (at, y, "paper" if back else ink, ink))

    for e in range(-2, 3):
        line(x(10 ** e), 26, x(10 ** e), 384, *(() if e else ("ink",
                                                              "stroke-width:1.2")))
        soft(x(10 ** e), 400, "1/%d" % 10 ** -e if e < 0 else "%d" % 10 ** e, "middle")
    y, before = 40, None
    for K, heads, T, back, walk, scan, chunks in words_of("15-forms.tsv"):
        group = before is None or before[:2] != (K, heads)
        if before != (K, heads, T):
            if before:
                y += 27 if group else 20
            line(206, y, 700, y, more="stroke-dasharray:1 4")
            text(196, y + 4, T, "end")
            if group:
                text(8, y + 4, "K = %s, %s head%s" % (K, heads, "s" * (heads != "1")))
            before = K, heads, T
        for ms, ink in ((float(scan), "a"), (float(chunks), "b")):
            if ms:
                mark(x(float(walk) / ms), y + 8 * int(back), int(back), ink)
    soft(196, 16, "tokens", "end")
    for at, back, ink, name in ((214, 0, "a", "scan"), (268, 0, "b", "chunks"),
                                (338, 0, "soft", "forward"),
                                (414, 1, "soft", "backward")):
        mark(at, 12, back, ink)
        text(at + 10, 16, name)
    soft(453, 417, "times as fast as the walk", "middle")


# ---- 16
@figure(720, 420)
def family():
    def matrix(x, y, name, how, one_gate, rank_one, write):
        """Draws a diagonal matrix. If `rank_one`, shades all other elements too."""
        text(x, y - 26, name)
        soft(x, y - 9, how)
        for i in range(6):
            for j in range(6):
                style = "fill:var(--wash-b)" if rank_one else "fill:none"
                if i == j:
                    shade = 0.5 if one_gate else 0.25 + 0.12 * ((5 * i + 3) % 6)
                    style = "fill:var(--a);fill-opacity:%.2f" % shade
                rect(x + 17 * j, y + 17 * i, 17, 17, style + ";stroke:var(--line)")
        mono(x, y + 122, write, "start")

    matrix(20, 52, "Mamba-2", "one gate per head", 1, 0, "+ k v'")
    matrix(260, 52, "GDN", "one gate, delta rule", 1, 1, "- beta k k', + beta k v'")
    matrix(500, 52, "GDN-2", "gates per row, two gates", 0, 1,
           "- k (b k)', + k (w v)'")
    matrix(20, 256, "GLA", "one gate per row", 0, 0, "+ k v'")
    matrix(260, 256, "KDA", "one gate per row, delta rule", 0, 1,
           "- beta k k', + beta k v'")
    matrix(500, 256, "DPLR, RWKV-7", "one gate per row", 0, 1, "+ b a', + k v'")
    soft(20, 412, "blue: the gates on the diagonal; red: where the correction of rank "
         "one puts numbers")


@figure(720, 236)
def family_rows():
    columns = ((150, 92, "u", "u", "v"), (250, 92, "w", "w", "0"),
               (350, 92, "v_new", "x = u + w S", "v"),
               (450, 112, "writes along", "b", "k"), (570, 92, "q reads", "", "o"))
    for x, w, head, *_ in columns:
        text(x + w / 2, 18, head, "middle")
    for t in range(3):
        y = 30 + 64 * t
        text(4, y + 30, "token %d" % t)
        soft(138, y + 16, "row %d" % (2 * t), "end")
        soft(138, y + 42, "row %d" % (2 * t + 1), "end")
        for x, w, _, first, second in columns:
            box(x, y, w, 24, "a" if first else "line", first)
            box(x, y + 26, w, 24, "line" if second == "0" else "a", second)


# ---- 19
@figure(720, lambda: 80 + 24 * len({stage for stage, *_ in words_of("errors.tsv")}))
def errors():
    """A row of errors.tsv: stage, variant, 1 if fp32, 1 if failed and error / limit."""
    def x(share):
        return 185 + 495 * min(share, 1.04)

    seen = words_of("errors.tsv")
    stages = list(dict.fromkeys(stage for stage, *_ in seen))
    end = 40 + 24 * len(stages)
    for share in (0, 0.25, 0.5, 0.75, 1):
        at = x(share), 26, x(share), end
        if share < 1:
            line(*at)
        else:
            line(*at, "b", "stroke-width:1.5")
        soft(x(share), end + 18, "%g %%" % (100 * share), "middle")
    soft(x(1), 18, "limit", "end")
    soft(4, 18, "disc: bf16, ring: fp32, cross: failed (%d of %d)"
         % (sum(failed == "1" for *_, failed, _ in seen), len(seen)))
    before = None
    for stage, name, fp32, failed, share in seen:
        y, share = 44 + 24 * stages.index(stage), float(share)
        if stage != before:
            mono(176, y + 4, stage, "end")
        before, mark = stage, "path" if failed == "1" else "circle"
        if failed == "1":
            print('<path d="M%.1f %.1fl10 10m0 -10l-10 10" style="fill:none;'
                  'stroke:var(--b);stroke-width:2">' % (x(share) - 5, y - 5), end="")
        else:
            print('<circle cx="%.1f" cy="%.0f" r="5" style="fill:var(--%s);'
                  'fill-opacity:.7;stroke:var(--a)">'
                  % (x(share), y, "paper" if fp32 == "1" else "a"), end="")
        print("<title>%s %.0f %%</title></%s>" % (name, 100 * share, mark))


@figure(720, 376)
def growth():
    rows = printed_rows("19-growth", "live gates")
    f = Frame(0, 2.45, -8.2, 0, 70, 570, 30, 330)
    f.rows()
    f.powers(1, 256, 4)
    for column, name, ink in ((2, "fp32, tf32x3", "a"), (4, "tf32", "c"),
                              (5, "bf16", "b")):
        f.curve([(r[0], r[column]) for r in rows], ink)
        f.name(rows[-1][column], 4, name)
    line(f.x(1), f.y(rows[0][4]), f.x(256), f.y(16 * rows[0][4]), "soft",
         "stroke-dasharray:4 4")
    f.axes("chunks in the chain", "relative error of M")


@figure(720, 336)
def straight():
    """Draws a diagonal element of a map's M after each chunk, exact and in bf16."""
    def x(n):
        return 60 + n * 2.1

    def y(m):
        return 290 - 260 * m

    def bf16(m):
        fraction, e = math.frexp(m)
        return math.ldexp(round(fraction * 256), e - 8)

    for e in range(5):
        line(x(0), y(e / 4), x(256), y(e / 4))
        soft(x(0) - 8, y(e / 4) + 4, "%.2f" % (e / 4), "end")
        line(x(64 * e), y(0), x(64 * e), y(1))
        soft(x(64 * e), y(0) + 18, "%d" % (64 * e), "middle")
    for name, rounded, ink, down in (("exact", float, "a", -2),
                                     ("bf16", bf16, "b", 10)):
        path, m = "", 1
        for n in range(257):
            path += "%s%.1f %.1f" % ("L" if n else "M", x(n), y(m))
            m = rounded(m * math.exp(-0.0046))
        print('<path d="%s" style="fill:none;stroke:var(--%s);stroke-width:2"/>'
              % (path, ink))
        text(x(256) + 8, y(m) + down, name)
    soft(x(68), y(0.93), "one unit, 1/256,")
    soft(x(68), y(0.87), "per chunk")
    soft(x(132), y(0.33), "below one half")
    soft(x(132), y(0.27), "a unit is 1/512")
    soft(x(128), y(0) + 38, "chunks", "middle")
    soft(4, 14, "element of the diagonal of M")


# ---- A
@figure(720, 194)
def visible():
    """Fills the cell of an errata row and a case if the judge rejects the row's mutant.
    The command for row 7 on four ranks: kcp-check --stage 08 --variant
    mutant_decay_first --case 'live kda H=1 HV=1 K=16 V=12 C=16 l2norm beta=sigmoid h0
    R=4 lengths=64'. Other cases change R or lengths. Rows 8, 17, 18 and 19:
    mutant_dS_decayed, mutant_in_order, mutant_own_M and mutant_outward of stage 13, in
    cases with dht."""
    rows = 7, 8, 17, 18, 19
    for e, row in enumerate(rows):
        text(310 + 80 * e, 24, "row %d" % row, "middle")
    for t, (name, shows) in enumerate((("one rank", ()),
                                       ("four ranks, a chunk each", (7, 8, 18, 19)),
                                       ("two ranks, many chunks", (7, 8, 17)),
                                       ("four ranks, many chunks", rows))):
        text(250, 56 + 38 * t, name, "end")
        for e, row in enumerate(rows):
            rect(276 + 80 * e, 38 + 38 * t, 68, 28, "fill:var(--b);stroke:var(--b)"
                 if row in shows else "fill:none;stroke:var(--line)")


# ---- B
@figure(720, 346)
def log():
    """A row has 1 if backward, 1 if GDN, measured / predicted time, and a text."""
    with open("build/book/results/log.tsv", encoding="utf-8") as file:
        rows = [s.rstrip("\n").split(" ", 3) for s in file]
    pairs = [(back == "1", "b" if gdn == "1" else "a", float(ratio), what)
             for back, gdn, ratio, what in rows]
    f = Frame(0, 1, math.log10(0.75), math.log10(7.5), 46, 708, 64, 300)
    step = (f.x1 - f.x0 - 24) / (len(pairs) - 1)
    soft(4, 14, "measured / predicted")
    for at in (1, 1.5, 2, 3, 5, 7):
        y = f.y(at)
        if at == 1:
            line(f.x0, y, f.x1, y, "ink", "stroke-dasharray:5 4")
        else:
            line(f.x0, y, f.x1, y)
        soft(f.x0 - 8, y + 4, "%g" % at, "end")
    first = sum(not back for back, *_ in pairs)
    cut = f.x0 + 12 + (first - 0.5) * step
    line(cut, 22, cut, f.y1)
    for x, name, part in ((f.x0 + 110, "forward", pairs[:first]),
                          (cut + 8, "backward", pairs[first:])):
        near = sum(abs(math.log(p[2])) <= math.log(1.1) for p in part)
        faster = sum(math.log(p[2]) < -math.log(1.1) for p in part)
        text(x, 34, "%s: %d predictions" % (name, len(part)))
        soft(x, 52, "%d within 10 %%, %d slower, %d faster"
             % (near, len(part) - near - faster, faster))
    for i, (_, ink, ratio, what) in enumerate(pairs):
        x, y = f.x0 + 12 + i * step, f.y(ratio)
        dot(x, y, 3.4, ink)
        if ratio > 1.6:
            text(x + 9, y + (12 if y < f.y0 + 30 else 4), what[:39])
    soft((f.x0 + f.x1) / 2, f.y1 + 20,
         "table rows with predicted and measured time, in the tables' order", "middle")
    for x, ink, name in ((f.x0 + 12, "a", "one gate per channel (KDA)"),
                         (f.x0 + 212, "b", "one gate per head (GDN)")):
        rect(x, f.y1 + 32, 10, 10, "fill:var(--%s)" % ink)
        soft(x + 16, f.y1 + 41, name)
