#!/usr/bin/env python3
# canonical.py -- compares canonical plans with free plans: equal bits or not, and time.
# Book: chapter 06.
#
#   python3 bench/canonical.py [BUILD]        writes OUT/canonical.tsv
#
# A canonical plan cuts sequences every L tokens, whatever the number of ranks. For each
# model, layout (contiguous, zigzag), plan and R = 1, 2, kcp-run computes forward and
# backward of BITS_T (4096) tokens on the GPUs. The bytes of every output are compared with
# those of the same kind of plan on one rank. kcp-bench then times T (65536) tokens with
# H (32) heads. The exit status is 1 if a canonical plan gives different bits or a run fails.
# With one GPU, two ranks are processes on it (tests/share_gpu.sh) and nothing is timed.
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

from records import ROOT, read_tsv

BITS_L, OUTPUTS = 1024, "o ht dq dk dv dg dbeta dh0".split()
COLUMNS = "model plan layout R bits forward_ms backward_ms".split()
SHOWN = "%-6s %-10s %-10s %s  %10s %11s  %s"


def make_inputs(folder, model, T):
    """q, k, v, g, beta, do of a sequence whose state hardly decays; seed 57."""
    r = np.random.default_rng(57)
    x = {name: r.normal(size=(T, 2, 128)) for name in ("q", "k", "v", "do")}
    x["g"] = -abs(r.normal(size=(T, 2, 128) if model == "kda" else (T, 2))) / T
    x["beta"] = r.uniform(0.02, 0.3, (T, 2))
    os.mkdir(folder)
    for name, numbers in x.items():
        np.save("%s/%s.npy" % (folder, name), numbers.astype(np.float32))


def plan_words(model, kind, layout, R, L):
    return ["--model", model, "--ranks", str(R), "--layout", layout] + \
        (["--canonical", str(L)] if kind == "canonical" else [])


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout.splitlines() or ["no output"])[-1]


def count_gpus():
    if not shutil.which("nvidia-smi"):
        sys.exit("canonical.py: found no GPU, expected one or two")
    return len(subprocess.check_output(["nvidia-smi", "-L"]).splitlines())


def bits(command, out, first):
    """Runs kcp-run. Returns the text for column `bits`, and the bytes of the outputs."""
    why = run(command + ["--out", out])
    if why:
        return "failed: " + why, None
    data = {n: pathlib.Path(out, n + ".npy").read_bytes() for n in OUTPUTS}
    if not first:
        return "first", data
    other = [n for n in OUTPUTS if data[n] != first[n]]
    return "differ: " + " ".join(other) if other else "equal", data


def times(command, file):
    """Runs kcp-bench. Returns ms of forward and of backward, the least over the forms."""
    why = run(command + ["-w", "5", "-n", "30", "--tsv", file])
    if why and not os.path.exists(file):
        return "failed: " + why, ""
    ms = [[float(r["us"]) / 1000 for r in read_tsv(file) if r["stage"][:2] == s and r["us"]]
          for s in ("08", "13")]
    return tuple("%.3f" % min(x) if x else "-" for x in ms)


def main(arguments):
    build = arguments[0] if arguments else "build"
    T, H = int(os.environ.get("T", "65536")), os.environ.get("H", "32")
    first, bad, shared = {}, 0, count_gpus() < 2
    share = ["sh", ROOT + "/tests/share_gpu.sh", "2"] if shared else []
    print("canonical.py: two ranks: " + ("processes on one GPU, NCCL over sockets"
                                         if shared else "a GPU each"))
    with tempfile.TemporaryDirectory() as folder, \
            open((os.environ.get("OUT") or build) + "/canonical.tsv", "w") as f:
        print(*COLUMNS, sep="\t", file=f)
        print(SHOWN % (*COLUMNS[:4], *COLUMNS[5:], COLUMNS[4]))
        for model in ("kda", "gdn"):
            make_inputs(folder + "/" + model, model, int(os.environ.get("BITS_T", "4096")))
        for case in itertools.product(("kda", "gdn"), ("canonical", "free"),
                                      ("contiguous", "zigzag"), (1, 2)):
            out = "%s/%s_%s_%s_%d" % (folder, *case)
            says, data = bits(
                share * (case[3] - 1) + [build + "/kcp-run", "--in", folder + "/" + case[0],
                                         "--device", "gpu", "--l2norm",
                                         *plan_words(*case, BITS_L)], out, first.get(case[:2]))
            first[case[:2]] = first.get(case[:2]) or data
            ms = ("n/a", "n/a") if shared else times(
                [build + "/kcp-bench", "-T", str(T), "-H", H, *plan_words(*case, T // 8)],
                out + ".tsv")
            bad += says.startswith("failed") or ms[0].startswith("failed") or \
                (case[1] == "canonical" and says.startswith("differ"))
            print(*case, says, *ms, sep="\t", file=f)
            print(SHOWN % (*case, *ms, says), flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
