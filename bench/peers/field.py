"""field.py -- judges public kernels of KDA and GDN, on one rank or over two ranks.

Book: chapter 19, "The field, judged"; chapter 20, "What a test of context parallelism must
contain".

    python3 bench/peers/field.py [cp=2] [device=cuda] [only=fla] [seed=1] [seconds=240]
                                 [check=FILE] OUT

OUT, e.g. field.tsv, gets one row per kernel, stage and kind of input (regime). A row with PASS
or FAIL has the worst output, its error and limit, and the options that repeat the case. A row
with n/a or error has the reason. n/a: the kernel or its documentation rejects the case, the
kernel cannot be imported, or the time is over. Kernels are called as their documentation
requires, with inputs and outputs in bf16. No kernel is timed, so all kernels run concurrently.

With cp=2, FLA's functions get cp_context and the cases CP below, each rank in a process. With
one GPU both processes use it, and NCCL sends through sockets of this machine. OUT, e.g. cp.tsv,
gets one row per function and pass: cases, right, wrong, refused (n/a), the worst case, and a
command that repeats it. `seconds` limits each case. The exit status is 0 if every function was
judged.

Fetch FLA first: sh bench/peers/fetch.sh CLONE COMMIT.
"""
import functools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import common

sys.path.insert(0, os.path.join(common.ROOT, "tests"))
from regimes import REGIMES    # noqa: E402
FLA = "flash-linear-attention"
# Each row has a kernel's function, its package, its model and its stages.
PEERS = (
    ("field:fla_chunk_kda", FLA, "kda", ("08", "13")),
    ("field:fla_chunk_gated_delta_rule", FLA, "gdn", ("08", "13")),
    ("others:flash_kda_chunk_kda", "FlashKDA", "kda", ("08",)),
    ("others:flash_qla_chunk_gated_delta_rule", "flash-qla", "gdn", ("08", "13")),
)
COLUMNS = "stage model gate peer verdict worst error allowed words says".split()

CP_SIZES = "H=2 HV=2 K=128 V=128 C=64 R=2 l2norm beta=sigmoid"
CP = {
    "one sequence": "live lengths=512", "strong gates": "strong lengths=512",
    "saturated gates": "saturated lengths=512", "alternating gates": "alternate lengths=512",
    "packed": "live lengths=300,212", "ragged": "live lengths=37,5,70,22",
    "many short": "live lengths=3,1,2,20,5,7,9,30,1,2,8,6,65,17,16,64",
    "whole sequences": "live lengths=256,256", "one token each end": "live lengths=1,510,1",
    "alike keys": "live lengths=512 alike=0.9", "zero rows": "live lengths=512 null",
    "empty sequence": "live lengths=200,0,312", "long": "live lengths=4096",
    "uneven cuts": "live lengths=512 cuts=0,100,512",
    "empty rank": "live lengths=512 cuts=0,512,512", "initial state": "live lengths=512 h0",
}
CP_COLUMNS = "system version date what cases right wrong refused worst command".split()
CP_NONE = dict(system="attention-gym", version="7fdb85d0 (2026-08-22)", what="-", cases=0,
               right=0, wrong=0, refused=0, command="-", worst="n/a: its public source has "
               "no context parallelism for KDA or GDN")

# Messages of the RuntimeError by which FLA's backward rejects some versions of Triton.
REFUSES = re.compile("Please upgrade Triton|NotSupported")


# ---- FLA's functions for kcp_check.py --as fla, without Triton's tuning

@functools.cache
def first_candidates():
    """Makes Triton use a kernel's first configuration that runs: no kernel is timed here."""
    import ahead
    ahead.install(first=True)


def fla_chunk_kda(*tensors, **options):
    """Calls FLA's chunk_kda. FLA's documentation requires safe_gate with lower_bound."""
    first_candidates()
    from fla.ops.kda import chunk_kda
    return chunk_kda(*tensors, safe_gate="lower_bound" in options, **options)


def fla_chunk_gated_delta_rule(*tensors, **options):
    first_candidates()
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    return chunk_gated_delta_rule(*tensors, **options)


# ---- the processes that judge

def cp_words(model, text):
    regime, rest = text.split(" ", 1)
    gate = "gate=softplus " if model == "kda" else ""
    return f"{regime} {model} {CP_SIZES} {gate}{rest}"


def command_of(o, function, stage):
    """Returns the options of kcp_check.py that also the command in a row has."""
    return [function, "--stage", stage, "--as", "fla", "--device", o["device"],
            "--storage", "bf16"] + (["--cp", o["cp"]] if o["cp"] != "1" else [])


def start(o, peer, stage, here):
    """Starts a process of kcp_check.py, which judges this kernel in all cases."""
    function, _, model, _ = peer
    name = os.path.join(here, f"{function.replace(':', '.')}-{stage}")
    path = os.pathsep.join([common.HERE, os.environ.get("PYTHONPATH", ""), common.PEERS])
    cases = ["--regimes", model] if o["cp"] == "1" else \
        ["--case", "; ".join(cp_words(model, text) for text in CP.values())]
    command = [sys.executable, os.path.join(common.ROOT, "tests", "kcp_check.py"),
               *command_of(o, function, stage), "--seed", o["seed"], "--check", o["check"],
               "--limit", o["seconds"], "--json", name + ".json", *cases]
    with open(name + ".log", "w") as log:
        run = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                               env=dict(os.environ, PYTHONPATH=path), cwd=here,
                               start_new_session=True)
    return peer, stage, name, run


def reported(name):
    """Returns the cases that kcp_check.py reports, or None and the reason."""
    try:
        with open(name + ".json") as f:
            return json.load(f)["cases"], ""
    except OSError:                              # killed, or kcp_check.py found no function
        with open(name + ".log") as f:
            return None, (f.read().strip().splitlines() or ["not finished in time"])[-1]


# ---- rows

def row_of(r):
    """Returns the verdict, worst output, error, limit and options of one reported case."""
    found = re.match(r"(\w+) rank.*?error (\S+) > ([^;]+);", r["why"]) or \
        re.match(r"(\w+) (\S+) of (\S+)", r["worst"])
    worst, error, allowed = found.groups() if found else ("", "", "")
    verdict = {"pass": "PASS", "fail": "FAIL"}.get(r["verdict"], "n/a")
    first = r["why"].splitlines()[0] if r["why"] and not found else ""
    if verdict == "FAIL" and not found:             # an exception, or no answer
        verdict = "n/a" if REFUSES.search(first) else "error"
    return dict(verdict=verdict, worst=worst, error=error, allowed=allowed,
                says=" ".join(first.split())[:200], words=r["words"])


def regime_rows(o, peer, stage, cases, why):
    """Returns one row per regime."""
    same = dict(stage={"08": "08_forward", "13": "13_backward"}[stage], model=peer[2],
                peer=common.version(peer[1]))
    if cases is None:
        cases = [dict(verdict="n/a", why=why, worst="", words="")] * len(REGIMES)
    rows = [dict(same, gate=regime, **row_of(r)) for regime, r in zip(REGIMES, cases)]
    count = [sum(r["verdict"] == v for r in rows) for v in ("PASS", "FAIL", "n/a")]
    print(f"{peer[0]} {stage}: {count[0]} pass, {count[1]} fail, {count[2]} n/a", flush=True)
    return rows


def cp_rows(o, peer, stage, cases, why):
    """Prints the cases. Returns one row: the counts, the worst case and a command for it."""
    row = dict(system="FLA " + peer[0].partition("fla_")[2],
               version=common.version(FLA).partition(" ")[2] or "not found", date=o["date"],
               what="forward" if stage == "08" else "backward", cases=len(cases or []),
               worst="-" if cases else why, command="-")
    for column, verdict in ("right", "pass"), ("wrong", "fail"), ("refused", "n/a"):
        row[column] = sum(r["verdict"] == verdict for r in cases or [])
    for r in cases or []:
        name = list(CP)[int(re.search(r"case_(\d+)", r["case"])[1])]
        print(f"    {name:<20} {r['verdict']:<5} {(r['why'] or r['worst'])[:100]}")
        if r["verdict"] == "fail" and row["command"] == "-":
            row["worst"] = f"{name}: {r['why'].splitlines()[0][:100]}"
            row["command"] = " ".join(
                ["PYTHONPATH=.peers:bench/peers python tests/kcp_check.py",
                 *command_of(o, peer[0], stage), f"--case '{r['words']}'"])
    print("{system}, {what}: {cases} cases, {right} right, {wrong} wrong, {refused} refused, "
          "worst {worst}".format(**row), flush=True)
    return [row]


def main(arguments):
    o = {"device": "cuda", "only": "", "seconds": "240", "seed": "1", "cp": "1",
         "check": os.path.join(common.ROOT, "build", "kcp-check"),
         "date": time.strftime("%F", time.gmtime())}
    o.update(w.split("=", 1) for w in arguments if "=" in w)
    files = [w for w in arguments if "=" not in w]
    if len(files) != 1:
        sys.exit(print("field.py: needs one file to write, e.g. field.tsv",
                       file=sys.stderr) or 2)
    o["check"] = os.path.abspath(o["check"])
    here = os.environ.get("FIELD_LOGS") or tempfile.mkdtemp()
    cp, rows, missing = o["cp"] != "1", [], 0
    jobs = (start(o, peer, stage, here) for peer in PEERS for stage in peer[3]
            if o["only"] in peer[0] and (peer[1] == FLA or not cp))
    if not cp:
        jobs = list(jobs)                           # all start now
    ends = time.monotonic() + float(o["seconds"])
    for peer, stage, name, run in jobs:
        try:
            run.wait(None if cp else max(1, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
        cases, why = reported(name)
        missing += cases is None
        rows += (cp_rows if cp else regime_rows)(o, peer, stage, cases, why)
        common.write(files[0], CP_COLUMNS if cp else COLUMNS,
                     rows + [dict(CP_NONE, date=o["date"])] * cp)
    sys.exit(cp and missing > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
