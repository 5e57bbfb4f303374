"""fla_tests.py -- flash-linear-attention's own tests, run on kcp_torch's backend.

Book: chapter 19.  Checked by: the word "-> kcp" in the log of each test, without which
a test that passed is said to be theirs.  Next: rounded_keys.py.

    python3 bench/peers/fla_tests.py torch.tsv chunk [--limit S]     one GPU
    python3 bench/peers/fla_tests.py torch.tsv ranks [--limit S]     two or more

.peers/ holds their package and tests (fetch.sh); pytest runs them as they are. chunk:
tests/ops/test_kda.py, the tests of chunk_kda. ranks: tests/context_parallel, each test
of KDA and GDN in a process of its own, in a network of its own where that is allowed,
for all meet at one port. Those of KDA run with KCP_ROUND_KEYS=1, the first of them
without it too: their reference rounds normalised keys. A line a test goes to standard
output, a row to the table; exit status 1 when a test failed.
"""
import ctypes
import fcntl
import importlib.util
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as tree

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
PEERS = os.path.join(ROOT, ".peers")
CHUNK = "ops/test_kda.py"
# Tests over ranks: how many at once (the reference of KDA's holds 20 GB).
RANKS = {"context_parallel/test_cp_kda.py": 5, "context_parallel/test_cp_gdn.py": 3}
# Tests of something else than the chunk functions: why they do not reach us.
OTHERS = {"test_cp_conv": "their convolution asks no backend",
          "test_cp_context": "their split alone, without a kernel",
          "test_cp_bwd_gk_offset": "their kernel alone, called by its name",
          "test_cp_dplr": "not a function of ours for PyTorch",
          "test_cp_rwkv7": "not a function of ours for PyTorch",
          "test_cp_token_shift": "not a function of ours for PyTorch"}


def own_network():
    """In a child: a network with nothing but the loop back to itself."""
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):     # CLONE_NEWNET
        raise OSError(ctypes.get_errno(), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x41))      # up, running


def alone_allowed():
    return subprocess.run(
        [sys.executable, "-c", "import fla_tests; fla_tests.own_network()"], cwd=HERE,
        stderr=subprocess.DEVNULL).returncode == 0


def start(test, words, limit, where, env=(), network=None):
    """pytest on a file or a test; its report as XML with all that a test printed."""
    name = re.sub(r"\W", ".", test + "".join(dict(env)))
    xml = os.path.join(where, name + ".xml")
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **dict(env))
    env["PYTHONPATH"] = os.pathsep.join(
        [os.path.join(HERE, "backend"), PEERS,
         os.path.join(ROOT, "book", "examples", "torch"), env.get("PYTHONPATH", "")])
    if network:
        env["NCCL_SOCKET_IFNAME"] = "lo"
    log = open(xml[:-3] + "log", "w")
    command = ["timeout", str(limit), sys.executable, "-m", "pytest", "-q",
               "-p", "told", "-p", "no:cacheprovider", "--log-level=INFO",
               "-o", "junit_logging=all", "--junitxml", xml, *words,
               os.path.join("tests", test)]
    return xml, subprocess.Popen(command, cwd=PEERS, env=env, stdout=log, stderr=log,
                                 preexec_fn=network)


def tests_of(xml):
    """name, verdict, why, what it printed."""
    if not os.path.exists(xml):
        return
    for case in tree.parse(xml).getroot().iter("testcase"):
        verdict, why, said = "passed", "", ""
        for part in case:
            if part.tag in ("failure", "error", "skipped"):
                verdict = "skipped" if part.tag == "skipped" else "failed"
                why = (part.get("message") or "").splitlines()[0][:160]
            said += part.text or ""
        yield case.get("name"), verdict, why, said


def version():
    name = "flash-linear-attention"
    for line in open(os.path.join(PEERS, "fla", "__init__.py")):
        if line.startswith("__version__"):
            name += " " + line.split("=")[1].strip().strip("'\"")
    commit = os.path.join(PEERS, "FLA_COMMIT")
    return f"{name} {open(commit).read().strip()}" if os.path.exists(commit) else name


def write(path, rows):
    """Rows of judged things, in the columns of torch_layer.py."""
    from torch_layer import FIELDS
    new = not os.path.exists(path)
    with open(path, "a") as f:
        if new:
            f.write("\t".join(FIELDS) + "\n")
        for row in rows:
            f.write("\t".join(str(row.get(n, "")) for n in FIELDS) + "\n")


def whose(verdict, why, said):
    """In words: what came out, and by whose kernels."""
    if verdict == "skipped":
        return f"not run: {why}"
    by = "by kcp_torch" if "-> kcp" in said else "not by kcp_torch"
    told = [w.strip() for w in said.splitlines() if "Test Failed" in w or "ratio" in w]
    bad = next((w for w in told if "Test Failed" in w), why)
    return f"{verdict}, {by}" + (f": {bad[:200]}" if verdict == "failed" else "")


def chunk(limit, where, peer):
    many = ["-n", "6"] if importlib.util.find_spec("xdist") else []
    xml, process = start(CHUNK, ["-k", "test_chunk", *many], limit, where)
    process.wait()
    count, ours, rows = {"passed": 0, "failed": 0, "skipped": 0}, 0, []
    for name, verdict, why, said in tests_of(xml):
        words = whose(verdict, why, said)
        count[verdict] += 1
        ours += verdict == "passed" and "-> kcp" in said
        print(f"{name}\t{words}", flush=True)
        if verdict != "passed":
            rows.append(dict(what=f"FLA's tests/{CHUNK}", how=name, n=1, says=words,
                             peer=peer))
    if not sum(count.values()):
        print(open(xml[:-3] + "log").read()[-3000:], flush=True)
    rows.append(dict(
        what=f"FLA's tests/{CHUNK}, chunk_kda", how="kcp_torch.fla",
        n=sum(count.values()), peer=peer,
        says=f"{count['passed']} passed, {ours} of them by kcp_torch,"
             f" {count['failed']} failed, {count['skipped']} not run"))
    return rows, count["failed"] or not count["passed"]


def ranks(limit, where, peer):
    began, rows, bad, network = time.time(), [], [], None
    if alone_allowed():
        network = own_network
    gpus = len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
               .stdout.splitlines())

    def row(file, name, says):
        print(f"{file}::{name}\t{says}", flush=True)
        rows.append(dict(what=f"FLA's tests/{file}", how=name, n=1, says=says,
                         peer=peer))

    def one(file, name, env):
        left = int(limit - (time.time() - began))
        label = name + "".join(f", {n}={x}" for n, x in env)
        if left < 20:
            return row(file, label, "not run: no time left")
        xml, process = start(f"{file}::{name}", [], left, where, env, network)
        process.wait()
        found = list(tests_of(xml))
        if not found:
            bad.append(label)
            print(open(xml[:-3] + "log").read()[-1500:], flush=True)
            row(file, label, "no verdict in time")
        for _, verdict, why, said in found:
            if verdict == "failed":
                bad.append(label)
                print(said[-1500:], flush=True)
            row(file, label, whose(verdict, why, said))

    for file, many in RANKS.items():
        names = re.findall(r"^def (test_\w+)", open(
            os.path.join(PEERS, "tests", file)).read(), re.M)
        wants = {n: int(re.match(r"test_cp(\d+)", n).group(1)) for n in names}
        for n in [n for n in names if wants[n] > gpus]:
            row(file, n, f"not run: it asks for {wants[n]} GPUs")
        jobs = [(file, n, ()) for n in names if wants[n] <= gpus]
        if "kda" in file:
            jobs = [(f, n, (("KCP_ROUND_KEYS", "1"),)) for f, n, _ in jobs] + jobs[:1]
        lock = threading.Lock()

        def work(jobs=jobs, lock=lock):
            while True:
                with lock:
                    if not jobs:
                        return
                    job = jobs.pop(0)
                one(*job)
        for _ in range(many if network else 1):
            threading.Thread(target=work).start()
    while threading.active_count() > 1:
        time.sleep(0.2)
    for name, why in OTHERS.items():
        row(f"context_parallel/{name}.py", "all of it", f"does not reach us: {why}")
    return rows, bad


def main(words):
    limit = 300
    if "--limit" in words:
        at = words.index("--limit")
        limit = int(words[at + 1])
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
        rows, bad = run(limit, where, version())
    write(words[0], rows)
    return int(bool(bad))


if __name__ == "__main__":
    sys.path.insert(0, HERE)
    sys.exit(main(sys.argv[1:]))
