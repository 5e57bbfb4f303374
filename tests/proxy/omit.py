#!/usr/bin/env python3
# omit.py -- leaves out each wait of the kernels in turn; the judge must see each one.
#
# Book: users.md, "Find a race".
#
#   make build/kcp-check-omit && python3 tests/proxy/omit.py [BUILD]      writes OUT/omit.tsv
#
# A place is a use of a wait, arrival or barrier of cuda/tile/ (omit.cuh). For each path
# of paths.tsv, the program finds the places that run in the path's case. Then it judges the
# case without one place, with random sleeps, RUNS (20) times or until a run fails. A
# place that was not seen is judged again with later copies, then in the next path. The
# LIMIT (5) of one run is in seconds. JOBS (14) processes share the GPU. The program ends
# after TIME (540) and lists the places that it did not judge. A line of omit.tsv has
# the place, the path, the verdict (values, hang, error, unseen; void if a control fails)
# and the reason; lines are added as verdicts come. ONLY and PLACES are patterns that
# select paths and places ("file:line name"). With CONTROLS=0 no control runs.
#
# unseen.tsv says for each place that no case shows which ordering protects it. The exit
# status is 1 if a case fails without omission, if a place is unseen or did not run and is
# not in that list, or if more than one in ten is in that list. wgmma_fence and wgmma_wait
# are no places: if they are missing, ptxas inserts them and prints C7517 or C7519. Nor
# are fence_proxy_async and mbarrier_fence_init, which kcp_proxy.py --plant leaves out in
# the PTX, one at a time.
import collections
import concurrent.futures
import csv
import glob
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MARK, MARKS = 0xffffffff, 1 << 20
NAMES = ("mbarrier_arrive warp_arrive mbarrier_wait mbarrier_arrive_expect_tx mbarrier_test "
         "cp_async_mbarrier_arrive named_barrier_sync named_barrier_arrive "
         "mbarrier_arrive_cluster cluster_sync tma_store_wait_read "
         "cp_async_wait warpgroup_sync griddepcontrol_wait "
         "__syncthreads __syncthreads_or").split()
# The kind of a place (omit.cuh), which says which copies are late.
KINDS = {name: kind for kind, names in enumerate((
    "", "mbarrier_wait mbarrier_test", "tma_store_wait_read", "cp_async_wait",
    "__syncthreads __syncthreads_or warpgroup_sync named_barrier_sync cluster_sync",
    "", "griddepcontrol_wait")) for name in names.split()}
FULL_WAIT, STORE_WAIT, BARRIERS, LATE_LOADS = 1, 2, 4, 5
# Which copies are late if a place is judged again. Late stores precede a barrier behind
# tma_store_wait_read. If copies by cp.async are late, warps that run ahead are slow.
AGAIN = {FULL_WAIT: LATE_LOADS, BARRIERS: STORE_WAIT}
SEEN = ("values", "hang", "error")


def table(file):
    """Returns the rows of a table of the source tree, as dictionaries by column."""
    with open(os.path.join(ROOT, file), encoding="utf-8") as f:
        return list(csv.DictReader((line for line in f if line[0] != "#"),
                                   delimiter="\t", quoting=csv.QUOTE_NONE))


class Path(collections.namedtuple("Path", "name stage variant sms case")):
    """A case that takes one path of a variant, on a GPU that seems to have `sms` SMs."""

    def group(self):
        """Paths of a group run the same kernels, or kernels of the same source."""
        return self.stage, self.variant, self.case.split()[1]


def all_paths():
    return [Path(*(x.format(model) for x in row.values()))
            for row in table("tests/proxy/paths.tsv")
            for model in (("kda", "gdn") if "{}" in row["name"] else ("",))]


def number(name, file, line):
    """The place's number, as in omit.cuh: FNV-1a of name, file and the line's digits."""
    h = 0x811c9dc5
    for c in name.encode() + "/".join(file.split("/")[-2:]).encode():
        h = (h ^ c) * 0x01000193 & 0xffffffff
    while line:
        h = (h ^ line % 10) * 0x01000193 & 0xffffffff
        line //= 10
    return h


def all_places():
    """Returns, by number, (file, line, name, code) of each use in the source. If the
    file has the same code several times, all but the first get a number."""
    places, lines_of = {}, collections.defaultdict(list)
    use = re.compile(r"(?<!\w)(%s)\s*(?:<[^<>()]*>)?\(" % "|".join(NAMES))
    for file in sorted(glob.glob(ROOT + "/cuda/**/*.cu*", recursive=True)):
        short = os.path.relpath(file, ROOT)
        with open(file, encoding="utf-8") as f:
            lines = f.read().splitlines()
        # The files that define the macros have no places.
        if "#ifdef KCP_OMIT" in lines or short.startswith("cuda/tile/omit"):
            continue
        for i, text in enumerate(lines, 1):
            code = text.split("//")[0]
            if "static __device__" in code or code.startswith("#"):
                continue
            for name in use.findall(code):
                n = number(name, short, i)
                same = lines_of[(short, name, code.strip())]
                same.append(i)
                text = code.strip() + (" [%d]" % len(same) if len(same) > 1 else "")
                old = places.setdefault(n, (short, i, name, text))
                if old[:2] != (short, i):
                    sys.exit("omit.py: %s and %s:%d have one number" % (old, short, i))
    return places


def is_ours(place):
    """Returns 1 if the place must be judged even if no case runs it."""
    return bool(re.match(r"cuda/(tile|1[4-8])", place[0]))


def judge(build, path, place, kind, deadline, marks="/dev/null",
          runs=os.environ.get("RUNS", "20")):
    """Judges the path's case without the place. Returns the verdict and the reason."""
    env = dict(os.environ, KCP_OMIT_MARKS=marks, KCP_OMIT_SMS=path.sms)
    command = [build + "/kcp-check-omit", path.stage, path.variant, path.case,
               runs, os.environ.get("LIMIT", "5")]
    try:
        run = subprocess.run(command, input="%d %d\n" % (place, kind),
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env=env, timeout=max(1, deadline - time.time()),
                             check=False, errors="replace")
    except subprocess.TimeoutExpired:
        return "not-run", "the time is over"
    lines = run.stdout.splitlines()
    rows = [line.split("\t")[1:] for line in lines if line.count("\t") == 2]
    return rows[0] if rows else ("not-run", " ".join(lines[-1:]))


def reached_by(build, path, folder, deadline):
    """Runs the case with no place left out. Returns its verdict and the places it marks."""
    marks = "%s/%s" % (folder, path.name)
    verdict, why = judge(build, path, MARK, 0, deadline, marks, "6")
    if not os.path.exists(marks):
        return verdict, why, set()
    with open(marks, "rb") as f:
        data = f.read()
    return verdict, why, {i for i, x in enumerate(data) if x}


def controls(build, paths, found, places, kinds, pool, deadline):
    """With all waits, kernels must be right although copies are late. Judges this once
    per variant and model, and returns the paths and kinds for which it is false."""
    groups, jobs = {}, {}
    if os.environ.get("CONTROLS") == "0":
        return set()
    for path, (verdict, _, marks) in zip(paths, found):
        if verdict == "unseen":
            group = groups.setdefault(path.group(), (path, set()))
            group[1].update(kinds[places[m]] for m in marks if m in places)
            group[1].update([AGAIN[kind] for kind in group[1] if kind in AGAIN])
    for path, has in groups.values():
        for kind in has - {0}:
            jobs[pool.submit(judge, build, path, 0, kind, deadline)] = (path, kind)
    bad = set()
    for job in concurrent.futures.as_completed(jobs):
        (path, kind), (verdict, why) = jobs[job], job.result()
        if verdict != "unseen":
            bad.add((path.group(), kind))
            print("%s: control of kind %d FAILS: %s %s" % (path.name, kind, verdict, why),
                  flush=True)
    return bad


def key_of(place):
    """What identifies a place if lines move: file, name and code."""
    return place[0], place[2], place[3]


def judge_all(build, pool, places, ways, void, deadline):
    """Judges each place in its first way, a path and a kind, then each place that was not
    seen in its second way, and so on. Yields (place, path, verdict, why)."""
    tries = collections.Counter()

    def attempt(n):
        path, kind = ways[n][tries[n]]
        if time.time() >= deadline:
            return n, path, None, None
        if (path.group(), kind) in void:
            return n, path, "void", "the control fails"
        return n, path, *judge(build, path, n, kind, deadline)
    jobs = {pool.submit(attempt, n) for n in places}
    while jobs:
        done, jobs = concurrent.futures.wait(
            jobs, return_when=concurrent.futures.FIRST_COMPLETED)
        for n, path, verdict, why in [job.result() for job in done]:
            if not verdict:
                continue
            yield n, path, verdict, why
            tries[n] += 1
            if verdict not in SEEN and tries[n] < len(ways[n]):
                jobs.add(pool.submit(attempt, n))


def main(arguments):
    build = arguments[0] if arguments else ROOT + "/build"
    out = os.environ.get("OUT") or build
    if not os.access(build + "/kcp-check-omit", os.X_OK):
        sys.exit("omit.py: %s/kcp-check-omit not found: make it first" % build)
    if subprocess.run(["sh", "-c", "nvidia-smi -L"], stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL, check=False).returncode:
        print("omit.py: no GPU here: nothing was run")
        return
    began = time.time()
    deadline = began + float(os.environ.get("TIME", "540"))
    workers = int(os.environ.get("JOBS", "14"))
    pool = concurrent.futures.ThreadPoolExecutor(workers)
    places, bad = all_places(), 0
    first = {(r["file"], r["name"], r["code"]): r["path"]      # that showed the place
             for r in table("bench/results/omit.tsv") if r["verdict"] in SEEN}
    kinds = {n: KINDS.get(p[2], 0) for n, p in places.items()}
    only = re.compile(os.environ.get("ONLY", ""))
    chosen = re.compile(os.environ.get("PLACES", ""))
    paths = [p for p in all_paths() if only.search(p.name)]
    by_mark = {n % MARKS: n for n in places}
    if len(by_mark) != len(places):
        sys.exit("omit.py: two places share a mark")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        found = list(pool.map(lambda p: reached_by(build, p, folder, deadline), paths))
        ways = collections.defaultdict(list)
        for path, (verdict, why, marks) in zip(paths, found):
            unknown = [m for m in marks if m not in by_mark]
            print("%-24s %-7s %3d places%s%s" % (
                path.name, "passes" if verdict == "unseen" else "FAILS", len(marks),
                "" if verdict == "unseen" else ": %s %s" % (verdict, why),
                ", %d unknown" % len(unknown) if unknown else ""), flush=True)
            bad += verdict != "unseen" or bool(unknown) or not marks
            if verdict == "unseen":
                for n in [by_mark[m] for m in marks if m in by_mark]:
                    ways[n].append(path)
        print("paths: %d s" % (time.time() - began), flush=True)
        void = controls(build, paths, found, by_mark, kinds, pool, deadline)
        bad += len(void)
        print("controls: %d s" % (time.time() - began), flush=True)
        for n, mine in ways.items():
            wanted = first.get(key_of(places[n]))
            mine.sort(key=lambda path: path.name != wanted)
            ways[n] = [(path, kind) for path in mine
                       for kind in (kinds[n], AGAIN.get(kinds[n])) if kind is not None]
        wanted = sorted((n for n in ways if chosen.search("%s:%d %s" % places[n][:3])),
                        key=lambda n: (key_of(places[n]) in first, places[n]))
        verdicts = collections.defaultdict(list)
        with open(out + "/omit.tsv", "w", encoding="utf-8") as f:
            print("file", "line", "name", "path", "verdict", "reason", "code", sep="\t",
                  file=f)
            for n, path, verdict, why in judge_all(build, pool, wanted, ways, void,
                                                   deadline):
                verdicts[n].append(verdict)
                print(*places[n][:3], path.name, verdict, why.strip(), places[n][3],
                      sep="\t", file=f, flush=True)
                print("%d s: %s: %s:%d %s: %s" % (
                    time.time() - began, path.name, *places[n][:3], verdict), flush=True)
    seen = {n: v[-1] for n, v in verdicts.items() if v[-1] in SEEN}
    reasons = {(r["file"], r["name"], r["code"]) for r in table("tests/proxy/unseen.tsv")}
    left, count = [], collections.Counter()
    for n in sorted(places, key=lambda n: places[n][:2]):
        file, line, name, code = places[n]
        if n not in ways and not is_ours(places[n]):
            continue
        verdict = seen.get(n) or (
            "explained" if key_of(places[n]) in reasons else
            "unseen" if "unseen" in verdicts[n] else "not judged" if n in ways else
            "not reached")
        count[verdict] += 1
        if verdict not in SEEN + ("explained",):
            left.append("%s:%d: %s: %s" % (file, line, verdict, code))
    print("\n".join(left))
    total = sum(v for k, v in count.items() if k != "not reached")
    bad += count["unseen"] + count["not judged"] + count["not reached"] + \
        (10 * count["explained"] > total)
    print("omit.py: %d places ran: %d rejected by values, %d by a hang, %d by an error; %d "
          "unseen and explained, %d unseen, %d not judged; %d never ran; %d s" % (
              total, count["values"], count["hang"], count["error"], count["explained"],
              count["unseen"], count["not judged"], count["not reached"],
              time.time() - began))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
