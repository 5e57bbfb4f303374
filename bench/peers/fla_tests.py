"""fla_tests.py -- flash-linear-attention's own tests, run on kcp_torch's backend.

Book: chapter 19.  Checked by: the word "-> kcp" in the log of each test, without which
a test that passed is said to be theirs.  Next: torch_layer.py.

    python3 bench/peers/fla_tests.py torch.tsv chunk [--limit S]     one GPU
    python3 bench/peers/fla_tests.py torch.tsv ranks [--limit S]     two or more

.peers/ holds their package and tests (fetch.sh); pytest runs them as they are. chunk:
tests/ops/test_kda.py, the tests of chunk_kda. ranks: tests/context_parallel, each test
alone; each file is a process, as each has its own port. A line a test goes to standard
output, a row to the table; exit status 1 when a test failed.
"""
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
PEERS = os.path.join(ROOT, ".peers")
CHUNK = ["ops/test_kda.py"]
RANKS = ["context_parallel/test_cp_kda.py", "context_parallel/test_cp_gdn.py",
         "context_parallel/test_cp_conv.py", "context_parallel/test_cp_context.py",
         "context_parallel/test_cp_bwd_gk_offset.py"]
# Tests of something else than the chunk functions: why they do not reach us.
OTHERS = {"test_cp_conv": "their convolution asks no backend",
          "test_cp_context": "their split alone, without a kernel",
          "test_cp_bwd_gk_offset": "their kernel alone, called by its name"}


def start(file, words, limit, where):
    """pytest on one file; its report as XML with all that a test printed."""
    xml = os.path.join(where, file.replace("/", ".") + ".xml")
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=os.pathsep.join(
        [os.path.join(HERE, "backend"), PEERS,
         os.path.join(ROOT, "book", "examples", "torch"),
         os.environ.get("PYTHONPATH", "")]))
    log = open(xml[:-3] + "log", "w")
    command = ["timeout", str(limit), sys.executable, "-m", "pytest", "-q",
               "-p", "told", "-p", "no:cacheprovider", "--log-level=INFO",
               "-o", "junit_logging=all", "--junitxml", xml, *words,
               os.path.join("tests", file)]
    return xml, subprocess.Popen(command, cwd=PEERS, env=env, stdout=log, stderr=log)


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


def whose(file, name, verdict, why, said):
    """In words: what came out, and by whose kernels."""
    ours = "-> kcp" in said
    other = OTHERS.get(file.split("/")[-1][:-3], "")
    if "gpus required" in why.lower():
        return f"not run: {why.lower().removeprefix('skipped: ')}"
    if verdict == "skipped":
        return f"not run: {why}"
    by = "by kcp_torch" if ours else "not by kcp_torch"
    if not ours and other:
        by += f": {other}"
    return f"{verdict}, {by}" + (f": {why}" if why else "")


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
    path, what = words
    bad, rows, peer = 0, [], version()
    with tempfile.TemporaryDirectory() as where:
        if what == "chunk":
            files, more = CHUNK, ["-k", "test_chunk"]
        else:
            files, more = RANKS, []
        runs = [(f, *start(f, more, limit, where)) for f in files]
        for file, xml, process in runs:
            process.wait()
            count = {"passed": 0, "failed": 0, "skipped": 0}
            ours = 0
            for name, verdict, why, said in tests_of(xml):
                words = whose(file, name, verdict, why, said)
                count[verdict] += 1
                ours += verdict == "passed" and "-> kcp" in said
                print(f"{file}::{name}\t{words}", flush=True)
                if verdict == "failed":
                    print(said[-1500:], flush=True)
                if what == "ranks" or verdict != "passed":
                    rows.append(dict(what=f"FLA's tests/{file}", how=name, n=1,
                                     says=words, peer=peer))
            bad += count["failed"]
            if not sum(count.values()):
                bad += 1
                print(open(xml[:-3] + "log").read()[-3000:], flush=True)
            if what == "chunk":
                rows.append(dict(
                    what=f"FLA's tests/{file}, chunk_kda", how="kcp_torch.fla", n=ours,
                    says=f"{count['passed']} passed, {ours} of them by kcp_torch,"
                         f" {count['failed']} failed, {count['skipped']} not run",
                    peer=peer))
    write(path, rows)
    return int(bad > 0)


if __name__ == "__main__":
    sys.path.insert(0, HERE)
    sys.exit(main(sys.argv[1:]))
