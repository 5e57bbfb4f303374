"""field.py -- judges public kernels of KDA and GDN on several kinds of inputs (regimes).

Book: chapter 19, "The field, judged".

    python3 bench/peers/field.py [device=cuda] [only=fla] [seed=1] [seconds=240] [check=FILE] OUT

Writes one row per kernel, stage and regime to OUT, e.g. field.tsv. A row with PASS or FAIL
has the worst output, its error and limit, and the options that repeat the case. A row with
n/a or error has the reason. n/a: the kernel or its documentation rejects the case, the kernel
cannot be imported, or the time is over. Kernels are called as their documentation requires, with
inputs and outputs in bf16. No kernel is timed, so all kernels run concurrently.
"""
import csv
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
# Each row has a kernel's function, its package, its model and its stages.
PEERS = (
    ("field:fla_chunk_kda", "flash-linear-attention", "kda", ("08", "13")),
    ("field:fla_chunk_gated_delta_rule", "flash-linear-attention", "gdn", ("08", "13")),
    ("others:flash_kda_chunk_kda", "FlashKDA", "kda", ("08",)),
    ("others:flash_qla_chunk_gated_delta_rule", "flash-qla", "gdn", ("08", "13")),
)


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


# ---- all kernels, concurrently

def start(o, peer, stage, here):
    """Starts a process of kcp_check.py, which judges this kernel in all regimes."""
    function, _, model, _ = peer
    name = os.path.join(here, f"{function.replace(':', '.')}-{stage}")
    path = os.pathsep.join([common.HERE, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, os.path.join(common.ROOT, "tests", "kcp_check.py"), function,
               "--as", "fla", "--stage", stage, "--storage", "bf16", "--device",
               o["device"], "--seed", o["seed"], "--check", o["check"], "--limit",
               o["seconds"], "--json", name + ".json", "--regimes", model]
    with open(name + ".log", "w") as log:
        run = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                               env=dict(os.environ, PYTHONPATH=path), cwd=here,
                               start_new_session=True)
    return peer, stage, name, run


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


def rows_of(peer, stage, name):
    function, package, model, _ = peer
    same = dict(stage={"08": "08_forward", "13": "13_backward"}[stage], model=model,
                peer=common.version(package))
    try:
        with open(name + ".json") as f:
            cases = json.load(f)["cases"]
    except OSError:                              # killed, or kcp_check.py found no function
        with open(name + ".log") as f:
            last = (f.read().strip().splitlines() or ["not finished in time"])[-1]
        cases = [dict(verdict="n/a", why=last, worst="", words="")] * len(REGIMES)
    for regime, r in zip(REGIMES, cases):
        yield dict(same, gate=regime, **row_of(r))


COLUMNS = "stage model gate peer verdict worst error allowed words says".split()


def main(arguments):
    o = {"device": "cuda", "only": "", "seconds": "240", "seed": "1",
         "check": os.path.join(common.ROOT, "build", "kcp-check")}
    o.update(w.split("=", 1) for w in arguments if "=" in w)
    files = [w for w in arguments if "=" not in w]
    if len(files) != 1:
        sys.exit(print("field.py: needs one file to write, e.g. field.tsv",
                       file=sys.stderr) or 2)
    o["check"] = os.path.abspath(o["check"])
    here = os.environ.get("FIELD_LOGS") or tempfile.mkdtemp()
    jobs = [start(o, peer, stage, here) for peer in PEERS for stage in peer[3]
            if o["only"] in peer[0]]
    ends = time.monotonic() + float(o["seconds"])
    with open(files[0], "w", newline="") as f:
        out = csv.DictWriter(f, COLUMNS, escapechar="\\", **common.TSV)
        out.writeheader()
        for peer, stage, name, run in jobs:
            try:
                run.wait(max(1, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
            rows = list(rows_of(peer, stage, name))
            out.writerows(rows)
            f.flush()
            count = [sum(r["verdict"] == v for r in rows) for v in ("PASS", "FAIL", "n/a")]
            print(f"{peer[0]} {stage}: {count[0]} pass, {count[1]} fail, {count[2]} n/a",
                  flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
