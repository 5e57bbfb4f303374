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
import csv
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
BITS_L, OUTPUTS = 1024, "o ht dq dk dv dg dbeta dh0".split()


def make_inputs(folder, model, T):
    """q, k, v, g, beta, do of a sequence whose state hardly decays; seed 57."""
    r = np.random.default_rng(57)
    x = {name: r.normal(size=(T, 2, 128)) for name in ("q", "k", "v", "do")}
    x["g"] = -abs(r.normal(size=(T, 2, 128) if model == "kda" else (T, 2))) / T
    x["beta"] = r.uniform(0.02, 0.3, (T, 2))
    for name, numbers in x.items():
        np.save("%s/%s.npy" % (folder, name), numbers.astype(np.float32))


def plan_words(kind, layout, L):
    return (["--canonical", str(L)] if kind == "canonical" else []) + ["--layout", layout]


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout.splitlines() or ["no output"])[-1]


def bytes_of(folder):
    data = {}
    for name in OUTPUTS:
        with open("%s/%s.npy" % (folder, name), "rb") as f:
            data[name] = f.read()
    return data


def count_gpus():
    if not shutil.which("nvidia-smi"):
        sys.exit("canonical.py: found no GPU, expected one or two")
    run = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, check=False)
    return len(run.stdout.splitlines())


def bits(build, inputs, folder, model, R, kind, layout, first, shared):
    """Returns the text for column `bits`, and the bytes of the outputs."""
    out = "%s/%s_%d_%s_%s" % (folder, model, R, kind, layout)
    launch = ["sh", HERE + "/../tests/share_gpu.sh", str(R)] if R > 1 and shared else []
    why = run(launch + [build + "/kcp-run", "--in", inputs, "--out", out, "--model", model,
               "--device", "gpu", "--ranks", str(R), "--l2norm"] +
              plan_words(kind, layout, BITS_L))
    if why:
        return "failed: " + why, None
    data = bytes_of(out)
    if first is None:
        return "first", data
    other = [n for n in OUTPUTS if data[n] != first[n]]
    return "differ: " + " ".join(other) if other else "equal", data


def times(build, folder, model, R, kind, layout, T, H):
    """Returns ms of forward and of backward, the least over the forms."""
    file = "%s/%s_%d_%s_%s.tsv" % (folder, model, R, kind, layout)
    why = run([build + "/kcp-bench", "--ranks", str(R), "--model", model, "-T", str(T), "-H",
               str(H), "-w", "5", "-n", "30", "--tsv", file] +
              plan_words(kind, layout, T // 8))
    if why and not os.path.exists(file):
        return "failed: " + why, ""
    with open(file, encoding="utf-8", newline="") as f:
        rows = list(csv.DictReader(f, delimiter="\t"))
    ms = [[float(r["us"]) / 1000 for r in rows if r["stage"].startswith(s) and r["us"]]
          for s in ("08", "13")]
    return tuple("%.3f" % min(x) if x else "-" for x in ms)


def main(arguments):
    build = arguments[0] if arguments else "build"
    out = os.environ.get("OUT") or build
    T, H = int(os.environ.get("T", "65536")), int(os.environ.get("H", "32"))
    bits_T, bad = int(os.environ.get("BITS_T", "4096")), 0
    shared = count_gpus() < 2
    print("canonical.py: two ranks: " + ("processes on one GPU, NCCL over sockets"
                                         if shared else "a GPU each"))
    with tempfile.TemporaryDirectory() as folder, \
            open(out + "/canonical.tsv", "w", encoding="utf-8") as f:
        names = "model plan layout R bits forward_ms backward_ms".split()
        print(*names, sep="\t", file=f)
        print("%-6s %-10s %-10s %s  %10s %11s  %s" % (*names[:4], *names[5:], names[4]))
        for model in ("kda", "gdn"):
            inputs = folder + "/" + model
            os.mkdir(inputs)
            make_inputs(inputs, model, bits_T)
            for kind in ("canonical", "free"):
                first = None
                for layout in ("contiguous", "zigzag"):
                    for R in (1, 2):
                        says, data = bits(build, inputs, folder, model, R, kind, layout,
                                          first, shared)
                        first = first or data
                        ms = ("n/a", "n/a") if shared else \
                            times(build, folder, model, R, kind, layout, T, H)
                        bad += says.startswith("failed") or ms[0].startswith("failed") or \
                            (kind == "canonical" and says.startswith("differ"))
                        print(model, kind, layout, R, says, *ms, sep="\t", file=f)
                        print("%-6s %-10s %-10s %d  %10s %11s  %s" % (
                            model, kind, layout, R, *ms, says), flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
