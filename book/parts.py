"""parts.py -- prints times of passes over ranks beside lower bounds and predictions,
and times and counters of chapter 17's kernels.

A bound is computed from the kernels' bytes or measured on a pass without messages.
The times are from the newest table in bench/results/ that has the case.

Book: chapters 17 and 20, which show the output.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../bench")
from records import read_tsv, results    # noqa: E402

TIMES = "us us_p10 replay unsent unsent_beside front sum exchange main gather_us"
RANKS = 4
H200_RUN = [f for f in results() if f.endswith("2026-11-21-c7198c2-4gpu.tsv")][0]


class Row:
    """A row of a table. Times are in microseconds."""
    def __init__(self, cells, file):
        for name in (TIMES + " copy T HV head_parts").split():
            setattr(self, name, float(cells.get(name) or 0))
        self.key, self.form, self.file = (cells["case"], cells["stage"]), \
            cells.get("form"), file
        machine = cells["machine"].partition("NVIDIA ")
        self.card = (machine[2] or machine[0]).split()[0]      # H100


RECORDS = [(cells, file) for file in results() for cells in read_tsv(file)]
ROWS = [Row(cells, file) for cells, file in RECORDS
        if cells["kind"] == "time" and cells.get("head_parts") in ("1", "2")
        and not cells.get("peer") and float(cells.get("us") or 0) > 0
        and not cells.get("form", "").endswith(("_bf16", "_window"))]   # were removed


def newest(case, stage="08_forward", form=None, groups=1, file=None):
    """Returns the fastest row for this case, stage and exchange algorithm `form` (None:
    any), with the heads in `groups` groups. The row is from `file`. If `file` is None,
    the row is from the newest table that has such a row."""
    rows = [r for r in ROWS if r.key == (case, stage) and form in (None, r.form)
            and r.head_parts == groups and file in (None, r.file)]
    if not rows:
        sys.exit("parts.py: bench/results: found no %s %s %s" % (case, stage, form))
    return min((r for r in rows if r.file == rows[-1].file), key=lambda r: r.us)


def say(**values):
    """Prints the values that the text of chapter 20 quotes."""
    for name, x in values.items():
        print("@20/%s %s" % (name, x))


# Bytes per token and head of chapter 18's kernels, for K = V = 128, C = 64 and HV = H.
# The terms of KDA's forward are the factors, map and scan. Those of its backward are
# dh_ext (only over several ranks), states, reverse scan and finish.
FORWARD = {"KDA": 1704 + 856 + 1448, "GDN": 1197 + 602 + 1198}
BACKWARD = {"KDA": 1192 + 1624 + 1960 + 3608, "GDN": 942 + 5922}


def floors():
    print("== 20-floors\ntime of a pass over ranks, and its floor: the time to move "
          "its kernels' bytes\nat the rate of a copy in the same run; microseconds\n")
    print("GPUs     pass        T per rank   fastest form     time   floor  "
          "floor / time")
    for i, (case, name, ranks) in enumerate((
            ("kda_2x1_bare", "KDA forward", 2), ("gdn_2x1_bare", "GDN forward", 2),
            ("kda_2x1", "KDA both", 2), ("gdn_2x1", "GDN both", 2),
            ("kda_2x1_t4096_bare", "KDA forward", 2),
            ("kda_4x1_bare", "KDA forward", 4), ("gdn_4x1_bare", "GDN forward", 4))):
        fw = newest(case)
        us, moved = fw.us, FORWARD[name[:3]]
        if "both" in name:
            us += newest(case, "13_backward").us
            moved += BACKWARD[name[:3]]
        floor = 1e6 * fw.T / ranks * fw.HV * moved / fw.copy
        share = 100 * floor / us
        print("%d %-6s %-13s %8.0f   %-12s %8.0f %7.0f %11.0f %%" % (
            ranks, fw.card, name, fw.T / ranks, fw.form, us, floor, share))
        if i == 0:
            say(floor_share="%.0f" % share, exchange_share="%.1f" % (
                100 * fw.exchange / us), floor_card=fw.card, floor_us="%.0f" % floor,
                floor_time="%.0f" % us, floor_copy="%.2f" % (fw.copy / 1e12))
        if i == 4:
            say(short_us="%.0f" % floor, short_time="%.0f" % us)


def replays():
    """Compares plain calls to CUDA graph replays, for few tokens and a busy host."""
    cases = "kda_2x1_t1024_bare", "kda_2x1_t4096_bare"
    print("== 20-replays\nKDA forward on 2 GPUs, 32 heads, nothing kept, a busy host: "
          "microseconds\n")
    print("GPUs     T per rank   form            median   fastest tenth   graph replay")
    for case in cases:
        for f, form in enumerate(("all_gather", "chain")):
            r = newest(case, form=form)
            print("2 %-6s %10.0f   %-12s %9.0f %15.0f %14.0f" % (
                r.card, r.T / 2, form, r.us, r.us_p10, r.replay))
            if case == cases[0] and f:
                say(**{"late%d" % f: "%.0f" % r.us, "late%d_graph" % f: "%.0f" % r.replay})
    gather = newest(cases[1], form="all_gather")
    say(fuse_all="%.0f" % gather.exchange, fuse_gather="%.0f" % gather.gather_us,
        late_card=gather.card,
        hop_sent="%.0f" % newest("kda_2x1_cuts_46_54_bare", form="chain").exchange)


def chosen():
    """Compares all-gather with chain, two groups of heads with one, and three cuts of T."""
    for name, case in (("long2", "kda_2x1_t131072_bare"),
                       ("long4", "kda_4x1_t131072_bare")):
        for f, end in ("chain", ""), ("all_gather", "_gather"):
            r = newest(case, form=f)
            say(**{name + end: "%.3f" % (r.us / 1e3)})
        say(**{name + "_card": r.card})
    for way, stage in ("", "08_forward"), ("_back", "13_backward"):
        two = newest("kda_4x1_t131072", stage, groups=2)
        one = newest("kda_4x1_t131072", stage, file=two.file)
        say(**{"heads_two" + way: "%.3f" % (two.us / 1e3),
               "heads_one" + way: "%.3f" % (one.us / 1e3)})
    gather, chain = (newest("kda_4x1_short1024", form=f).us / 1e3
                     for f in ("all_gather", "chain"))
    say(short_gather="%.3f" % gather, short_chain="%.3f" % chain)
    equal, shares, far = (newest(case, form="chain") for case in (
        "kda_2x1_bare", "kda_2x1_cuts_47_53_bare", "kda_2x1_cuts_46_54_bare"))
    say(equal_ms="%.3f" % (equal.us / 1e3), equal_wait="%.0f" % equal.exchange,
        shares_ms="%.3f" % (shares.us / 1e3), shares_wait="%.0f" % shares.exchange,
        shares_card=shares.card, far_ms="%.3f" % (far.us / 1e3))
    four_gpus = newest("kda_4x1_bare", form="chain")
    say(four_card=four_gpus.card, four_hop="%.1f" % (four_gpus.exchange / (RANKS - 1)))


def maps():
    """Prints by how many percent the maps increase the work. Compares half of one GPU's
    time to two parts of two GPUs' time: `main`, and `front` or (in backward) `sum`."""
    for way, stage in ("fwd_", "08_forward"), ("back_", "13_backward"):
        one = newest("kda_1x1_t131072", stage)
        two = newest("kda_2x1_t131072", stage, "chain")
        before = two.front if way == "fwd_" else two.sum
        more = 100 * ((before + two.main) / (one.us / 2) - 1)
        say(**{way + "ms": "%.2f" % (one.us / 1e3), way + "card": two.card,
               way + "more": "%.0f" % more, way + "times": "%.2f" % (one.us / two.us),
               way + "ns": "%.2f" % (1e3 * one.us / one.T / one.HV)})


def unsent():
    """Prints times with and without messages. Overlap can gain only the difference."""
    print("== 20-unsent\nKDA forward on 4 GPUs, 32 heads, nothing kept, called "
          "alternately with and\nwithout messages; microseconds\n")
    print("GPUs     T per rank   form             with   without       maximum gain")
    for T in 1024, 4096, 16384:
        for form in "all_gather", "chain":
            r = newest("kda_4x1_short%d" % T, form=form)
            share = "%.0f" % (100 * (1 - r.unsent / r.unsent_beside))
            print("4 %-6s %10d   %-12s %8.0f %9.0f %16s %%" % (
                r.card, T, form, r.unsent_beside, r.unsent, share))
            if form == "chain":
                say(**{"unsent%d" % T: share})
    say(unsent_card=r.card)


def line_through(points):
    """Fits t = a + bytes / bw by least squares. Returns a in us, bw in bytes per us."""
    x, y = ([float(p[i]) for p in points] for i in (0, 1))
    mx, my = sum(x) / len(x), sum(y) / len(y)
    slope = (sum((u - mx) * (v - my) for u, v in zip(x, y)) /
             sum((u - mx) ** 2 for u in x))
    return my - slope * mx, 1 / slope


def wires():
    """Fits messages and all-gathers on four H200s. The model has these fits, rounded."""
    lines = [line.rstrip("\n").split("\t") for line in open("book/data/collectives.tsv")
             if line[0].isdigit()]
    payload = [float(c[0].split()[0]) * 1024 ** (1 + ("MiB" in c[0])) for c in lines]
    model = open("tests/20_clusters/model.h").read()
    print("== 20-fit\ntimes on four H200s, and the line fitted to them; microseconds\n")
    print("what                            bytes received       time       line")
    for name, what, least, column, times in (
            ("inside", "a message", 2 << 20, 3, 0.5),
            ("gathered", "an all-gather of four", 3 << 20, 1, RANKS - 1)):
        points = [(b * times, float(c[column])) for b, c in zip(payload, lines)]
        a, bw = line_through([p for p in points if p[0] >= least])
        for size, us in points:
            print("%-30s %12.0f KiB %10.1f %10s" % (
                what, size / 1024, us,
                "%.1f" % (a + size / bw) if size >= least else "-"))
        if "%s = { %.1f, %.0fe3 }" % (name, a, bw / 1e3) not in model:
            sys.exit("parts.py: tests/20_clusters/model.h: expected %s = { %.1f, %.0fe3 }"
                     % (name, a, bw / 1e3))


def four():
    """Compares the model's forms on four ranks with whole passes."""
    model = open("tests/20_clusters/model.h").read()
    (a, bw), (all_a, all_bw) = (
        [float(x) for x in model.split(name + " = { ")[1].split(" }")[0].split(", ")]
        for name in ("inside", "gathered"))
    apply, compose = (float(model.split(name + "(void) { return ")[1].split(";")[0])
                      for name in ("t_MS", "t_MM"))
    state = 4 * 32 * 128 * 128                   # bytes; a map has two such matrices
    block = state / 4 / bw
    us = {"chain": 3 * (a + state / bw) + 2 * apply,
          "all_gather": all_a + 3 * 2 * state / all_bw + 2 * apply,
          "scan": 2 * (a + 2 * state / bw) + 2 * compose,
          "pipeline": 3 * (a + block) + apply / 2 + 3 * max(block, apply / 4)}
    print("== 20-forms\nthe exchange of a forward of KDA on four GPUs, 32 heads, nothing "
          "kept, by form:\nthe model, and medians of the slowest rank, which include the "
          "wait for a later rank;\nmicroseconds, and in brackets the difference from the "
          "chain\n")
    runs = [(newest(case, form="chain", file=file).file, case) for case, file in (
        ("kda_4x1_bare", H200_RUN), ("kda_4x1_t131072_bare", None))]
    rows = [[newest(case, form=form, file=file) for form in us] for file, case in runs]
    print("form              model" + "".join("%17s" % ("4 " + r[0].card) for r in rows))
    for i, form in enumerate(us):
        cells = [us[form] - us["chain"]] + [r[i].exchange - r[0].exchange for r in rows]
        all_us = [us[form]] + [r[i].exchange for r in rows]
        print("%-12s" % form + "".join("%10.0f (%+4.0f)" % c for c in zip(all_us, cells)))
    for r in rows:
        print("in the pass: the gather alone %.0f us on 4 %s" % (r[1].gather_us, r[1].card))
    r, chain = rows[0][0], us.pop("chain")
    say(chain_message="%.1f" % ((r.exchange - 2 * apply) / 3),
        pipe_step="%.0f" % (rows[0][3].exchange / 6), pass_us="%.0f" % r.us,
        pass_serial="%.0f" % (r.front + RANKS * r.main),
        pass_model="%.0f" % (r.front + r.sum + r.main + chain),
        model_spread="%.0f" % (max(us["all_gather"], us["scan"]) - chain))


def ladder():
    """Prints the newest times and counters of chapter 17's kernels (rungs) for T = 8192
    (128 chunks) and 96 heads, one block per head, and floors for 96 and 32 heads."""
    newest = {}
    for cells, _ in RECORDS:
        if cells.get("stage") == "17_ladder":
            newest.update(((cells["kind"], cells["variant"], cells.get("H"), name), x)
                          for name, x in cells.items() if x)

    def counted(rung, column):
        return float(newest["counter", rung, "96", column])

    def timed(column, heads="96"):
        return float(newest["time", "v1_thread", heads, column])

    def show(name, form, x):
        print("@ladder/%s %s" % (name, form % x))

    for rung in "v2_shared v3_mma v4_ldmatrix v5_async v6_swizzle v7_wgmma_sm90".split():
        v, chunks = rung[:2] + ".", 128 * 96
        for column in "conflicts", "wavefronts":
            show(v + column, "%.0f", counted(rung, column) / chunks)
        # "clocks" has all cycles per chunk, "active" the cycles in which the SM has a
        # block, "tensor" the cycles in which tensor cores are busy. Each of the four
        # schedulers issues in `issue` percent of the active cycles. The tensor cores
        # are busy in `tensor` percent of the active cycles.
        active = counted(rung, "instructions") / chunks / 4 / counted(rung, "issue") * 100
        show(v + "clocks", "%.0f", counted(rung, "cycles") / 128)
        show(v + "active", "%.0f", active)
        show(v + "tensor", "%.0f", counted(rung, "tensor") / 100 * active)
    copy, product = timed("copy"), timed("product")
    show("v1.ms", "%.0f", timed("us") / 1000)
    show("v1.local", "%.0f", counted("v1_thread", "local_sectors") * 32 / 1e9)
    show("copy", "%.1f", copy / 1e12)
    show("product", "%.0f", product / 1e12)
    show("balance", "%.0f", product / copy)
    for heads in "96", "32":
        show("floor" + heads, "%.0f", 1e6 * timed("bytes", heads) / timed("copy", heads))
    # At a latency of 0.7 us, each of 132 (or 96) SMs needs this many KiB in flight.
    for SMs in 132, 96:
        show("flight%d" % SMs, "%.0f", copy * 0.7e-6 / SMs / 1024)


ladder()
floors()
replays()
chosen()
maps()
unsent()
wires()
four()
