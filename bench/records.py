#!/usr/bin/env python3
# records.py -- adds measurements of a GPU run to bench/results, and lists outdated ones.
# Book: chapters 17, 18.
#
#   records.py add FOLDER NAME COMMIT   adds a run's rows to bench/results/NAME.tsv
#   records.py stale [BUILD]            prints variants whose present code has no recorded time
#
# FOLDER has machine.txt (a line "GPU, driver, date") and some of these files: judge.txt
# (kcp-check's output), CASE.tsv (kcp-bench, peers), sanitize.tsv, nccl.tsv, torch.tsv,
# field.tsv, reach.tsv, layers.tsv and cp.tsv (peers/), canonical.tsv, omit.tsv (omit.py),
# notes.tsv, digests.tsv (digest.py's output; if missing, digest.py reads the folder $BUILD,
# by default build).
# Pages of Nsight Compute are ncu.VARIANT.csv or ncu.VARIANT.CASE.csv; they need ncu.txt (a
# line "stage T H HV"). A timed row is added only
# if the judge accepted its variant in this run. On one GPU, the row itself must also have
# verdict ok or MARGINAL. Rows of other systems (column "peer") need no verdict.
import csv
import glob
import os
import re
import subprocess
import sys

import digest
from digest import ROOT

KINDS = {"sanitize": "sanitizer", "nccl": "run", "notes": "note", "torch": "torch",
         "field": "field", "reach": "reach", "layers": "layer", "omit": "omit", "cp": "cp",
         "canonical": "canonical"}


def stop(text):
    sys.exit("records.py: " + text)


def read_tsv(path):
    with open(path, encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE))


def read_lines(path):
    with open(path, encoding="utf-8") as f:
        return f.read().splitlines()


def results():
    return sorted(glob.glob(ROOT + "/bench/results/[0-9]*.tsv"))


class Digests:
    """The digests of variants, paths and the exchange, as digest.py prints them."""
    def __init__(self, rows):
        self.rows = {(r["stage"], r["variant"]): r for r in rows}

    @classmethod
    def of_build(cls, build):
        try:
            return cls(digest.rows(build))
        except (OSError, subprocess.CalledProcessError) as e:
            stop("digest.py %s failed: %s" % (build, e))

    def state(self, key, digest, compiler):
        """Returns "not comparable" if the present code has no digest or another compiler,
        else "fresh" if its digest is the given one, "stale" if not."""
        now = self.rows.get(key)
        if not now or now["digest"] == "-" or now["nvcc"] != compiler:
            return "not comparable"
        known = [now["digest"]] + (now.get("also") or "").split()
        return "fresh" if digest in known else "stale"

    def present_name(self, stage, variant):
        alias = self.rows.get(("alias", "%s %s" % (stage, variant)))
        return alias["digest"] if alias else variant

    def stamp(self, row, stage, variant, ranks, path=""):
        row["nvcc"], row["digest"] = self.get((stage, variant))
        if path:
            row["row"] = self.get(("path", path))[1]
        if ranks > 1:
            row["cc"], row["comm"] = self.get(("comm", "-"))

    def get(self, key):
        now = self.rows.get(key)
        if not now or now["digest"] == "-":
            stop("%s %s: no digest in digests.tsv or in the build" % key)
        return now["nvcc"], now["digest"]


# ---- the output of kcp-check: the name of a stage, then its variants

def verdicts(path):
    """Yields (stage, list of words, line) for each line about a variant or a path."""
    stage = ""
    for line in read_lines(path) if os.path.exists(path) else []:
        if re.fullmatch(r"\d\d_[a-z0-9_]+", line):
            stage = line
        elif line.split():
            yield stage, line.split(), line


def passed(folder):
    """Returns the set of (stage, variant, path) that the judge accepted."""
    ok = set()
    for stage, word, _ in verdicts(folder + "/judge.txt"):
        if word[0] == "ok" and len(word) > 3:
            ok.add((stage, word[3], word[2]) if word[1] == "path" else (stage, word[1], ""))
    return ok


def verdict_rows(folder, digests, ranks):
    for stage, word, line in verdicts(folder + "/judge.txt"):
        at = line.find(" worst ")
        if word[0] not in ("ok", "FAIL", "MARGINAL") or at < 0 or word[1] == stage:
            continue
        worst = line[at:].split()
        alive = re.search(r"alive ([0-9.e+-]+)", line)
        row = {"kind": "verdict", "stage": stage, "variant": word[1], "storage": word[2],
               "verdict": word[0], "ranks": str(ranks), "worst": worst[1],
               "cases": line[:at].split(None, 3)[3].strip(), "error": worst[2],
               "allowed": worst[4], "alive": alive[1] if alive else ""}
        digests.stamp(row, stage, word[1], ranks)
        yield row


# ---- tables

def time_rows(path, digests, ok):
    case = os.path.basename(path)[:-4]
    rows = read_tsv(path)
    for r in rows:
        stage, variant, taken = r["stage"], r["variant"], r.get("path") or ""
        one_gpu, verdict = not r.get("form"), r.get("verdict")
        why = ""
        if not r.get("peer"):
            if one_gpu and verdict is None:
                stop(path + ": rows of one GPU need a column 'verdict'")
            if (stage, variant, taken) not in ok:
                why = "no verdict ok in this run"
            elif (one_gpu or verdict) and verdict not in ("ok", "MARGINAL"):
                why = "verdict '%s' in its row" % verdict
        if why:
            where = ", path " + taken if taken else ""
            print("records.py: %s %s%s: %s, left out" % (stage, variant, where, why),
                  file=sys.stderr)
            continue
        row = {"kind": "time", "case": case, **r}
        if not r.get("peer"):
            digests.stamp(row, stage, variant, int(r["ranks"]), taken)
        yield row


def table_rows(path, kind, digests):
    for r in read_tsv(path):
        row = {"kind": kind, **r}
        if kind == "run":
            row["cc"], row["comm"] = digests.get(("comm", "-"))
        if kind == "sanitizer":            # a row of a path is named variant@path
            row["variant"], _, row["path"] = r["variant"].partition("@")
            digests.stamp(row, r["stage"], row["variant"], 1, row["path"])
        yield row


def add(folder, name, commit):
    if not os.path.exists(folder + "/machine.txt"):
        stop(folder + "/machine.txt: not found; it has the line \"GPU, driver, date\"")
    machine = read_lines(folder + "/machine.txt")[0].split(", ")
    if len(machine) != 3 or not re.fullmatch(r"\d+-\d+-\d+", machine[2]):
        stop("machine.txt: found '%s', expected GPU, driver, date" % ", ".join(machine))
    count = re.match(r"(\d+) (x|processes on) ", machine[0])
    ranks = int(count[1]) if count else 1
    file = folder + "/digests.tsv"
    digests = Digests(read_tsv(file)) if os.path.exists(file) else \
        Digests.of_build(os.environ.get("BUILD", "build"))
    ok = passed(folder)
    new = list(verdict_rows(folder, digests, ranks))
    for path in sorted(glob.glob(folder + "/*.tsv")):
        base = os.path.basename(path)[:-4]
        if base in KINDS:
            new += table_rows(path, KINDS[base], digests)
        elif base != "digests":
            new += time_rows(path, digests, ok)
    for path in sorted(glob.glob(folder + "/ncu.*.csv")):
        for row in counter_rows(path, *read_lines(folder + "/ncu.txt")[0].split()):
            digests.stamp(row, row["stage"], row["variant"], 1)
            new.append(row)
    if not new:
        stop(folder + ": no rows; it needs judge.txt or a table")
    stamp = dict(zip(("machine", "driver", "date"), machine), commit=commit)
    to = ROOT + "/bench/results/%s.tsv" % name
    rows = read_tsv(to) if os.path.exists(to) else []
    # A row of nccl.tsv says itself when, where and with which commit the job ran.
    rows += [{**stamp, **{c: v for c, v in r.items() if v}} if r["kind"] == "run" else
             {**r, **stamp} for r in new]
    columns = ["kind", "machine", "driver", "date", "commit", "nvcc", "case", "path"]
    columns += [c for c in dict.fromkeys(c for r in rows for c in r) if c not in columns]
    columns = [c for c in columns if c == "path" or any(r.get(c) for r in rows)]
    with open(to, "w", encoding="utf-8", newline="") as f:
        for row in [dict(zip(columns, columns))] + rows:
            f.write("\t".join(row.get(c) or "" for c in columns) + "\n")
    print("%s: %d rows, %d new" % (to, len(rows), len(new)))


# ---- a page of Nsight Compute (ncu --csv --page raw --print-units base) as rows of counters.
# A missing counter is empty. `stalled` has the most frequent stall reason, and how many warps
# on average were stalled by it per issued instruction.

COUNTERS = {
    "registers": "launch__registers_per_thread", "smem": "launch__shared_mem_per_block",
    "cycles": "sm__cycles_elapsed.max", "instructions": "smsp__inst_executed.sum",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "fma": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "local_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"}


def counter_rows(path, stage, T, H, HV):
    """Yields a row for each kernel of the page ncu.VARIANT.csv or ncu.VARIANT.CASE.csv."""
    variant, *case = os.path.basename(path).split(".")[1:-1]
    with open(path, encoding="utf-8", newline="") as f:
        kernels = list(csv.DictReader(line for line in f if line.startswith('"')))
    prefix, suffix = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
    for cells in kernels[1:]:                       # the first line has the units
        cells = {n: text.replace(",", "") for n, text in cells.items()}
        row = {name: cells.get(counter) for name, counter in COUNTERS.items()}
        stalls = [(float(cells[n]), n[len(prefix):-len(suffix)].replace("_", " "))
                  for n in cells if n.startswith(prefix) and n.endswith(suffix)
                  and "_selected_" not in n and cells[n]]
        row["stalled"] = "%s %.1f" % max(stalls)[::-1] if stalls else ""
        row["dram_bytes"] = "%.0f" % sum(float(cells.get("dram__bytes_%s.sum" % n) or 0)
                                         for n in ("read", "write"))
        row["us"] = "%g" % (float(cells["gpu__time_duration.sum"]) / 1000)
        row["what"] = re.sub(r"^void |(gdn|kda)_|[<(].*|_kernel.*", "", cells["Kernel Name"])
        yield {"kind": "counter", "stage": stage, "variant": variant, "T": T, "H": H,
               "HV": HV, "case": "".join(case), **row}


# ---- finds records of the present code

STATES = ("none", "stale", "not comparable", "fresh")


def stale(build):
    """Prints variants, except those in f32, whose present code has no recorded time."""
    digests = Digests.of_build(build)
    best = {k: "none" for k in digests.rows if k[0] not in ("comm", "path", "alias")
            and not k[1].endswith("_f32")}
    for r in (r for path in results() for r in read_tsv(path)):
        key = r.get("stage"), digests.present_name(r.get("stage"), r.get("variant"))
        if r["kind"] == "time" and not r.get("peer") and key in best:
            state = digests.state(key, r["digest"], r["nvcc"])
            best[key] = max(best[key], state, key=STATES.index)
    for (stage, variant), state in best.items():
        if state in ("none", "stale"):
            print("records: %s %s: recorded times: %s" % (stage, variant, state))
    if not best:
        print("records: not compared: no kernels are built here")
    elif set(best.values()) == {"fresh"}:
        print("records: every kernel is timed with its present code")


def main(arguments):
    command, words = arguments[:1], arguments[1:]
    if command == ["add"] and len(words) == 3:
        add(*words)
    elif command == ["stale"] and len(words) < 2:
        stale(*words or ["build"])
    else:
        stop("usage: add FOLDER NAME COMMIT | stale [BUILD]")


if __name__ == "__main__":
    main(sys.argv[1:])
