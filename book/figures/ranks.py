"""ranks.py -- draws the figures of Part III (many GPUs) and of pages outside the parts.

Book: chapters 14 and 20, users.md, the index, README.
"""
import csv

from plot import Frame, printed_rows
from svg import arrow, box, figure, line, mono, rect, rows_of, soft, text


# ---- 14: ranks of 5, 1, 0, 1 and 5 tokens, and the rows that each rank needs
CUTS = 0, 5, 6, 6, 7, 12


def halo_x(r, t):
    """Returns x of token t of rank r. Each rank before r, even if empty, adds 48."""
    return 104 + 35 * t + 48 * r


def halos(ink, needs, what):
    """Draws all tokens. Below them, for each pair (rank, first) in `needs`, draws the
    three tokens that this rank needs: first, first + 1 and first + 2."""
    holder = [r for r in range(5) for _ in range(CUTS[r], CUTS[r + 1])]
    text(4, 63, "held by")
    for r in range(5):
        text(halo_x(r, CUTS[r]), 20, "rank %d" % r)
        if CUTS[r] == CUTS[r + 1]:
            soft(halo_x(r, CUTS[r]), 37, "empty")
        for t in range(CUTS[r], CUTS[r + 1]):
            box(halo_x(r, t), 46, 32, 26, "line", "%d" % t)
    for (r, first), y, wash in zip(needs, (94, 134, 174), "bca"):
        text(4, y + 10, "rank %d needs" % r)
        soft(4, y + 26, "%s %d, %d, %d" % (what, first, first + 1, first + 2))
        line(4, y - 8, 716, y - 8)
        for t in range(first, first + 3):
            box(halo_x(holder[t], t), y, 32, 26, wash, "%d" % t)


@figure(720, 214)
def halo():
    halos("a", ((1, 2), (3, 3), (4, 4)), "rows")


@figure(720, 214)
def halo_back():
    halos("d", ((0, 5), (1, 6), (3, 7)), "dp")


# ---- 20
@figure(720, 346)
def forms():
    for left, name, down in ((50, "inside a node", (8, -2, 6, 6)),
                             (410, "between nodes", (0, 10, 6, 6))):
        rows = printed_rows("19-forms", name)
        f = Frame(0.25, 1.85, 1, 4, left, left + 225, 40, 300)
        text(left + 112, 24, name, "middle")
        f.rows()
        f.powers(2, 64, 2)
        f.axes("ranks")
        for k, form in enumerate(("all-gather", "chain", "pipelined", "scan")):
            f.curve([(r[0], r[k + 1]) for r in rows], "bdac"[k])
            f.name(rows[-1][k + 1], down[k], form)
    soft(4, 14, "microseconds")


@figure(720, 358)
def levels():
    def x(r):
        return 108 + r // 4 * 156 + r % 4 * 37

    text(4, 75, "inside")
    soft(4, 93, "NVLink")
    text(4, 236, "between")
    soft(4, 254, "network")
    for j in range(4):
        box(x(4 * j) - 21, 24, 153, 328, "line")
        text(x(4 * j) + 55, 16, "node %d" % j, "middle")
    for y, d in ((52, 1), (116, 2)):
        for r in range(d, 16):
            if r % 4 >= d:
                arrow(x(r - d), y, x(r), y + 40, "a")
    for y, d in ((224, 4), (288, 8)):
        for r in range(d, 16):
            arrow(x(r - d), y, x(r), y + 40, "b")
    for r in range(16):
        for step in range(3):
            box(x(r) - 15, 30 + 64 * step, 30, 22, "a", "" if step else "%d" % r)
            box(x(r) - 15, 202 + 64 * step, 30, 22, "b", "\u00bc")


@figure(720, 366)
def scaling():
    rows = printed_rows("19-levels", "tokens/rank")
    f = Frame(-0.1, 3.7, -2.2, 1.7, 70, 560, 20, 320)
    f.rows()
    f.powers(1, 4096, 4)
    main, maps, exchange, total = (list(c) for c in list(zip(*rows))[2:4] +
                                   list(zip(*rows))[5:7])
    work = [a + b for a, b in zip(main, maps)]
    # With a single rank, there is no map and no exchange.
    for values, first, ink, dash, down, name in (
            (main, 0, "c", "none", 10, "main pass"),
            (work, 1, "a", "none", -2, "work: main + map"),
            (exchange, 1, "b", "none", 10, "exchange"),
            (total, 0, "ink", "6 4", -6, "total")):
        f.curve([(r[0], v) for r, v in zip(rows, values)][first:], ink, dash)
        f.name(values[-1], down, name)
    f.axes("ranks, in nodes of 8 GPUs", "ms")


# ---- users.md, the index and README
@figure(720, 182)
def judge():
    for x, y, w, ink, name, more in (
            (4, 66, 140, "d", "a case", "sizes, options, arrays"),
            (192, 12, 160, "b", "your function", "bf16 or fp32"),
            (192, 120, 160, "a", "the recurrence", "token by token, double"),
            (412, 66, 140, "c", "compare", "per head and rank"),
            (580, 66, 136, "d", "the report", "first wrong element")):
        box(x, y, w, 50, ink)
        text(x + w / 2, y + 21, name, "middle")
        text(x + w / 2, y + 39, more, "middle")
    arrow(146, 82, 189, 40, "b")
    arrow(146, 100, 189, 142, "a")
    arrow(354, 40, 409, 82, "b")
    arrow(354, 142, 409, 100, "a")
    arrow(554, 91, 577, 91)


KINDS = (("embed logits gradients", "embedding, projections, loss",
          "fill:var(--code);stroke:var(--soft)"),
         ("14", "convolution", "fill:var(--wash-d);stroke:var(--d)"),
         ("02 03 10", "within chunks", "fill:var(--wash-c);stroke:var(--c)"),
         ("05 11", "affine map", "fill:var(--a);stroke:var(--a)"),
         ("07", "exchange", "fill:var(--b);stroke:var(--b)"),
         ("04 09", "scan over chunks", "fill:var(--wash-a);stroke:var(--a)"))


@figure(720, 196)
def run():
    rows = [(int(rank), stage.replace(",", " ").split(" ")[0], float(start), float(ms))
            for rank, stage, start, ms, *_ in rows_of("book/data/run.tsv", header=True)]
    end = max(start + ms for _, _, start, ms in rows)
    for rank, stage, start, ms in rows:
        style = next((s for stages, _, s in KINDS if stage in stages), KINDS[0][2])
        rect(60 + 656 * start / end, 8 + 28 * rank, 656 * ms / end, 20, style)
    for r in range(4):
        soft(52, 22 + 28 * r, "rank %d" % r, "end")
    soft(60, 138, "0", "middle")
    soft(716, 138, "%.0f ms" % end, "end")
    for k, (_, name, style) in enumerate(KINDS):
        x, y = 60 + 230 * (k % 3), 152 + 22 * (k // 3)
        rect(x, y, 14, 14, style)
        soft(x + 20, y + 12, name)


def best(record, stage, variant, model, T, H, ranks):
    """Returns the least time, in ms, among a record's rows that have these values."""
    with open("bench/results/%s.tsv" % record, encoding="utf-8", newline="") as f:
        rows = csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE)
        want = {"stage": stage, "variant": variant, "model": model, "T": T, "H": H,
                "ranks": ranks, "save": "recompute", "gate": "live", "sequences": "1"}
        return min(float(r["us"]) for r in rows if want.items() <= r.items()) / 1e3


@figure(720, 346)
def measured():
    """All points of the left plot are from one run."""
    f = Frame(-0.06, 0.66, 0, 1.5, 40, 330, 46, 270)
    text(40, 16, "KDA, 131072 tokens, 32 heads")
    soft(40, 34, "ms; dotted: ideal; squares: FLA")
    f.rows()
    f.powers(1, 4, 2)
    f.axes("GPUs")
    for stage, variant, name, ink in (
            ("13_backward", "v4_scans_finish", "backward", "b"),
            ("08_forward", "v3_prepare_scan", "forward", "a")):
        run = "2026-11-27l-aba2e8e8-4gpu", stage
        ours = [(R, best(*run, variant, "kda", "131072", "32", "%d" % R))
                for R in (1, 2, 4)]
        for R, ms in ours:
            mono(f.x(R) + 4, f.y(ms) + (16 if R == 4 else -7), "%.2f" % ms, "start")
        f.curve([(R, ours[0][1] / R) for R, _ in ours], "soft", "3 4")
        f.curve(ours, ink)
        text(f.x(1) + 4, f.y(ours[0][1]) + 37, name)
        fla = best(*run, "fla_kda_cp4", "kda", "131072", "32", "4")
        rect(f.x(4) - 4, f.y(fla) - 4, 8, 8, "fill:var(--d)")
        mono(f.x(4) + 8, f.y(fla) + 4, "FLA %.2f" % fla, "start")
    text(430, 16, "One GPU")
    soft(430, 34, "ms (multiple of ours)")
    y = 44
    for title, stage, model, T, H, *bars in (
            ("KDA, 8192 tokens, 96 heads, forward", "08_forward", "kda", "8192", "96",
             ("ours", "v5_one_kernel"), ("FlashKDA", "flashkda"), ("FLA", "fla_kda")),
            ("KDA, backward", "13_backward", "kda", "8192", "96", ("ours", "v5_steps"),
             ("FLA", "fla_kda")),
            ("GDN, 32768 tokens, 16/32 heads, forward", "08_forward", "gdn", "32768",
             "16", ("ours", "v3_prepare_scan"),
             ("FlashQLA", "flash_qla, ready inputs, kept"), ("FLA", "fla_gdn")),
            ("GDN, backward", "13_backward", "gdn", "32768", "16",
             ("ours", "v4_scans_finish"), ("FlashQLA", "flash_qla, ready inputs"),
             ("FLA", "fla_gdn"))):
        text(430, y + 12, title)
        y += 18
        times = [(name, best("2026-11-27m-aba2e8e8-1gpu", stage, variant, model, T, H,
                             "1")) for name, variant in bars]
        for name, ms in times:
            times_ours = ms / times[0][1]
            soft(494, y + 11, name, "end")
            rect(500, y, 15 * times_ours, 14,
                 "fill:var(--%s)" % ("a" if name == "ours" else "d"))
            mono(506 + 15 * times_ours, y + 11, "%.3f ms (%.1f)" % (ms, times_ours),
                 "start")
            y += 17
        y += 8
