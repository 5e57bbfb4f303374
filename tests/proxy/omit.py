#!/usr/bin/env python3
# omit.py -- leaves out each wait of the kernels in turn; the judge must see each one.
#
# Book: users.md, "Find a race".
#
#   make build/kcp-check-omit && python3 tests/proxy/omit.py [BUILD]      writes OUT/omit.tsv
#
# A place is a use of a wait, arrival or barrier of cuda/tile/ (omit.cuh). For each path
# below, the program finds the places that run in the path's case. Then it judges the
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
import glob
import os
import re
import subprocess
import sys
import tempfile
import threading
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
USE = "l2norm h0 dht beta=sigmoid C=64 "
SMALL = USE + "H=1 HV=2 K=128 V=128 lengths=400,130,65 "
LONG = USE + "H=1 HV=2 K=128 V=128 lengths=1500,70 "
OWN = USE + "H=2 HV=2 K=128 V=128 lengths=400,130,65 "
TALL = "live %s gate=softplus " + USE + "H=1 HV=2 K=256 V=256 lengths=900,33 "
WIDE = USE + "H=10 HV=70 K=128 V=128 lengths=150 "
SIXTY = USE + "H=1 HV=2 K=64 V=64 lengths=400,130,65 "
WALK = USE + "H=1 HV=4 K=128 V=128 lengths=1000 "
FAMILY = "H=1 HV=2 C=64 lengths=300,33 h0 dht "
LADDER = "live kda H=2 HV=2 K=128 V=128 C=64 lengths=500 h0"


SEEN = ("values", "hang", "error")


class Path(collections.namedtuple("Path", "name stage variant case sms", defaults=["2"])):
    """A case that takes one path of a variant, on a GPU that seems to have `sms` SMs."""

    def group(self):
        """Paths of a group run the same kernels, or kernels of the same source."""
        return self.stage, self.variant, self.case.split()[1]


def of_layer():
    """Returns paths of stages 08 and 13 by both models. Few heads take narrow blocks in
    clusters and several windows on 132 SMs, and wide blocks on 2 SMs."""
    fused, finish = ("08", "v3_prepare_scan"), ("13", "v4_scans_finish")
    for m in ("kda", "gdn"):
        soft = "live %s gate=softplus " % m
        for name, (stage, variant), case, sms in (
                ("forward", fused, SMALL, "2"),
                ("forward_strips", fused, "strip=2 " + SMALL, "2"),
                ("forward_ranks", fused, "R=2 chain " + SMALL, "2"),
                ("forward_walk", fused, "R=2 chain strip=4 walk=sequential " + WALK, "2"),
                ("forward_wide", fused, WIDE, "2"),
                ("forward_narrow", fused, SMALL, "132"),
                ("forward_windows", fused, LONG, "132"),
                ("forward_narrow_ranks", fused, "R=2 chain " + SMALL, "132"),
                ("forward_narrow_walk", fused,
                 "R=2 chain strip=4 walk=sequential " + WALK, "132"),
                ("forward_64", fused, SIXTY, "2"),
                ("forward_deep", fused, "deep=half " + SMALL, "2"),
                ("backward", finish, SMALL, "2"),
                ("backward_ranks", finish, "R=2 chain " + SMALL, "2"),
                ("backward_kept", finish, "save=all " + SMALL, "2"),
                ("backward_kept_narrow", finish, "save=all " + LONG, "132"),
                ("backward_narrow", finish, SMALL, "132"),
                ("backward_narrow_ranks", finish, "R=2 chain " + SMALL, "132"),
                ("backward_strips", finish, "strip=2 " + SMALL, "132"),
                ("backward_64", finish, SIXTY, "2"),
                ("backward_deep", finish, "deep=half " + SMALL, "2"),
                ("backward_f32", finish, "g=f32 " + SMALL, "2")):
            yield Path("%s_%s" % (name, m), stage, variant, soft + case, sms)
        yield Path("forward_one_" + m, "08", "v5_one_kernel",
                   "live %s gate=bounded %s" % (m, SMALL))
        yield Path("tall_forward_" + m, "08", "v2_stages", TALL % m, "132")
        yield Path("tall_backward_" + m, "13", "v2_stages", TALL % m, "132")
        yield Path("f32_forward_" + m, "08", "v2_stages_f32", soft + SMALL, "132")
        yield Path("f32_backward_" + m, "13", "v2_stages_f32", soft + SMALL, "132")
    yield Path("forward_own", *fused, "live gdn gate=softplus " + OWN)
    yield Path("backward_own", *finish, "live gdn gate=softplus " + OWN)
    yield Path("forward_bounded", *fused, "live kda gate=bounded " + SMALL)
    yield Path("forward_one_deep", "08", "v5_one_kernel",
               "live gdn gate=softplus deep=half " + SMALL)
    yield Path("forward_by_head", "08", "v7_by_head",
               "live kda gate=softplus deep=half " + OWN)
    yield Path("backward_by_head", "13", "v7_by_head",
               "live kda gate=softplus deep=half " + OWN)
    yield Path("backward_one", "13", "v5_steps", "live kda gate=bounded " + SMALL)


PATHS = [
    *of_layer(),
    Path("spike", "15", "v2_mma", "live kda spike H=1 HV=2 K=64 V=64 C=64 lengths=300 dht "
         "h0 masks=1"),
    Path("spike_tree", "15", "v2_mma", "live kda spike walk=blelloch H=1 HV=2 K=64 V=64 "
         "C=64 lengths=100 dht h0 masks=1"),
    Path("spike_tree_128", "15", "v2_mma", "live kda spike walk=blelloch H=1 HV=2 K=128 "
         "V=128 C=64 lengths=100 dht h0 masks=1"),
    Path("rows", "04", "v4_rows_sm90", LADDER.replace("H=2", "H=1")),
    Path("spike_plain", "15", "v1_plain", "live kda spike walk=blelloch H=1 HV=2 K=48 "
         "V=48 C=64 lengths=100 dht h0 masks=1"),
    Path("dplr", "16", "v2_tiles", "live dplr K=64 V=64 " + FAMILY),
    Path("gdn2", "16", "v2_tiles", "live gdn2 K=64 V=64 " + FAMILY),
    Path("dplr_128", "16", "v2_tiles", "live dplr K=128 V=128 " + FAMILY),
    Path("gdn2_128", "16", "v2_tiles", "live gdn2 K=128 V=128 " + FAMILY),
    Path("dplr_ranks", "16", "v2_tiles", "live dplr R=2 chain K=64 V=64 " + FAMILY),
    *(Path("ladder_" + v, "17", v, LADDER)
      for v in ("v2_shared", "v3_mma", "v4_ldmatrix", "v5_async", "v6_swizzle",
                "v7_wgmma_sm90", "v8_tma_sm90")),
]


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


def judge(build, path, numbers, kind, marks, deadline,
          runs=os.environ.get("RUNS", "20")):
    """Judges the path's case without each place. Returns rows (number, verdict, reason)
    and the last line that is no row. If the program ends early, the places without a row
    are judged in separate programs."""
    rows, lost = judge_once(build, path, numbers, kind, marks, deadline, runs)
    found = {r[0] for r in rows}
    for n in [n for n in numbers if n not in found and n != MARK]:
        if time.time() < deadline:
            more, why = judge_once(build, path, [n], kind, marks, deadline, runs)
            rows += more or [(n, "not-run", why)]
    return rows, lost


def judge_once(build, path, numbers, kind, marks, deadline, runs):
    """Runs the program once. Its result is as judge's."""
    env = dict(os.environ, KCP_OMIT_MARKS=marks, KCP_OMIT_SMS=path.sms)
    command = [build + "/kcp-check-omit", path.stage, path.variant, path.case,
               runs, os.environ.get("LIMIT", "5")]
    left = max(1, deadline - time.time())
    try:
        given = "".join("%d %d\n" % (n, kind) for n in numbers)
        run = subprocess.run(command, input=given,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env=env, timeout=left, check=False, errors="replace")
        text = run.stdout
    except subprocess.TimeoutExpired as e:
        text = (e.stdout or b"").decode(errors="replace")
    rows = [line.split("\t") for line in text.splitlines() if line.count("\t") == 2]
    lost = [s for s in text.splitlines() if s.count("\t") != 2]
    return [(int(r[0]), r[1], r[2]) for r in rows], " ".join(lost[-1:])


def reached_by(build, path, folder, deadline):
    """Runs the case with no place left out. Returns its verdict and the places it marks."""
    marks = "%s/%s" % (folder, path.name)
    rows, lost = judge(build, path, [MARK], 0, marks, deadline, "6")
    verdict, why = rows[0][1:] if rows else ("not run", lost)
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
            job = pool.submit(judge, build, path, [0], kind, "/dev/null", deadline)
            jobs[job] = (path, kind)
    bad = set()
    for job in concurrent.futures.as_completed(jobs):
        path, kind = jobs[job]
        rows, lost = job.result()
        verdict, why = rows[0][1:] if rows else ("not run", lost)
        if verdict != "unseen":
            bad.add((path.group(), kind))
            print("%s: control of kind %d FAILS: %s %s" % (path.name, kind, verdict, why),
                  flush=True)
    return bad


def key_of(place):
    """What identifies a place if lines move: file, name and code."""
    return place[0], place[2], place[3]


class Queue:
    """Which places are judged next, in which path, with which late copies. Each place is
    judged in its first way, then each place that was not seen in its second way, and so
    on. A way is (path, kind)."""

    def __init__(self, ways, order):
        self.lock, self.busy, self.seen = threading.Lock(), set(), {}
        self.ways, self.verdicts = ways, collections.defaultdict(list)
        self.order = {n: i for i, n in enumerate(sorted(ways, key=order))}

    def take(self, most=4):
        """Returns a way and at most `most` places, which are then busy."""
        with self.lock:
            left = sorted((len(self.verdicts[n]), self.order[n], n) for n in self.ways
                          if n not in self.busy and n not in self.seen
                          and len(self.verdicts[n]) < len(self.ways[n]))
            if not left:
                return None, []
            tries, _, n = left[0]
            way = self.ways[n][tries]
            mine = [n for t, _, n in left if self.ways[n][t] == way][:most]
            self.busy.update(mine)
            return way, mine

    def add(self, n, verdict):
        with self.lock:
            self.verdicts[n].append(verdict)
            if verdict in SEEN:
                self.seen[n] = verdict

    def end(self, mine):
        with self.lock:
            self.busy.difference_update(mine)


def explained():
    """Returns the rows of unseen.tsv by key_of."""
    with open(ROOT + "/tests/proxy/unseen.tsv", encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f][1:]
    return {tuple(r[:3]): r[3] for r in rows}


def first_paths():
    """Returns which path showed a place in the recorded table, by key_of."""
    rows = []
    for name in sorted(glob.glob(ROOT + "/bench/results/*omit.tsv"))[-1:]:
        with open(name, encoding="utf-8") as f:
            rows = [line.rstrip("\n").split("\t") for line in f][1:]
    return {(r[0], r[2], r[6]): r[3] for r in rows if r[4] in SEEN}


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
    places, bad, first = all_places(), 0, first_paths()
    kinds = {n: KINDS.get(p[2], 0) for n, p in places.items()}
    only = re.compile(os.environ.get("ONLY", ""))
    chosen = re.compile(os.environ.get("PLACES", ""))
    paths = [p for p in PATHS if only.search(p.name)]
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
        queue = Queue({n: mine for n, mine in ways.items()
                       if chosen.search("%s:%d %s" % places[n][:3])},
                      lambda n: (key_of(places[n]) in first, places[n]))
        with open(out + "/omit.tsv", "w", encoding="utf-8") as f:
            print("file", "line", "name", "path", "verdict", "reason", "code", sep="\t",
                  file=f)

            def work(_):
                while time.time() < deadline:
                    way, mine = queue.take()
                    if not mine and not queue.busy:
                        return
                    if not mine:
                        time.sleep(0.1)
                        continue
                    (path, kind), start, text = way, time.time(), ""
                    rows = judge(build, path, mine, kind, "/dev/null", deadline)[0]
                    for n, verdict, why in rows:
                        if (path.group(), kind) in void:
                            verdict, why = "void", "the control fails"
                        queue.add(n, verdict)
                        text += "\t".join(map(str, (*places[n][:3], path.name, verdict,
                                                    why.strip(), places[n][3]))) + "\n"
                    queue.end(mine)
                    f.write(text)
                    f.flush()
                    print("%d s: %s, kind %d, %.1f s: %s" % (
                        time.time() - began, path.name, kind, time.time() - start,
                        " ".join(v for _, v, _ in rows)), flush=True)

            list(pool.map(work, range(workers)))
    seen, at, reached = queue.seen, queue.verdicts, set(ways)
    reasons, left, count = explained(), [], collections.Counter()
    for n in sorted(places, key=lambda n: places[n][:2]):
        file, line, name, code = places[n]
        if n not in reached and not is_ours(places[n]):
            continue
        verdict = seen.get(n) or (
            "explained" if key_of(places[n]) in reasons else
            "unseen" if "unseen" in at[n] else "not judged" if n in reached else
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
