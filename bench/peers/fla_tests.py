"""fla_tests.py -- runs flash-linear-attention's own tests on kcp_torch's backend.

Book: chapter 19.  Checked by: the words "-> kcp" in the log of each test; without them a
passed test counts as one of FLA's kernels.  Next: rounded_keys.py.

    python3 bench/peers/fla_tests.py torch.tsv chunk     one GPU
    python3 bench/peers/fla_tests.py torch.tsv ranks     two or more
        [--limit S] [--keep DIR] [--only WORDS]

.peers/ has FLA's package and tests (fetch.sh), unchanged. chunk: tests/ops/test_kda.py, the
tests of chunk_kda. ranks: tests/context_parallel, each test of KDA and GDN in a process of
its own with its own port (backend/sitecustomize.py). The tests of KDA run four times: as
they are; as in FLA's continuous integration (FLA_CI_ENV=1: an error above the limit is a
warning if no number differs by more than 0.3); with the rounding of their reference
(KCP_ROUND_KEYS); and two of them on FLA's kernels (KCP_FLA=0). The references run on the
first GPU, which should be idle. KCP_ONE_GPU=4: at most four ranks of a test share one GPU.

One line per test goes to stdout, and one row to the table. Exit status 1: a test failed
that FLA's integration would reject. DIR keeps the output. --only selects tests on ranks by
a regex of file, name and variables, and tests of chunk by pytest's -k.
"""
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
PEERS = os.path.join(ROOT, ".peers")
CHUNK = "ops/test_kda.py"
RANKS = "context_parallel/test_cp_kda.py", "context_parallel/test_cp_gdn.py"
AT_ONCE = int(os.environ.get("AT_ONCE", "8"))     # the reference of KDA needs 20 GB
CI = ("FLA_CI_ENV", "1")
# Tests that do not call the chunk functions, and the reason.
OTHERS = {"test_cp_conv": "their convolution asks no backend",
          "test_cp_context": "their split alone, without a kernel",
          "test_cp_bwd_gk_offset": "their kernel alone, called by its name",
          "test_cp_dplr": "not a function of ours for PyTorch",
          "test_cp_rwkv7": "not a function of ours for PyTorch",
          "test_cp_token_shift": "not a function of ours for PyTorch"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def start(test, words, limit, where, env=()):
    """Runs pytest on a file or a test; prints a line per finished test."""
    name = re.sub(r"\W", ".", test.split("/")[-1] + "".join("_".join(e) for e in env))
    verdicts = os.path.join(where, name + ".verdicts")
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", KCP_VERDICTS=verdicts,
               KCP_PORT=free_port(), **dict(env))
    env["PYTHONPATH"] = os.pathsep.join(
        [os.path.join(HERE, "backend"), HERE, PEERS,
         os.path.join(ROOT, "book", "examples", "torch"), env.get("PYTHONPATH", "")])
    log = open(verdicts[:-8] + "log", "w")
    command = ["timeout", str(limit), sys.executable, "-m", "pytest", "-q",
               "-p", "verdicts", "-p", "no:cacheprovider", "--log-level=INFO", *words,
               os.path.join("tests", test)]
    return verdicts, subprocess.Popen(command, cwd=PEERS, env=env, stdout=log, stderr=log)


def tests_of(verdicts):
    """Yields name, verdict, reason and output of each test."""
    if not os.path.exists(verdicts):
        return
    for line in open(verdicts):
        x = json.loads(line)
        why = (x["why"].splitlines() or [""])[0][:160]
        yield x["name"], x["verdict"], why, x["said"]


def tail_of(verdicts):
    return open(verdicts[:-8] + "log").read()[-1500:]


def version():
    name = "flash-linear-attention"
    for line in open(os.path.join(PEERS, "fla", "__init__.py")):
        if line.startswith("__version__"):
            name += " " + line.split("=")[1].strip().strip("'\"")
    commit = os.path.join(PEERS, "FLA_COMMIT")
    return f"{name} {open(commit).read().strip()}" if os.path.exists(commit) else name


def write(path, rows):
    """Appends rows with the columns of torch_layer.py."""
    from torch_layer import FIELDS
    new = not os.path.exists(path)
    with open(path, "a") as f:
        if new:
            f.write("\t".join(FIELDS) + "\n")
        for row in rows:
            f.write("\t".join(str(row.get(n, "")) for n in FIELDS) + "\n")


def ran(said):
    """Did kcp_torch's kernels run? FLA also logs backends that reject a call."""
    return re.search(r"-> kcp(?! rejected)", said) is not None


def whose(verdict, why, said, errors=False):
    """A summary of a test: verdict, kernels, measured errors."""
    if verdict == "skipped":
        return f"not run: {why}"
    by = "by kcp_torch" if ran(said) else "not by kcp_torch"
    bad = next((w.strip() for w in said.splitlines() if "Test Failed" in w), why)
    words = f"{verdict}, {by}" + (f": {bad[:200]}" if verdict == "failed" else "")
    found = dict(re.findall(r"(\w+) +diff: [\d.]+ ratio: ([\d.]+)", said))
    if errors and found:
        words += "; " + ", ".join(f"{n} {float(e):.1e}" for n, e in found.items())
    return words


def chunk(limit, where, peer, only):
    many = ["-n", "6"] if importlib.util.find_spec("xdist") else []
    chosen = ["-k", only or "test_chunk"]      # here in pytest's words
    verdicts, process = start(CHUNK, [*chosen, *many], limit, where)
    cut = process.wait() == 124
    count, ours, rows = {"passed": 0, "failed": 0, "skipped": 0}, 0, []
    for name, verdict, why, said in tests_of(verdicts):
        words = whose(verdict, why, said)
        count[verdict] += 1
        ours += verdict == "passed" and ran(said)
        print(f"{name}\t{words}", flush=True)
        if verdict != "passed":
            rows.append(dict(what=f"FLA's tests/{CHUNK}", how=name, n=1, says=words,
                             peer=peer))
    if cut or not sum(count.values()):
        print(tail_of(verdicts), flush=True)
    rows.append(dict(
        what=f"FLA's tests/{CHUNK}, chunk_kda", how="kcp_torch.fla",
        n=sum(count.values()), peer=peer,
        says=f"{count['passed']} passed, {ours} of them by kcp_torch,"
             f" {count['failed']} failed, {count['skipped']} not run"
             + ("; cut off by time" if cut else "")))
    return rows, count["failed"] or not count["passed"] or cut


def ranks(limit, where, peer, only):
    began, rows, bad = time.time(), [], []
    shared = int(os.environ.get("KCP_ONE_GPU", "0"))
    gpus = shared or len(subprocess.run(["nvidia-smi", "-L"], capture_output=True,
                                        text=True).stdout.splitlines())
    how = ", its ranks on one GPU" if shared else ""

    def row(file, name, says):
        print(f"{file}::{name}\t{says}", flush=True)
        rows.append(dict(what=f"FLA's tests/{file}", how=name, n=1, says=says,
                         peer=peer))

    def one(file, name, env):
        left = int(limit - (time.time() - began))
        label = name + "".join(f", {n}={x}" for n, x in env)
        ours = "kda" not in file or env == (CI,)
        if left < 20:
            return row(file, label, "not run: no time left")
        verdicts, process = start(f"{file}::{name}", [], left, where, env)
        process.wait()
        found = list(tests_of(verdicts))
        if not found:
            bad.append(label)
            print(tail_of(verdicts), flush=True)
            row(file, label, "no verdict in time")
        for _, verdict, why, said in found:
            if verdict == "failed" and ours:
                bad.append(label)
            row(file, label, whose(verdict, why, said, True) + how)

    jobs = []
    for file in RANKS:
        names = re.findall(r"^def (test_\w+)", open(
            os.path.join(PEERS, "tests", file)).read(), re.M)
        needs = {n: int(re.match(r"test_cp(\d+)", n).group(1)) for n in names}
        for n in [n for n in names if needs[n] > gpus]:
            row(file, n, f"not run: it needs {needs[n]} GPUs")
        names = [n for n in names if needs[n] <= gpus]
        ways = [()]
        if "kda" in file:
            ways = [(CI,), (), (("KCP_ROUND_KEYS", "reference"),), (("KCP_FLA", "0"),)]
        for env in ways:
            some = names[:2] if ("KCP_FLA", "0") in env else names
            jobs += [(file, n, env) for n in some
                     if re.search(only, f"{file}::{n} {env}")]
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                if not jobs:
                    return
                job = jobs.pop(0)
            one(*job)
    for i in range(AT_ONCE):
        threading.Thread(target=work).start()
    while threading.active_count() > 1:
        time.sleep(0.2)
    for name, why in OTHERS.items():
        row(f"context_parallel/{name}.py", "all of it", f"does not reach us: {why}")
    return rows, bad


def main(words):
    said = {"--limit": "300", "--keep": "", "--only": ""}
    for option in said:
        if option in words:
            at = words.index(option)
            said[option] = words[at + 1]
            del words[at:at + 2]
    if len(words) != 2 or words[1] not in ("chunk", "ranks"):
        print("fla_tests.py: expected FILE.tsv and chunk or ranks", file=sys.stderr)
        return 2
    if not os.path.isdir(os.path.join(PEERS, "tests")):
        print(f"fla_tests.py: found no {PEERS}/tests, expected theirs: fetch.sh",
              file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as where:
        run = chunk if words[1] == "chunk" else ranks
        rows, bad = run(int(said["--limit"]), said["--keep"] or where, version(),
                        said["--only"])
    write(words[0], rows)
    return int(bool(bad))


if __name__ == "__main__":
    sys.path.insert(0, HERE)
    sys.exit(main(sys.argv[1:]))
