#!/usr/bin/env python3
# tables.py -- writes recorded runs as Markdown tables, for the book and README.md.
# Book: chapters 01 to 20.
#
#   tables.py DIR                 writes all tables into DIR, from bench/results
#   tables.py --readme [--check]  writes (or compares) README.md's tables, between marks
#
# The first line of a record names its columns. Column `kind` says what a row records.
# A row's state says which kernels were measured. From best to worst, the states are
# FRESH (the present kernels), UNCOMPARED (unknown) and STALE (other kernels).
# Tables use a case's latest row in the best state. --readme needs built kernels.
import glob
import itertools
import math
import os
import re
import shutil
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT + "/bench")
from records import Digests, read_lines, read_tsv, results    # noqa: E402

NB = "\u00a0"                                   # no-break space
STALE, UNCOMPARED, FRESH = range(3)
STATES = {"stale": STALE, "not comparable": UNCOMPARED, "fresh": FRESH}
KEPT = {"all": ", save all", "light": ", light", "none": ", nothing kept"}
NUMBERS = "us us_p10 us_p90 bytes flops copy product T H HV K V C sequences segments " \
          "ranks front sum exchange main gather_us saved head_parts " \
          "reuse_M"
WHOLE = "08_forward", "13_backward", "forward_backward"
PAIR = "08_forward", "13_backward"


def number(text):
    found = re.match(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text)
    return float(found[0]) if found else 0.0


def fastest(rows):
    return min(rows, key=lambda r: r.us, default=None)


def newest(rows, stale_too):
    """Returns the fastest row in the best state; a STALE row only if `stale_too`, from the
    latest run."""
    state = max([r.state for r in rows], default=STALE)
    if state == STALE and rows:
        last = max((r["date"], r.file) for r in rows)
        rows = [r for r in rows if (r["date"], r.file) == last]
    return fastest(r for r in rows if r.state == state and (state != STALE or stale_too))


def unique(items):
    return list(dict.fromkeys(items))


def ms(us):
    return "%.3f" % (us / 1e3)


def text(form, value):
    return form % value if value else ""


class Row:
    """A row of a record: r["us"] is the text in column `us`, and r.us is its number."""
    digests, built = None, False

    def __init__(self, cells, file):
        self.cells, self.file = cells, file
        for name in NUMBERS.split():
            setattr(self, name, number(self[name]))
        self.stage, self.peer, self.save = self["stage"], self["peer"], self["save"]
        self.variant = Row.digests.present_name(self.stage, self["variant"])
        self.model, self.gate = self["model"], self["gate"]
        self.theirs = self.peer != ""
        self.backward = number(self["pass"]) != 0
        self.way = "backward" if self.backward or "back" in self.stage else "forward"
        if self.way == "backward" and self.save == "none":
            self.save = "recompute"             # the mode of its forward
        self.way = "both" if self.stage == "forward_backward" else self.way
        self.machine = "%s, %s, %s" % (self["machine"], self["driver"], self["date"])
        self.place = "%s, commit `%s`" % (self.machine, self["commit"])
        self.run = "%s, `%s`" % (self.place, file)
        self.set = file, self["case"]
        self.form = self["form"]
        self.case = self.in_words()
        self.is_layer = self.ranks > 1 or self["front"] != ""
        self.ranks = max(1, int(self.ranks))
        cut = not self.peer and self.segments > self.sequences
        self.segments = int(self.segments) if cut else 1

    def __getitem__(self, name):
        return self.cells.get(name) or ""

    def value(self, name):
        return number(self[name])

    def percent(self, name):
        return "%.0f %%" % number(self[name])

    def gpu(self):
        """Returns the name of the GPU, without the number of GPUs before the name."""
        return re.sub(r"^\d+ (x|processes on one) ", "", self["machine"])

    def card(self):
        """Returns the model of the GPU, as in "H100"."""
        return self.gpu().removeprefix("NVIDIA ").split()[0]

    def gpus(self):
        """Returns the number of GPUs and their model, as in "4 H100"."""
        return "%d%s%s" % (self.ranks, NB, self.card())

    def lengths(self):
        return self["lengths"].replace("x", NB + "×" + NB).replace(",", ", ")

    def in_words(self):
        spike = self.stage == "15_scan"
        s = "%s, %s gates" % ("Spike-KDA" if spike else self.model.upper(), self.gate)
        s += ", T = %d, H = %d" % (self.T, self.H)
        s += ", HV = %d" % self.HV if self.HV > self.H else ""
        if spike or (self.K, self.V) != (128, 128):
            s += ", K = %d, V = %d" % (self.K, self.V)
        s += ", C = %d" % self.C if spike or self.C != 64 else ""
        if self["lengths"]:
            s += ", lengths " + self.lengths()
        elif self.sequences > 1:
            s += ", %d sequences" % self.sequences
        s += text(", by %s", self["walk"])
        return (s + KEPT.get(self.save, "")).replace(" = ", NB + "=" + NB)

    def rank(self):
        """Returns the key for sorting by model (KDA first), T, ..., gates, segments."""
        models, gates = ("kda", "gdn"), ("live", "strong", "saturated")
        return (models.index(self.model) if self.model in models else 9, self.T, self.H,
                self.HV, self.K, gates.index(self.gate) if self.gate in gates else -1,
                self.model, "%d %s" % (self.sequences, self["lengths"] + self.save +
                                       self["walk"]),
                self.segments, self.stage, self.theirs, self.variant)

    def standing(self):
        """Returns STALE, UNCOMPARED or FRESH, from recorded and present digests."""
        def compared(digest, by, key):
            return STATES[Row.digests.state(key, digest, by)] if digest else UNCOMPARED
        known = Row.digests.rows
        state, key = STALE if Row.built else UNCOMPARED, (self.stage, self.variant)
        if key in known:
            state = compared(self["digest"], self["nvcc"], key)
        path = "path", self["path"]
        if path in known and compared(self["row"], "-", path) == STALE:
            return STALE
        if not self["comm"]:
            return state
        return min(state, compared(self["comm"], self["cc"], ("comm", "-")))

    def floor(self):
        """Returns the larger time in us: to move all bytes or to do all operations."""
        work = self.flops / self.product if self.product else 0
        return 1e6 * max(self.bytes / self.copy, work)

    def is_edge(self):
        """Returns whether T, on one rank, is 1 more or 1 less than a multiple of 16."""
        return self.ranks == 1 and self.T % 16 in (1, 15)


class Page:
    """A file of tables, with notes at its end that explain the marks of its rows."""
    pages = []

    def __init__(self, name):
        self.name, self.text = name, ""
        self.marks, self.others, self.runs = set(), [], {}
        Page.pages.append(self)

    def add(self, *lines):
        self.text += "".join(line + "\n" for line in lines)

    def row(self, *cells):                             # None: a cell without blanks
        self.add("|" + "".join(" |" if c is None else " %s |" % c for c in cells))

    def mark(self, state):
        self.marks.add(state)
        return "†" if state == STALE else ""

    def whose(self, r):
        if r.peer:
            self.others.append(r.peer)
        return "`%s`%s" % (r.variant, "" if r.peer else self.mark(r.state))

    def ms(self, r):
        return ms(r.us) + self.mark(r.state) if r else ""

    def share(self, r):
        """Returns floor / time in percent. It exceeds 100 if arrays are cached."""
        p = 100 * r.floor() / r.us
        if p > 100.5:
            self.marks.add("cached")
        return ("%.1f" if p < 1 else "%.0f") % p + NB + "%"

    def run(self, r):
        """Returns a letter for the run of a row; rates() lists the letters."""
        self.runs.setdefault(r.run, []).append(r)
        return chr(97 + list(self.runs).index(r.run))

    def rates(self):
        def span(form, values):
            return " to ".join(unique(form % v for v in (min(values), max(values))))
        if self.runs:
            self.add("\n::: {.folded title=\"The runs, each with the rate of a copy and "
                     "of a product in bf16\"}")
        for i, (name, of) in enumerate(self.runs.items()):
            self.add("- *%c*: %s; %s TB/s, %s TFLOP/s" % (
                97 + i, name, span("%.2f", [r.copy / 1e12 for r in of]),
                span("%.0f", [r.product / 1e12 for r in of])))
        if self.runs:
            self.add(":::")

    def notes(self):
        if STALE in self.marks:
            self.add("\n† measured with an older version of the kernel.")
        if UNCOMPARED in self.marks:
            self.add("\nFor some rows it is not known whether the code has changed "
                     "since: another nvcc or gcc compiled the measured code.")
        if "cached" in self.marks:
            self.add("\nMore than 100 %: the call did not read all bytes that are "
                     "counted, or read them from L2.")
        if self.others:
            self.add("\nOthers: %s." % "; ".join(unique(self.others)))


class Records:
    """`kind` has all rows by kind. `rows` has the rows of kind "time" that tables use;
    `sorted` has `rows` in the order of the tables."""
    def __init__(self):
        self.kind, slots, standings, self.timed = {}, {}, {}, []
        for path in results():
            for cells in read_tsv(path):
                r = Row(cells, os.path.basename(path))
                self.kind.setdefault(r["kind"], []).append(r)
                if r["kind"] != "time" or r["form"].endswith(("_bf16", "_window")):
                    continue            # options that were removed
                r.state = r.standing()
                if r["case"] == "scan" or not r.us > 0 or \
                        self.choose(r, slots, standings):
                    self.timed.append(r)
        self.rows = self.of_newest_code(list(slots.values()))
        self.sorted = sorted(self.rows, key=Row.rank)
        self.most = max([r.ranks for r in self.rows if r.is_layer], default=0)

    def choose(self, r, slots, standings):
        key = r.set, r.stage
        if r.peer:                              # the state of our rows of this run
            r.state = standings.get(key, STALE)
        standings[key] = max(r.state, standings.get(key, STALE))
        key = (r.case, r.stage, r.variant, r.backward, r.is_layer, r.ranks, r.segments,
               r["form"], r.head_parts, r.reuse_M, r["cuts"])
        if key in slots and slots[key].state > r.state:
            return False
        if r.stage == "07_merge" and r.segments == 1:       # no M is read
            r.bytes = r.flops = 0
        slots[key] = r
        return True

    def of_newest_code(self, rows):
        """Of KCP's rows of a whole layer, keeps only those with the best state and,
        within that state, the latest day."""
        newest = {}
        for r in rows:
            key = r.case, r.stage, r.ranks
            if r.is_layer and not r.theirs:
                newest[key] = max((r.state, r["date"]), newest.get(key, (STALE, "")))
        return [r for r in rows if r.theirs or not r.is_layer or
                (r.state, r["date"]) == newest[r.case, r.stage, r.ranks]]

    def of(self, kind):
        return self.kind.get(kind, [])

    def find(self, **want):
        return [r for r in self.rows
                if all(getattr(r, name) == value for name, value in want.items())]

    def case(self, r):
        """Returns the case and, if KCP split it, the number of segments."""
        like = self.find(theirs=False, set=r.set) if r.theirs else [r]
        n = like[0].segments if like else 1
        return r.case + (", %d segments" % n if n > 1 else "")

    def alone(self, r):
        """Returns KCP's least time on one GPU for this case; 0 if no plan of one segment
        was timed, because other plans may be much slower."""
        q = [x for x in self.find(theirs=False, ranks=1, case=r.case, stage=r.stage,
                                  way=r.way) if x.gpu() == r.gpu()]
        return fastest(q).us if any(x.segments == 1 for x in q) else 0

    def times_alone(self, r):
        t = self.alone(r)
        return text("%.2f", t / r.us if r.ranks > 1 else 0)


# ---- chapters 01 to 18: each stage on one GPU, and whole layers

def recorded_in(rows):
    cases = {}
    for r in rows:
        cases.setdefault(r.run, []).append("`%s`" % r["case"])
    return "; ".join("%s: %s" % (run, ", ".join(unique(of))) for run, of in cases.items())


def stage_tables(d):
    stages = {}
    for r in d.sorted:
        if not r.is_layer and r.stage not in WHOLE and (r.peer or has_source(r)):
            stages.setdefault(r.stage, {}).setdefault(d.case(r), []).append(r)
    for stage, cases in stages.items():
        p = Page(stage + ".md")
        for case, rows in cases.items():
            stage_case(p, case, rows)
        p.notes()


def stage_case(p, case, rows):
    p.add("\n**%s.** Recorded on %s; on the %s a copy moved %.2f TB/s and a bf16 product "
          "did %.0f TFLOP/s.\n" % (case, recorded_in(rows), rows[0].card(),
                                   rows[0].copy / 1e12, rows[0].product / 1e12),
          "| variant | pass | µs | 10 to 90 % | GB/s | TFLOP/s | floor / time | GPU |",
          "|:-----|:---|---:|----:|---:|---:|---:|:--|")
    for r in rows:
        if r.stage == "12_h0":       # one segment: only one state is copied
            r.bytes = 8 * r.HV * r.K * r.V
        rates = [None] * 3
        if r.bytes and not r.peer:
            rates = ["%.0f" % (r.bytes / r.us / 1e3),
                     text("%.1f", r.flops / r.us / 1e6), p.share(r)]
        p.row(p.whose(r), r.way, "%.1f" % r.us,
              "%.1f%sto%s%.1f" % (r.us_p10, NB, NB, r.us_p90), *rates, r.card())


def whole_table(d, stage):
    p, last = Page(stage + ".md"), ""
    for r in d.sorted:
        if r.is_layer or r.stage != stage or r.is_edge():
            continue
        if not last:
            p.add("| case | pass | kernel | ms | 10 to 90 % | floor / time "
                  "| fastest peer / ours | workspace, saved: GiB | run |",
                  "|:-------|:---|:------|---:|-----:|---:|---:|---:|:---|")
        peer = None if r.theirs else \
            fastest(d.find(theirs=True, set=r.set, stage=r.stage, ranks=r.ranks))
        room = number(r["work"]) / 2**30, r.saved / 2**30
        p.row("" if last == d.case(r) else d.case(r), r.way, p.whose(r),
              ms(r.us), ms(r.us_p10) + NB + "to" + NB + ms(r.us_p90),
              p.share(r) if r.bytes else "", text("%.2f", peer and peer.us / r.us),
              "%.2f, %.2f" % room if r["work"] else "", p.run(r))
        last = d.case(r)
    p.rates()
    p.notes()


def mode_table(d):
    """Chapter 18: lists the bytes and times of each mode (what forward saves)."""
    p, cases = Page("18-modes.md"), {}
    for r in d.sorted:
        if r.stage in PAIR and r.save not in ("", "none") and not (r.is_layer or r.peer):
            case = d.case(r).replace(KEPT.get(r.save, "\n"), "")
            cases.setdefault(case, {})[r.save, r.stage] = r
    p.add("| case | mode | block | workspace, forward | backward | forward, ms "
          "| backward, ms | both | run |",
          "|:-----|:-----|---:|---:|---:|---:|---:|---:|:---|")
    for case, at in cases.items():
        modes = [m for m in ("recompute", "all") if any(m == k for k, _ in at)]
        for mode in modes if modes != ["recompute"] else ():
            f, b = (at.get((mode, s)) for s in PAIR)
            sizes = ["%.0f" % (number(r[c]) / (r.T * r.HV))
                     if r and (r[c] or c == "saved") else ""
                     for r, c in ((b, "saved"), (f, "work"), (b, "work"))]
            p.row(case if mode == modes[0] else "", "save all" if mode == "all" else mode,
                  *sizes, p.ms(f), p.ms(b), ms(f.us + b.us) if f and b else "",
                  p.run(b or f))
    p.rates()
    p.notes()


def bound_table(d):
    """Chapter 18: lists, for the newest run of each case, counters that show what bounds
    forward on packed sequences."""
    p, cases = Page("18-bounds.md"), {}
    for r in d.of("counter"):
        if r["what"] and r["case"]:
            cases.setdefault(r["case"], {}).setdefault(r.file, []).append(r)
    timed = [r for r in d.timed if r.stage == "08_forward" and not r.peer]
    us = {(r["case"], r["machine"]): r.us for r in timed}
    lengths = {r["case"]: r.lengths() for r in timed}
    copy = {r["machine"]: r.copy for r in timed}
    p.add("| sequences | kernel | instructions per chunk and head, thousands | issue "
          "| tensor | shared memory | warps | waits most for | its bytes, ms "
          "| clocks, thousands |", "|:--|:--|--:|--:|--:|--:|--:|:--|--:|--:|")
    runs = []
    for case, files in cases.items():
        rows = list(files.values())[-1]
        machine = rows[0]["machine"]
        if case not in lengths or machine not in copy:
            continue
        both = "both" + text(", %.3f ms unprofiled", us.get((case, machine), 0) / 1e3)
        p.row(lengths[case], both, *[None] * 8)
        for r in rows:
            # wavefronts / cycles: how busy shared memory is, on average over 132 SMs.
            p.row(None, "`%s`" % r["what"],
                  "%.1f" % (r.value("instructions") / (r.T / 64 * r.HV) / 1e3),
                  r.percent("issue"), r.percent("tensor"),
                  "%.0f %%" % (r.value("wavefronts") / r.value("cycles") / 1.32)
                  if r["cycles"] else "", r.percent("warps"), r["stalled"],
                  text("%.3f", 1e3 * r.value("dram_bytes") / copy[machine]),
                  text("%.1f", r.value("cycles") / 1e3))
        runs.append(rows[-1].run)
    p.add("\nCounted on %s." % "; ".join(unique(runs)))


def roofline(d):
    """Writes the memory and tensor rates, then operations per byte and the highest
    TFLOP/s of every variant. Whole passes must be of KDA with 8192 tokens and 96 heads
    and, except *_stages, must have run on the H200, whose memory rate is the roof."""
    p, at = Page("roofline.tsv"), {}
    for r in d.rows:
        case = r.model, r.T, r.HV, r["lengths"]
        is_taught = r.variant.endswith("_stages")
        if r.stage in PAIR and (case != ("kda", 8192, 96, "") or
                                not is_taught and r.gpu() != "NVIDIA H200"):
            continue
        if not r.is_layer and not r.peer and r.flops and r.bytes:
            key = r.stage[:2] + "/" + r.variant + "'" * r.backward
            if key not in at or r.flops / r.us > at[key].flops / at[key].us:
                at[key] = r
    if d.rows:
        p.add("roof %.4g %.4g" % (max(r.copy for r in d.rows) / 1e12,
                                  max(r.product for r in d.rows) / 1e12))
    p.add(*sorted("%s %.4g %.4g" % (k, r.flops / r.bytes, r.flops / r.us / 1e6)
                  for k, r in at.items()))


# ---- chapter 20: whole layers over ranks

def plan_of(r):
    n = r.segments / r.ranks
    s = "%g segments" % n if n > 1 else "one segment"
    s += " per rank" if r.ranks > 1 else ""
    s += ", heads in %d" % r.head_parts if r.head_parts > 1 else ""
    s += ", M kept" if r.reuse_M else ""
    return s + (r["cuts"] and ", shares " + r["cuts"].replace(",", NB + ":" + NB))


def rank_table(d):
    """Lists KCP's fastest row per pass and number of GPUs, then rows of other systems."""
    rest, long = Page("19.md"), Page("19-long.md")
    layers = [r for r in d.sorted if r.is_layer]
    kinds = [("08_forward", "forward"), ("13_backward", "backward"),
             ("forward_backward", "both"), ("16_family", "forward"),
             ("16_family", "backward")]
    for case in unique(r.case for r in layers if d.most > 1):
        of = [r for r in d.rows if r.is_layer and r.case == case]
        places = "; ".join(unique(r.place for r in of))
        p = long if case == "KDA, live gates, T = 131072, H = 32".replace(
            " = ", NB + "=" + NB) else rest
        p.add("\n%s; %s. Milliseconds.\n" % (case, places),
              "| pass | GPUs | kernel | fastest plan | time | front | t_sum "
              "| t_exchange | t_main | times one GPU |",
              "|:----|--:|:--------|:-------------|---:|---:|---:|----:|---:|----:|")
        key = {r: ((r.stage, r.way), r.ranks, r.peer != "") for r in of}
        for r in sorted((r for r in of if key[r][0] in kinds),
                        key=lambda r: (kinds.index(key[r][0]), key[r][1:])):
            head = r.way, r.gpus(), p.whose(r)
            if r.peer:
                p.row(*head, None, ms(r.us), *[None] * 5)
            elif r.us <= min(q.us for q in of if key[q] == key[r]):
                parts = map(ms, (r.front, r.sum, r.exchange, r.main))
                p.row(*head, (r.form + ", " if r.ranks > 1 else "") + plan_of(r),
                      ms(r.us), *parts if r.main else [None] * 4, d.times_alone(r))
    long.notes()
    rest.notes()


# ---- chapter 15: time and memory of walk, scan and chunks

def walk_tables(d):
    p, plain, versions = Page("15-forms.md"), Page("15-forms.tsv"), Page("15_scan.md")
    best, tiles, places = {}, {}, {}
    for r in (r for r in d.of("time") if r["case"] == "scan" and r.us > 0):
        form = "chunks"
        if r.stage == "15_scan":
            form = {"sequential": "walk", "scan": "scan"}.get(r["walk"], "auto")
        places.setdefault(r.file, r.run)
        key = int(r.K), int(r.HV), int(r.T), r.backward or "back" in r.stage
        if form == "scan":
            tiles.setdefault((*key, int(r.C)), {})[r.variant] = r
        of = best.setdefault(key, {})
        if form not in of or (r.state, -r.us) > (of[form].state, -of[form].us):
            of[form] = r
    on = "Recorded on %s. Milliseconds" % "; ".join(places.values())
    p.add(on + "; the scan's time is that of its fastest tile $C$. MiB: memory for "
          "work and saved states that a call needs beside inputs and outputs.\n",
          "| $K$ | heads | $T$ | pass | walk | scan | scan's $C$ | auto | chunks "
          "| walk, MiB | scan, MiB | chunks, MiB | fastest |",
          "|--:|--:|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|:--|")
    for key, of in sorted(best.items()):
        walk, scan, auto, chunks = map(of.get, ("walk", "scan", "auto", "chunks"))
        if not walk or not (scan or chunks):
            continue
        forms = walk, scan, chunks
        p.row(*key[:3], walk.way, p.ms(walk), p.ms(scan), "%d" % scan.C if scan else "",
              p.ms(auto), p.ms(chunks),
              *["%.1f" % ((number(r["work"]) + r.saved) / 2**20) if r else ""
                for r in forms],
              next(f for f in of if of[f] is fastest(r for r in forms if r)))
        plain.add("\t".join(["%d" % k for k in key] +
                            ["%.4f" % (r.us / 1e3 if r else 0) for r in forms]))
    p.notes()
    versions.add(on + " of the scan.\n", "| variant | $K$ | heads | $T$ | $C$ | pass | ms |",
                 "|:-----|--:|--:|--:|--:|:--|--:|")
    for (*sizes, _, C), of in sorted(tiles.items()):
        for v, r in of.items() if len(of) > 1 else ():
            versions.row("`%s`" % v, *sizes, C, r.way, versions.ms(r))
    versions.notes()


# ---- chapter 17: times and counters of each rung

def ladder_tables(d):
    count = {r.variant: r for r in d.of("counter") if r.stage == "17_ladder"}
    times, floor = {96: {}, 32: {}}, {}
    for r in d.timed:
        if r.stage == "17_ladder" and re.match("v[0-9]_", r.variant):
            times[int(r.H)][r.variant] = last = r
            floor[int(r.H)] = r.floor()
    rungs = sorted(times[96])
    us = [times[96][v].us for v in rungs]
    p, plain = Page("ladder.md"), Page("ladder.tsv")
    counters = Page("ladder-counters.md")

    def name(v):
        return "`%s`" % v.replace("_sm90", "")

    def time(t):
        return "%.2f ms" % (t / 1e3) if t >= 1000 else "%.0f µs" % t

    def counted(page, head, *rows):
        page.add("| rung %s| instructions per chunk, thousands | wavefronts of shared "
                 "memory per chunk | bank conflicts per chunk | issue | tensor | warps "
                 "| DRAM | waits most for |" % head,
                 "|:--|" + "--:|" * (7 + len(head) // 7) + ":--|")
        for v, *cells in rows:
            r = count[v]
            chunks = r.T / 64 * r.H
            page.row(name(v), *cells,
                     "%.1f" % (r.value("instructions") / chunks / 1000),
                     "%.0f" % (r.value("wavefronts") / chunks),
                     "%.0f" % (r.value("conflicts") / chunks), r.percent("issue"),
                     r.percent("tensor"), "%.1f %%" % r.value("warps"),
                     r.percent("dram"), r["stalled"])

    p.add("Recorded on %s; there a copy moved %.2f TB/s and a bf16 product did %.0f "
          "TFLOP/s. The floor is %.0f µs for 96 heads, %.0f µs for 32.\n" % (
              last.run, last.copy / 1e12, last.product / 1e12, floor[96], floor[32]),
          "| rung | H = 96 | speed-up by this rung | speed-up in all | floor / time "
          "| H = 32 | registers | shared memory per block |",
          "|:--|--:|--:|--:|--:|--:|--:|--:|")
    plain.add("floor %g" % floor[96])
    for i, v in enumerate(rungs):
        times_before = "%.2f" % (us[i - 1] / us[i]) if i else ""
        p.row(name(v) + p.mark(times[96][v].state), time(us[i]), times_before,
              "%.0f" % (us[0] / us[i]), "%.1f %%" % (100 * floor[96] / us[i]),
              time(times[32][v].us), count[v]["registers"],
              "%.0f KiB" % (count[v].value("smem") / 1024))
        plain.add("%s %g" % (v.replace("_sm90", ""), us[i]))
        if i:
            pair = Page("ladder-%d.md" % (i + 1))
            pair.add("Before and after, T = %d, H = 96; recorded on %s.\n"
                     % (last.T, last.run))
            counted(pair, "| time ", (rungs[i - 1], time(us[i - 1])),
                    (v, "**%s**" % time(us[i])))
            pair.add("\nThe new kernel is %s times as fast." % times_before)
    if STALE in p.marks:
        p.add("\n† measured with an older version of the kernel.")
    counters.add("Counted by Nsight Compute without fixed clocks, T = %d, H = 96. "
                 "Issue, tensor and warps are shares of the cycles in which a processor "
                 "has a block (96 of 132 have one).\n" % last.T)
    counted(counters, "", *[(v,) for v in rungs])


# ---- chapters 19 and 20: verdicts and runs

def has_source(r):
    """Returns whether the variant's file exists."""
    name = r.variant.removesuffix("_f32")
    folders = r.stage, "18_hopper", "18_hopper/*"
    return any(glob.glob("%s/cuda/%s/%s%s.cu" % (ROOT, folder, name, end))
               for folder in folders for end in ("", "_sm90"))


def judge_tables(d):
    """Lists the newest verdict per variant and number of ranks. A verdict of the present
    kernels is preferred to a newer verdict of other kernels. The figure of chapter 19
    has the largest error / limit of each variant."""
    p, marks, best = Page("18.md"), Page("errors.tsv"), {}
    for r in d.of("verdict"):
        key, fresh = (r.stage, r.variant, int(number(r["ranks"]))), r.standing() == FRESH
        if has_source(r) and (key not in best or best[key][0] <= fresh):
            best[key] = fresh, r
    rows = [(key, best[key][1]) for key in sorted(best)]
    places = unique("%s, commit %s" % (r.machine, r["commit"]) for _, r in rows)
    p.add("Judged on %s. Rows have the worst error and its limit.\n"
          % "; ".join(places),
          "| stage | variant | ranks | storage | cases | output | error | limit |",
          "|:-----|:-----|--:|:--|:----|:--|---:|---:|")
    for (stage, variant, ranks), r in rows:
        p.row(stage, "`%s`" % variant, ranks, r["storage"], r["cases"], r["worst"],
              r["error"], r["allowed"])
    worst = {}
    for (stage, variant, _), (_, r) in best.items():
        if number(r["allowed"]) > 0:
            mark = (float(r["error"]) / number(r["allowed"]), r["storage"] == "f32",
                    r["verdict"] == "FAIL")
            worst[stage, variant] = max(worst.get((stage, variant), mark), mark)
    for key, (share, *flags) in sorted(worst.items(), key=lambda x: x[0][0]):
        marks.add("%s %s %d %d %.17g" % (*key, *flags, share))


def precision_table(d):
    p, last = Page("18-gpu.md"), d.of("precision")[-1]
    p.add("Recorded on %s: K = %d, chunks of %d tokens; relative error of $M$.\n"
          % (last.place, last.K, last.C),
          "| gates | chunks | norm of $M$ / sqrt(K) | fp32 | tf32x3 | tf32 | bf16 "
          "| size of bf16 $M$ |", "|:--|--:|--:|--:|--:|--:|--:|--:|")
    for r in d.of("precision"):
        if r.file == last.file:
            p.row(*[r[c] for c in "gate chunks size fp32 tf32x3 tf32 bf16".split()],
                  r["bf16_size"] + " %")


def latest_table(d, kind, file, heads, lines, columns):
    """Starts a page with all rows of the latest record that has rows of this kind. Returns
    the page and the rows."""
    p, rows = Page(file), d.of(kind)
    rows = [r for r in rows if r.file == rows[-1].file]
    if rows:
        p.add("Recorded on %s.\n" % rows[-1].place, heads, lines)
    for r in rows:
        p.row(*[r[c] for c in columns.split()])
    return p, rows


def cp_table(d):
    """Lists the judge's verdicts on other projects' context parallelism, the latest record."""
    p, rows = latest_table(
        d, "cp", "20-cp.md",
        "| system | version | pass | cases | right | wrong | refused | worst case |",
        "|:----|:--|:--|--:|--:|--:|--:|:------|",
        "system version what cases right wrong refused worst")
    commands = ["    " + r["command"] for r in rows if r["command"] not in ("", "-")]
    if commands:
        p.add("\nTo repeat the worst cases:\n\n" + "\n".join(commands))


def canonical_table(d):
    """Lists bits and times of canonical and free plans, the latest record."""
    latest_table(d, "canonical", "06-canonical.md",
                 "| model | plan | layout | ranks | bits | forward, ms | backward, ms |",
                 "|:--|:--|:--|--:|:----|--:|--:|",
                 "model plan layout R bits forward_ms backward_ms")


# Rows of kind "torch" that begin with these words have no comparison with a reference.
NOT_JUDGED = "host time", "memory above", "book/examples", "the same, 4 calls"


def torch_tables(d):
    """Lists runs from PyTorch. If a row was recorded twice, the later row is used."""
    timed, judged, above, p = {}, {}, "", Page("torch.md")
    for r in d.of("torch"):
        if r["us"]:
            case = r.case + (", %d GPUs" % r.ranks if r.ranks > 1 else "")
            timed[case, r["what"], r["how"]] = r
        elif not r["what"].startswith(NOT_JUDGED):
            judged[r["what"].replace("--", r"\-\-"), r["how"]] = r
    names = unique(n for r in timed.values()
                 for n in (r.place + "; " + r["peer"]).split("; "))
    p.add("Recorded on %s; medians.\n" % "; ".join(names),
          "| case | pass | kernel | ms | worst output | its error |",
          "|:--|:--|:--|--:|:--|--:|")
    for (case, *cells), r in timed.items():
        p.row("" if case == above else case, *cells, ms(r.us), r["worst"], r["error"])
        above = case
    p = Page("torch-judged.md")
    p.add("| test | code | number | result |", "|:--|:--|--:|:--|")
    for key, r in judged.items():
        p.row(*key, r["n"], r["says"])


def share_text(x):
    """Formats x = error / limit, in bold if x is above 1."""
    if x is None:
        return "n/a"
    form = "%.2f" if x <= 1 else "**%.1f**"
    return ("**%.0f**" if x >= 9.95 else form) % x


def field_tables(d):
    """Lists the worst error / limit of other systems' kernels in each regime, forward
    and backward. Then, for each value above 1, lists the options that repeat it."""
    cells, p = {}, Page("field.md")
    rows = list(d.of("field"))
    kernels = unique((r["peer"], r.model) for r in rows)
    for r in rows:
        key = r.gate, (r["peer"], r.model), r.way
        share = number(r["error"]) / number(r["allowed"]) if r["allowed"] else None
        if r["verdict"] == "error":
            share = math.inf
        if key not in cells or (share or 0) > (cells[key][0] or 0):
            cells[key] = share, r
    p.add("Recorded on %s, `kcp_check.py` at %s.\n" % (rows[0].machine, "; ".join(
        unique("`%s`" % r["commit"] for r in rows))),
        "| regime | " + " | ".join("%s, %s" % (peer, model.upper())
                                   for peer, model in kernels) + " |",
        "|:--|" + "--:|" * len(kernels))
    for gate in unique(r.gate for r in rows):
        shares = []
        for kernel in kernels:
            two = [cells.get((gate, kernel, way), (None, None))[0]
                   for way in ("forward", "backward")]
            shares.append(", ".join(share_text(x) for x in two))
        p.row(gate, *shares)
    p = Page("field-failed.md")
    p.add("| kernel | output | error | limit | case |", "|:--|:--|--:|--:|:--|")
    for (_, (peer, model), _), (x, r) in cells.items():
        if x and x > 1:
            p.row("%s, %s" % (peer, model.upper()), r["worst"], r["error"],
                  r["allowed"], "`--stage %s --case '%s'`" % (r.stage[:2], r["words"]))


TIMES = re.compile(r"([\d.]+(?:, [\d.]+)*)(?: to ([\d.]+))? (ms|µs)(?![^ ,;])([^;]*)")


def times_in(cell):
    """Returns the times in a cell, such as "0.20, 0.90 ms", and their unit. For a
    range ("1.85 to 1.91 ms"), returns the middle; for a cell with "less", no times."""
    found = TIMES.match(cell)
    if not found or " less" in found[4]:
        return [], ""
    times = [float(x) for x in found[1].split(", ")]
    if found[2]:
        times[-1] = (times[-1] + float(found[2])) / 2
    return times, found[3]


def log_marks(d):
    """Writes measured / predicted time for appendix B's figure, from the rows of
    bench/LOG.md above "Over ranks" that have both times."""
    p, backward, gdn = Page("log.tsv"), False, False
    for line in read_lines(ROOT + "/bench/LOG.md"):
        if line.startswith("## Over ranks"):
            break
        backward |= line.startswith("## Backward")
        if not line.startswith("| "):
            continue
        what, predicted, measured, *_ = [c.strip() for c in line.split("|")[1:]]
        if not what.startswith(("the same", "both")):     # same model as above
            gdn = False
        gdn |= "GDN" in what or "one gate a head" in what
        (first, unit), (then, other) = times_in(predicted), times_in(measured)
        if (len(first), unit) == (len(then), other):
            p.add(*["%d %d %.17g %s" % (backward, gdn, b / a, what)
                    for a, b in zip(first, then)])


# ---- the README's tables: our fastest kernels and other systems

def others(d, r, systems, notes):
    """Returns other systems' times of the same run; if there are none, their fastest
    times of another run on the same GPU."""
    of = [q for q in d.find(theirs=True, stage=r and r.stage)
          if q["machine"] == r["machine"] and not re.search("share_alone|heads2", q.variant)]
    alike = [q for q in of if (q.case, q.ranks) == (r.case, r.ranks)]
    beside, star = {}, ""
    for q in of:
        if q.set == r.set or q in alike and q.place == r.place:
            beside.setdefault(q.variant, q)
    if alike and not beside:
        star = "*"
        notes.append("\\* measured in another run, beside an earlier version of ours.")
        best = [fastest(q for q in alike if q.variant == v)
                for v in unique(q.variant for q in alike)]
        systems += [q.peer for q in alike]
        beside = {q.variant: q for q in alike if q in best}
    systems += [q.peer for q in beside.values()]
    return "; ".join("`%s` %s%s" % (re.sub(", (.*)", r" (\1)", q.variant), ms(q.us), star)
                     for q in sorted(beside.values(), key=lambda q: q.us))


IN_README = ("KDA, live gates, T = (8192, H = 96|65536, H = 32)|"
             "GDN, live gates, T = (8192|32768), H = 16, HV = 32",
             "..., live gates, T = 131072, H = 32")


def readme_table(d):
    """Writes the tables of README.md, with the cases that match IN_README."""
    p, places, systems, notes = Page("readme.md"), [], [], []
    fresh = [any(r.state != STALE for r in d.rows if (r.ranks > 1) == many and
                 (r.is_layer if many else r.stage in WHOLE)) for many in (False, True)]
    head = "| forward, nothing kept | forward | backward | others, forward " \
           "| others, backward |"

    def cell(r, many):
        if not r or not many and not d.alone(r):
            return ""
        places.append(r.place)
        return p.ms(r) + text(" (%s)", d.times_alone(r) if many else p.share(r))

    for many in (False, True):
        p.add(*("\n| several GPUs: ms (speed-up over one GPU) | GPUs " + head,
                "|:--|--:|--:|--:|--:|:--|:--|") if many else
              ("| one GPU: ms (floor / time) " + head, "|:--|--:|--:|--:|:--|:--|"))
        cases = unique(r.case for r in d.sorted if not r.is_edge() and
                     (r.is_layer if many else r.stage in WHOLE) and
                     re.fullmatch(IN_README[many], r.case.replace(NB, " ")))
        ranks = range(2, d.most + 1) if many else (1,)
        for case, R in itertools.product(cases, ranks):
            best = [newest([r for r in d.find(theirs=False, case=c, stage=stage, ranks=R)
                            if not r["cuts"]], many or not fresh[many])
                    for c, stage in ((case + KEPT["none"], PAIR[0]), (case, PAIR[0]),
                                     (case, PAIR[1]))]
            r = best[1]
            if r and not (fresh[many] and r.state == STALE) and (many or d.alone(r)):
                p.row(case.replace(" live gates,", ""), *[R] * many,
                      *[cell(r, many) for r in best],
                      *[others(d, r, systems, notes) for r in best[1:]])
    p.notes()
    p.add("\nMedians; recorded on %s. Others: %s."
          % ("; ".join(unique(places)), ", ".join(unique(systems))), *notes[:1])


# The rows of bench/peers/reach.py that README.md shows, in words.
REACH = {
    "kda-96-bounded": "KDA 8192 x 96, bounded gate in the kernel, all bf16",
    "kda-96-softplus": "the same, softplus",
    "kda-32-g32": "KDA 8192 x 32, gate outside, g and beta float32 (Kimi-Linear)",
    "gdn-8k-g32": "GDN 8192, 16/32 heads, g float32 (Megatron, Qwen3-Next)",
    "gdn-32k-g32": "GDN 32768, the same",
    "gdn-v256-g32": "GDN 8192 x 6, V = 256, g float32",
    "kda-96x96": "KDA 8192 x 16, K = V = 96, softplus",
    "kda-chunk32": "KDA 8192 x 32, chunk_size 32",
    "kda-96-deep96": "KDA 8192 x 96, softplus, one channel of each head closed",
    "kda-512x16": "KDA 512 x 16, bounded",
    "kda-f16": "KDA 8192 x 32, float16", "kda-f32": "KDA 8192 x 32, float32",
    "gdn-k256": "GDN 8192 x 6, K = V = 256",
    "kda-k256": "KDA 8192 x 6, K = V = 256",
    "gdn-k256-v512": "GDN 8192 x 6, K = 256, V = 512 (FLA's layer by default)",
}


def reach_table(d):
    """Writes README.md's table of calls of models: each call's latest run beside FLA, or
    its latest run, if FLA was never timed beside it. FLA's memory may be of a run without
    its times (reach.py --untuned)."""
    p, rows, best, runs = Page("readme.md"), {}, {}, {}
    for r in sorted(d.kind.get("reach", []), key=lambda r: (r["date"], r.file)):
        run = runs.setdefault((r["row"], r.file), {})
        run[r.peer.startswith("kcp_torch")] = r
        beside = run.get(False) and run[False]["forward_ms"]
        last = rows.get((r["row"], False))
        if beside or not (last and last["forward_ms"]):
            rows[r["row"], True] = run.get(True) or rows.get((r["row"], True))
            if run.get(False):
                rows[r["row"], False] = run[False]
    p.add("\n| a call from PyTorch: ms; bytes per token and head | forward "
          "| forward + backward | kept, peak | FLA, forward | forward + backward "
          "| kept, peak |", "|:--|--:|--:|--:|--:|--:|--:|")
    for name, words in REACH.items():
        cells = []
        for ours in (True, False):
            r = rows.get((name, ours))
            if r and (r["forward_ms"] or r["kept_mib"]):
                best[r.place] = r.peer if not ours else best.get(r.place, r.peer)
                head = 2 ** 20 * r.value("ranks") / r.value("T") / r.value("HV")
                cells += ["%.3f" % r.value(n) if r[n] else "" for n in
                          ("forward_ms", "both_ms")]
                cells += ["%.0f, %.0f" % (r.value("kept_mib") * head,
                                          r.value("peak_mib") * head)
                          if r["kept_mib"] else ""]
            else:
                cells += ["refused" if r and ours else "", "", ""]
        p.row(words, *cells)
    p.add("\nMedians of 9 (`bench/peers/reach.py`); %s. FLA refuses GDN's backward on "
          "Hopper GPUs under Triton 3.4.0 to 3.7.0. `kcp_torch.fla` leaves calls without "
          "fast kernels to FLA." % "; ".join("%s, %s" % x for x in best.items()))


def layer_table(d):
    """Lists the newest times of layers of other projects (bench/peers/layers.py), and the
    fastest of repeated runs."""
    p, newest, found = Page("layers.md"), {}, {}
    rows = sorted(d.of("layer"), key=lambda r: (r["date"], r.file))
    of = lambda r: r["layer"].replace(", host hidden", "")
    for r in rows:
        newest[of(r), r["peer"]] = r.file
    for r in rows:
        if newest[of(r), r["peer"]] == r.file:
            found.setdefault(of(r), {}).setdefault(r["peer"], []).append(r)
    p.add("| layer | rule by | forward, ms | forward + backward, ms | peak, MiB | error |",
          "|:--|:--|--:|--:|--:|--:|")
    for layer, peers in sorted(found.items()):
        for i, (peer, runs) in enumerate(peers.items()):
            cells = []
            for name, digits in ("forward_ms", 2), ("both_ms", 2), ("peak_mib", 0):
                best = min((r.value(name) for r in runs if r[name]), default=None)
                cells.append("" if best is None else "%.*f" % (digits, best))
            if "refuses" in runs[0]["says"]:
                cells[1] = "refused"
            cells.append(max(r["error"] for r in runs))
            p.row("" if i else layer, peer, *cells)
    p.add("\nMedians of 9, of the faster run where a layer ran twice; %s." % "; ".join(
        unique(r.place for r in rows if newest[of(r), r["peer"]] == r.file)))


# ---- output

def make():
    Row.digests = Digests.of_build("build")
    Row.built = any(r["nvcc"][:1].isdigit() and r["digest"] != "-"
                    for r in Row.digests.rows.values())
    d = Records()
    for table in (stage_tables, mode_table, bound_table, roofline,
                  rank_table, walk_tables, judge_tables, field_tables,
                  precision_table, ladder_tables,
                  torch_tables, log_marks, readme_table, reach_table, layer_table,
                  cp_table, canonical_table):
        table(d)
    whole_table(d, "08_forward")
    whole_table(d, "13_backward")
    return {q.name: "".join(p.text for p in Page.pages if p.name == q.name)
            for q in Page.pages if q.text}


def readme(check):
    tables = make()["readme.md"]
    if not Row.built:
        return print("README.md: not compared with the records: no kernels are built "
                     "here")
    with open(ROOT + "/README.md", encoding="utf-8") as f:
        old = f.read()
    new, found = re.subn("(?s)(?<=<!-- measured -->\n).*(?=<!-- until here -->)",
                         lambda _: "\n" + tables + "\n", old)
    if found != 1:
        sys.exit("README.md: found no <!-- measured --> or <!-- until here -->")
    if new != old and check:
        sys.exit("README.md: the tables differ from the records: run "
                 "python3 book/tables.py --readme")
    if new != old:
        with open(ROOT + "/README.md", "w", encoding="utf-8") as f:
            f.write(new)
        print("README.md: wrote tables from the records")


def main(arguments):
    if arguments[:1] == ["--readme"] and arguments[1:] in ([], ["--check"]):
        return readme(arguments[1:] != [])
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("tables.py: usage: DIR | --readme [--check]", file=sys.stderr)
        sys.exit(2)
    to = arguments[0]
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(to)
    for name, text in make().items():
        with open(to + "/" + name, "w", encoding="utf-8") as f:
            f.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
