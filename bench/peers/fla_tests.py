"""fla_tests.py -- runs flash-linear-attention's own tests on kcp_torch's backend.

Book: chapter 19.  Checked by: the words "-> kcp" in each test's log. Without these words
a passed test counts for FLA's kernels.  Next: rounded_keys.py.

    python3 bench/peers/fla_tests.py torch.tsv chunk     one GPU
    python3 bench/peers/fla_tests.py torch.tsv ranks     two or more

.peers/ contains FLA's package and tests (fetch.sh), unchanged. chunk: tests/ops/test_kda.py, the
tests of chunk_kda. ranks: tests/context_parallel, each test of KDA and GDN in a separate
process with a separate port (backend/sitecustomize.py); those of KDA as in FLA's continuous
integration (FLA_CI_ENV=1: an error above the limit is a warning if no number differs by more
than 0.3). The references run on the first GPU, which should be idle.

One line per test goes to stdout, and one row to the table. Tests start for LIMIT (300)
seconds. Exit status 1: a test failed that FLA's integration would reject.
"""
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import common

CHUNK = "ops/test_kda.py"
RANKS = "context_parallel/test_cp_kda.py", "context_parallel/test_cp_gdn.py"
AT_ONCE = int(os.environ.get("AT_ONCE", "8"))     # the reference of KDA needs 20 GB
LIMIT = int(os.environ.get("LIMIT", "300"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def run(test, words, limit, where):
    """Runs pytest on a file or a test. Returns true if time ran out, and the lines that
    verdicts.py wrote, one per finished test."""
    name = re.sub(r"\W", ".", test.split("/")[-1])
    verdicts, log = (os.path.join(where, name + end) for end in (".verdicts", ".log"))
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", KCP_VERDICTS=verdicts,
               KCP_PORT=free_port())
    if test.startswith(RANKS[0]):
        env["FLA_CI_ENV"] = "1"
    env["PYTHONPATH"] = os.pathsep.join(
        [os.path.join(common.HERE, "backend"), common.HERE, common.PEERS,
         os.path.join(common.ROOT, "book", "examples", "torch"),
         env.get("PYTHONPATH", "")])
    command = ["timeout", str(limit), sys.executable, "-m", "pytest", "-q",
               "-p", "verdicts", "-p", "no:cacheprovider", "--log-level=INFO", *words,
               os.path.join("tests", test)]
    with open(log, "w") as f:
        status = subprocess.run(command, cwd=common.PEERS, env=env, stdout=f,
                                stderr=f).returncode
    with open(log) as f:
        end = f.read()[-1500:]
    tests = []
    if os.path.exists(verdicts):
        with open(verdicts) as f:
            tests = [json.loads(line) for line in f]
    if status == 124 or not tests:
        print(end, flush=True)
    return status == 124, tests


def is_ours(test):
    """Returns true if kcp_torch's kernels ran. FLA also logs backends that reject a call."""
    return re.search(r"-> kcp(?! rejected)", test["output"]) is not None


def summary(test, errors=False):
    """Returns the verdict, the kernels that ran, and the measured errors."""
    why = (test["why"].splitlines() or [""])[0][:160]
    if test["verdict"] == "skipped":
        return f"not run: {why}"
    lines = test["output"].splitlines()
    bad = next((w.strip() for w in lines if "Test Failed" in w), why)
    words = f"{test['verdict']}, {'' if is_ours(test) else 'not '}by kcp_torch"
    words += f": {bad[:200]}" if test["verdict"] == "failed" else ""
    found = dict(re.findall(r"(\w+) +diff: [\d.]+ ratio: ([\d.]+)", test["output"]))
    if errors and found:
        words += "; " + ", ".join(f"{n} {float(e):.1e}" for n, e in found.items())
    return words


def chunk(where, add):
    many = ["-n", "6"] if importlib.util.find_spec("xdist") else []
    cut, tests = run(CHUNK, ["-k", "test_chunk", *many], LIMIT, where)
    for test in tests:
        if test["verdict"] == "passed":
            print(f"{test['name']}\t{summary(test)}", flush=True)
        else:
            add(CHUNK, test["name"], summary(test))
    count = {v: sum(t["verdict"] == v for t in tests)
             for v in ("passed", "failed", "skipped")}
    ours = sum(t["verdict"] == "passed" and is_ours(t) for t in tests)
    add(f"{CHUNK}, chunk_kda", "kcp_torch.fla",
        f"{count['passed']} passed, {ours} of them by kcp_torch, {count['failed']} failed,"
        f" {count['skipped']} not run" + ("; cut off by time" if cut else ""), len(tests))
    return count["failed"] or not count["passed"] or cut


def one_on_ranks(job, where, add):
    """Runs a test. Returns true if FLA's integration would reject its result."""
    file, name = job
    label = name + (", FLA_CI_ENV=1" if file == RANKS[0] else "")
    left = int(LIMIT - (time.monotonic() - common.began))
    if left < 20:
        add(file, label, "not run: no time left")
        return False
    _, tests = run(f"{file}::{name}", [], left, where)
    if not tests:
        add(file, label, "no verdict in time")
    for test in tests:
        add(file, label, summary(test, True))
    return not tests or any(t["verdict"] == "failed" for t in tests)


def ranks(where, add):
    found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    gpus, jobs = len(found.stdout.splitlines()), []
    for file in RANKS:
        with open(os.path.join(common.PEERS, "tests", file)) as f:
            names = re.findall(r"^def (test_cp(\d+)\w*)", f.read(), re.M)
        for name, needs in names:
            if int(needs) > gpus:
                add(file, name, f"not run: it needs {needs} GPUs")
            else:
                jobs.append((file, name))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        bad = list(pool.map(lambda job: one_on_ranks(job, where, add), jobs))
    return any(bad)


def main(words):
    if len(words) != 2 or words[1] not in ("chunk", "ranks"):
        sys.exit("fla_tests.py: usage: fla_tests.py torch.tsv chunk|ranks")
    if not os.path.isdir(os.path.join(common.PEERS, "tests")):
        sys.exit(f"fla_tests.py: {common.PEERS}/tests not found: run bench/peers/fetch.sh")
    rows, peer = [], common.version("flash-linear-attention")

    def add(file, name, says, n=1):
        says = " ".join(says.split())
        print(f"{file}::{name}\t{says}", flush=True)
        rows.append(dict(what=f"FLA's tests/{file}", how=name, n=n, says=says, peer=peer))

    with tempfile.TemporaryDirectory() as where:
        bad = (chunk if words[1] == "chunk" else ranks)(where, add)
    common.append(words[0], rows)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
