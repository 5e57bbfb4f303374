#!/usr/bin/env python3
# cp_judged.py -- judges other projects' context parallelism, over two ranks.
# Book: chapter 20, "What a test of context parallelism must contain".
#
#   sh bench/peers/fetch.sh CLONE COMMIT; python3 bench/peers/cp_judged.py [BUILD]
#
# Runs FLA's chunk_kda and chunk_gated_delta_rule with cp_context on the cases below,
# forward and backward, each rank in a process. With one GPU both processes use it, and NCCL
# sends through sockets of this machine. A case that a system says it does not take is n/a.
# Writes OUT/cp.tsv: system, version, date, cases, right, wrong, refused (n/a), the worst
# case, and a command that repeats it. SYSTEMS, a pattern, selects rows; LIMIT (120): seconds
# per case. Triton does not tune (field.py). The exit status is 0 if every system was judged.
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from common import ROOT, version

SIZES = " H=2 HV=2 K=128 V=128 C=64 R=2 l2norm beta=sigmoid "
CASES = [
    ("one sequence", "live lengths=512"), ("strong gates", "strong lengths=512"),
    ("saturated gates", "saturated lengths=512"), ("alternating gates", "alternate lengths=512"),
    ("packed", "live lengths=300,212"), ("ragged", "live lengths=37,5,70,22"),
    ("many short", "live lengths=3,1,2,20,5,7,9,30,1,2,8,6,65,17,16,64"),
    ("whole sequences", "live lengths=256,256"), ("one token each end", "live lengths=1,510,1"),
    ("alike keys", "live lengths=512 alike=0.9"), ("zero rows", "live lengths=512 null"),
    ("empty sequence", "live lengths=200,0,312"), ("long", "live lengths=4096"),
    ("uneven cuts", "live lengths=512 cuts=0,100,512"),
    ("empty rank", "live lengths=512 cuts=0,512,512"), ("initial state", "live lengths=512 h0"),
]
JUDGED = [("FLA chunk_kda", "field:fla_chunk_kda", "kda"),
          ("FLA chunk_gated_delta_rule", "field:fla_chunk_gated_delta_rule", "gdn")]
NONE = [("attention-gym", "7fdb85d0 (2026-08-22)",
         "its public source has no context parallelism for KDA or GDN")]
COLUMNS = "system version date what cases right wrong refused worst command".split()


def words(model, text):
    regime, rest = text.split(" ", 1)
    gate = "gate=softplus " if model == "kda" else ""
    return "%s %s%s%s%s" % (regime, model, SIZES, gate, rest)


def judged(build, system, function, model, stage, folder):
    file = "%s/%s_%s.json" % (folder, model, stage)
    command = [sys.executable, ROOT + "/tests/kcp_check.py", function, "--stage", stage,
               "--as", "fla", "--cp", "2", "--device", "cuda", "--storage", "bf16",
               "--limit", os.environ.get("LIMIT", "120"), "--check", build + "/kcp-check",
               "--json", file, "--case", "; ".join(words(model, c) for _, c in CASES)]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(
        [ROOT + "/.peers", ROOT + "/bench/peers", os.environ.get("PYTHONPATH", "")]))
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True, env=env, check=False)
    if not os.path.exists(file):
        return None, (run.stdout.splitlines() or ["no output"])[-1]
    with open(file, encoding="utf-8") as f:
        return json.load(f)["cases"], run.stdout


def row_of(rows, function, stage):
    """Returns the counts, the worst case and a command for it."""
    count = {v: sum(r["verdict"] == v for r in rows) for v in ("pass", "fail", "n/a")}
    bad, command = [], ""
    for r in rows:
        name = CASES[int(re.search(r"case_(\d+)", r["case"])[1])][0]
        print("    %-20s %-5s %s" % (name, r["verdict"], (r["why"] or r["worst"])[:100]))
        if r["verdict"] == "fail":
            bad.append("%s: %s" % (name, r["why"].splitlines()[0][:100]))
            command = command or ("PYTHONPATH=.peers:bench/peers python tests/kcp_check.py "
                                  "%s --stage %s --as fla --cp 2 --device cuda --storage "
                                  "bf16 --case '%s'" % (function, stage, r["words"]))
    return [len(rows), count["pass"], count["fail"], count["n/a"], bad[0] if bad else "-",
            command or "-"]


def main(arguments):
    build = arguments[0] if arguments else ROOT + "/build"
    out, date = os.environ.get("OUT") or build, time.strftime("%F", time.gmtime())
    only, failed, table = os.environ.get("SYSTEMS", ""), 0, []
    fla = version("flash-linear-attention").partition(" ")[2] or "not found"
    with tempfile.TemporaryDirectory() as folder:
        for system, function, model in JUDGED:
            for stage in ("08", "13"):
                if not re.search(only, system):
                    continue
                print("%s, stage %s" % (system, stage), flush=True)
                rows, why = judged(build, system, function, model, stage, folder)
                failed += rows is None
                table.append([system, fla, date, "forward" if stage == "08" else
                              "backward"] + (row_of(rows, function, stage) if rows else
                                             [0, 0, 0, 0, why, "-"]))
    for system, commit, why in NONE:
        table.append([system, commit, date, "-", 0, 0, 0, 0, "n/a: " + why, "-"])
    with open(out + "/cp.tsv", "w", encoding="utf-8") as f:
        for row in [COLUMNS] + table:
            print(*row, sep="\t", file=f)
            print("%-28s %-24s %-10s %-8s %5s %5s %5s %7s  %s" % tuple(row[:9]))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
