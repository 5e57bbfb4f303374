#!/usr/bin/env python3
# check_gpus.py -- judges the stages that communicate, over NCCL on this machine's GPUs.
# Book: chapter 20.
#
#   make check-gpus, or python3 bench/check_gpus.py [BUILD]
#
# These jobs run on RANKS ranks (as many as GPUs, or two) and again on two: every variant of
# the stages that communicate, random exchanges, and deliberate mistakes in each stage and
# exchange algorithm.
# Other jobs run only on RANKS ranks: a failing rank, communicators made by the caller, CUDA
# graphs, PyTorch (kcp_torch, training steps, hybrid.py), 100 runs that must give equal bits,
# and BATCHES (160) random batches of sequences.
# The job with the failing rank runs first and alone: its timeout is 5 seconds, and NCCL
# starts slowly beside other jobs. At most AT_ONCE (8) jobs run at once. More jobs would be
# slower, because a message moves only while both of its GPUs run the same job.
#
# With fewer GPUs than RANKS, all ranks are processes on one GPU, and NCCL sends through
# sockets of this machine (tests/share_gpu.sh; needs MPI). Then results are tested, but
# neither NCCL's other transports nor times. The column "machine" says "2 processes on one",
# and such a line does not count for a run on several GPUs.
#
# A call ends after LIMIT (1800) seconds, and the next call continues. The file jobs.tsv in
# folder STATE (OUT/state) gets a line per finished job: when, where and with which commit
# and machine code it ran. A job that passed on the same card with the same code does not run
# again. The code is the digests (digest.py) of the job's variants, their paths and the
# exchange; without cuobjdump or object files it is COMMIT (git's HEAD). To continue in
# another tree or on another machine, copy the folder STATE. ONLY, a pattern, selects jobs.
#
# Folder OUT (BUILD/check_gpus), which records.py reads, gets nccl.tsv (a line per job, from
# the lines of STATE that are valid for the present code; column "late" counts runs that are
# missing), judge.txt (verdicts of variants) and log.txt (this call's output). The exit
# status is 0 only if every selected job has passed.
import collections
import concurrent.futures
import csv
import glob
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time

from records import read_tsv

HERE = os.path.dirname(os.path.abspath(__file__))
COLUMNS = "what ranks id code status seconds date machine driver commit says verdicts".split()
JUDGE = "$B/kcp-check --device --limit 120 %s"
SHARE = "sh $HERE/../tests/share_gpu.sh %d "
Job = collections.namedtuple("Job", "what ranks id code command")
LOCK = threading.Lock()


def output(*command):
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         text=True, check=False)
    return run.stdout if run.returncode == 0 else ""


def forms():
    with open(HERE + "/../ref/comm.h", encoding="utf-8") as f:
        return re.findall(r"^ *FORM\(.*, ([a-z_]*)\)", f.read(), re.M)


class Code:
    """The digests of this build: tuples (stage, variant, digest, "path" or "code")."""
    def __init__(self, build, out, commit):
        self.commit, self.parts = "commit " + (commit or "unknown %f" % time.time()), []
        if not shutil.which("cuobjdump") or not os.path.isdir(build + "/cuda"):
            return
        with open(out + "/digests.tsv", "w", encoding="utf-8") as f:
            subprocess.run([sys.executable, HERE + "/digest.py", build], stdout=f, check=True)
        paths = output(build + "/kcp-check", "--paths").splitlines()
        leads_to = {r["path"]: (r["stage"], r["kernel"])
                    for r in csv.DictReader(paths, delimiter="\t")}
        for r in read_tsv(out + "/digests.tsv"):
            stage, variant = leads_to.get(r["variant"], ("", "")) \
                if r["stage"] == "path" else (r["stage"], r["variant"])
            self.parts.append((stage, variant, r["digest"],
                               "path" if r["stage"] == "path" else "code"))

    def of(self, stages, variant):
        """A hash of the variants (all, if variant is "") of some stages, and the exchange."""
        those = [p for p in self.parts if p[0] == "comm" or
                 p[0][:2] in stages and variant in ("", p[1])]
        if len([p for p in those if p[3] == "code"]) < 2 or any(p[2] == "-" for p in those):
            return self.commit
        return hashlib.sha1(repr(sorted(those)).encode()).hexdigest()[:12]


def batches(ranks, count):
    """Yields 16 batches per line. A batch has 10 to 30 sequences, mostly of 1 to 5 tokens."""
    draw = random.Random(38)
    cases = []
    for i in range(1, count + 1):
        wide = draw.random() < 0.1
        K = 64 if wide or draw.random() < 0.7 else 128
        H = draw.randint(1, 2)
        lengths = [draw.randint(1, 5 if draw.random() < 0.9 else 150)
                   for _ in range(draw.randint(10, 30))]
        cases.append(
            "live %s %s gate=softplus beta=sigmoid H=%d HV=%d K=%d V=%d C=64 R=%d lengths=%s "
            "l2norm%s%s seed=%d"
            % (draw.choice(["kda", "gdn"]), forms()[i % len(forms())], H,
               H * (20 if wide else draw.randint(1, 2)), K, K, ranks,
               ",".join(map(str, lengths)), draw.choice(["", " h0"]),
               draw.choice(["", " dht"]), i))
        if i % 16 == 0 or i == count:
            yield "; ".join(cases)
            cases = []


def judged(ranks, shared, words):
    """Returns a command that judges over `ranks` ranks."""
    return SHARE % ranks + JUDGE % words if shared else \
        JUDGE % ("--backend nccl --ranks %d %s" % (ranks, words))


def jobs_of(ranks, shared, add, build):
    """Adds the jobs on `ranks` ranks, the longest first."""
    for s in "13 08 16 11 07 15 14".split():
        listed = output(build + "/kcp-check", "--list", "--device", "--stage", s)
        for line in listed.splitlines():
            variant = line.split()[1]
            add("%s %s" % (s, variant), ranks, [s], variant,
                judged(ranks, shared, "--quick --stage %s --variant %s" % (s, variant)))
        for form in [] if s in ("07", "11") else ["any"] if s in ("14", "15") else forms():
            add("planted %s %s" % (s, form), ranks, [s], "",
                "NCCL=%d %sSTAGES=%s FORMS=%s sh $HERE/../tests/cli/wrong_comm.sh $B"
                % (ranks, "SHARED=1 " if shared else "", s, form))
    add("exchanges", ranks, ["07", "11"], "", judged(ranks, shared, "--exchange 100"))


def all_jobs(most, shared, build, code):
    """Returns the list of jobs. Its first job must run alone."""
    jobs = []

    def add(what, ranks, stages, variant, command):
        name = hashlib.sha1(command.encode()).hexdigest()[:8]
        jobs.append(Job(what, str(ranks), name, code.of(stages, variant), command))

    for c in "20/gpu_lost 20/gpu_from 20/gpu_split 08/gpu_graph_ranks".split():
        stage, check = c.split("/")
        launch = SHARE % most if shared and check != "gpu_lost" else ""
        add(check, most, ["07", "08", "11", "13"], "",
            launch + "$B/kcp-check --device --stage %s --variant %s" % (stage, check))
    torch = "python3 -c 'import pytest, torch' || { echo nothing ran; exit; }; " \
        "export KCP_LIB=$B/libkcp.so PYTHONPATH=$HERE/../book/examples/torch; "
    add("hybrid.py, equal losses", most, ["07", "08", "11", "13"], "",
        torch + "sh $HERE/hybrid.sh %d" % most)
    for what, file in (("kcp_torch", "ranks"), ("training steps from PyTorch", "gpu")):
        add(what, most, ["07", "08", "11", "13"], "", torch +
            "python3 -m torch.distributed.run --rdzv_backend c10d --rdzv_endpoint localhost:0 "
            "--nproc_per_node=%d -m pytest -xq -p no:cacheprovider "
            "$HERE/../tests/pytorch/test_%s.py --cuda" % (most, file))
    jobs_of(most, shared, add, build)
    add("100 times the same bits", most, ["13"], "v4_scans_finish", judged(
        most, shared, "--repeats 100 --stage 13 --variant v4_scans_finish --case "
        "'kda live H=2 K=128 V=128 R=%d lengths=900,77'" % most))
    for i, cases in enumerate(batches(most, int(os.environ.get("BATCHES", "160")))):
        for s, variant in (("08", "v3_prepare_scan"), ("13", "v4_scans_finish")):
            add("%s batches from %d" % (s, 16 * i + 1), most, [s], variant, judged(
                most, shared,
                "--quick --stage %s --variant %s --case '%s'" % (s, variant, cases)))
    if most > 2:
        jobs_of(2, shared, add, build)
    return jobs


def machine_of(ranks, gpus, card):
    """`card` begins with "one" if the ranks share a GPU."""
    return "%s processes on %s" % (ranks, card) if card.startswith("one ") else \
        "%d x %s" % (gpus, card)


def run_job(job, end, stamp, out, state):
    left, began = int(end - time.time()), time.time()
    if left < 1:
        return
    date = time.strftime("%F %H:%M", time.gmtime())
    run = subprocess.run(["timeout", "-k", "5", str(left), "sh", "-c", job.command],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         errors="replace", check=False)
    text, status, seconds = run.stdout, str(run.returncode), int(time.time() - began)
    cut = status in ("124", "137") and time.time() >= end - 1
    lines = text.splitlines()
    says = [s for s in lines if re.search("^  FAIL|passed|wrong|kcp-check:", s)] + [""]
    if any(s.startswith("nothing ran") for s in lines):
        status, says = "n/a", ["n/a: supports only one rank"]
    verdicts = [s for s in lines if re.search(r"^[01]\d_| worst |^ *ok +path ", s)]
    machine = machine_of(job.ranks, *stamp[:2])
    row = job[:4] + (status, str(seconds), date, machine) + stamp[2:] + \
        (says[0], "|".join(verdicts))
    with LOCK:
        with open(out + "/log.txt", "a", encoding="utf-8") as f:
            f.write("== %s, %s ranks: status %s, %d s\n%s" % (
                job.what, job.ranks, "late" if cut else status, seconds, text))
        if not cut:
            with open(state, "a", encoding="utf-8") as f:
                f.write("\t".join(s.replace("\t", " ") for s in row) + "\n")


def known(state, card, jobs):
    """Returns, by job, the last line of the state on such a card with the present code."""
    by_key = {(r["what"], r["ranks"], r["id"], r["code"]): r for r in read_tsv(state)
              if re.sub(r"^\d+ (x|processes on) ", "", r["machine"]) == card}
    return {j: by_key[j[:4]] for j in jobs if j[:4] in by_key}


def passed(row):
    return row["status"] in ("0", "n/a")


def summary(jobs, rows, out, most):
    """Writes nccl.tsv, a line per job, and judge.txt, and prints the table."""
    names = "what ranks ok failed late seconds date commit machine driver says".split()
    with open(out + "/nccl.tsv", "w", encoding="utf-8") as f:
        print(*names, sep="\t", file=f)
        for j in sorted(jobs):
            r = rows.get(j, dict.fromkeys(COLUMNS, ""))
            ok, failed = r["status"] == "0", j in rows and not passed(r)
            print(j.what, j.ranks, int(ok), int(failed), int(j not in rows), r["seconds"],
                  r["date"][:10], *[r[c] for c in names[7:]], sep="\t", file=f)
            print("%-28s %s ranks  %-7s %4s s  %s  %s  %s" % (
                j.what, j.ranks, "missing" if j not in rows else "FAILED" if failed else
                "passed" if ok else "n/a", r["seconds"], r["date"], r["commit"], r["says"]))
    with open(out + "/judge.txt", "w", encoding="utf-8") as f:
        for j, r in rows.items():
            if re.match(r"\d\d v", j.what) and j.ranks == str(most) and r["verdicts"]:
                f.write(r["verdicts"].replace("|", "\n") + "\n")


def main(arguments):
    if len(arguments) > 1 or arguments[:1] and not os.path.isdir(arguments[0]):
        sys.exit("usage: check_gpus.py [BUILD], a folder that contains kcp-check")
    began, env = time.time(), os.environ
    build = arguments[0] if arguments else "build"
    gpus = len(output("nvidia-smi", "-L").splitlines())
    most = int(env.get("RANKS") or max(gpus, 2))
    shared = most > gpus
    if not gpus or most < 2 or shared and not shutil.which("mpirun"):
        sys.exit("check_gpus.py: found %d GPUs and RANKS=%d, expected a GPU per rank, or one "
                 "GPU and mpirun, and 2 or more ranks" % (gpus, most))
    out = env.get("OUT") or build + "/check_gpus"
    state_folder = env.get("STATE") or out + "/state"
    for folder in (out, state_folder):
        os.makedirs(folder, exist_ok=True)
    for path in glob.glob(out + "/*.t[sx][vt]"):
        os.remove(path)
    state = state_folder + "/jobs.tsv"
    if not os.path.exists(state):
        with open(state, "w", encoding="utf-8") as f:
            print(*COLUMNS, sep="\t", file=f)
    smi = output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    card, driver = smi.splitlines()[0].split(", ")
    card = ("one " if shared else "") + card
    machine = machine_of(most, gpus, card)
    print("check_gpus.py: %s%s" % (machine, ", NCCL over sockets" if shared else ""))
    with open(out + "/machine.txt", "w", encoding="utf-8") as f:
        print("%s, %s, %s" % (machine, driver, time.strftime("%F", time.gmtime())), file=f)
    commit = env.get("COMMIT") or \
        output("git", "-C", HERE, "rev-parse", "--short", "HEAD").strip()
    env.update(B=build, HERE=HERE, KCP_TIMEOUT_S=env.get("KCP_TIMEOUT_S", "20"),
               LD_LIBRARY_PATH=output("sh", "-c", ". '%s/nccl_home.sh'; "
                                      "echo $LD_LIBRARY_PATH" % HERE).strip())
    jobs = all_jobs(most, shared, build, Code(build, out, commit))
    selected = [j for j in jobs if re.search(env.get("ONLY", ""), "\t".join(j))]
    before = known(state, card, jobs)
    todo = [j for j in selected if j not in before or not passed(before[j])]
    end, stamp = began + int(env.get("LIMIT") or 1800), (gpus, card, driver, commit)
    alone = [j for j in todo if j.what == "gpu_lost"]
    for job in alone:
        run_job(job, end, stamp, out, state)
    with concurrent.futures.ThreadPoolExecutor(int(env.get("AT_ONCE", "8"))) as pool:
        done = [pool.submit(run_job, j, end, stamp, out, state)
                for j in todo if j not in alone]
    for future in done:
        future.result()
    rows = known(state, card, jobs)
    summary(jobs, rows, out, most)
    good = sum(map(passed, rows.values()))
    print("check_gpus.py: %s: %d of %d jobs passed, %d of them before this call; %d failed, "
          "%d missing; %d seconds" % (
              "whole" if good == len(jobs) else "NOT WHOLE", good, len(jobs),
              sum(map(passed, before.values())), len(rows) - good, len(jobs) - len(rows),
              time.time() - began))
    sys.exit(any(j not in rows or not passed(rows[j]) for j in selected))


if __name__ == "__main__":
    main(sys.argv[1:])
