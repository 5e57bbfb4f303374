"""test_programs.py -- runs programs that use kcp_torch: the examples, kcp_torch.fla with
FLA's releases, and kcp_check.py, on one rank and on several.

Book: chapters 08, 13, 19.
"""
import os
import re
import subprocess
import sys

import pytest

from kcp_torch import library
from oracle import on_cpu

pytestmark = on_cpu
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
BUILD = os.path.dirname(library.lib._name)
EXAMPLES = os.path.join(ROOT, "book/examples/torch")
# torchrun without --redirects fails in one version. Port 0 is any free port.
RANKS = ("-m torch.distributed.run --redirects 9:3 --tee 9:3 --monitor_interval 0.2"
         " --rdzv_backend c10d --rdzv_endpoint localhost:0 --nproc_per_node").split()


def run(*words, status=0, cwd=None, **more):
    """Runs Python without this process's rank. Returns its output."""
    env = {n: x for n, x in os.environ.items()
           if not re.match("RANK|WORLD_SIZE|LOCAL_|GROUP_|ROLE_|MASTER_|TORCHELASTIC_", n)}
    got = subprocess.run([sys.executable, *map(str, words)], cwd=cwd, text=True,
                         env={**env, **more}, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT)
    assert got.returncode == status, got.stdout[-2000:]
    return got.stdout


def test_missing_library():
    text = run("-c", "import kcp_torch", status=1, KCP_LIB="/none.so")
    assert re.search("KCP_LIB.*none.so|KCP_LIB: found no file", text)


def test_examples_of_the_reference():
    run(f"{EXAMPLES}/reference.py", "--try")


def test_fla_releases(tmp_path):
    text = run(f"{ROOT}/tests/cli/torch_fla.py", tmp_path)
    if "skipped" in text:
        pytest.skip(text)


def test_rounded_keys():
    """Chapter 19: the reference in FLA's context-parallel tests exceeds their limit."""
    run(f"{ROOT}/bench/peers/rounded_keys.py", "T=512")


def test_training(tmp_path):
    """train.py has the same falling loss on one rank and on four."""
    train = (f"{EXAMPLES}/train.py", "--steps", "4", "--text", f"{ROOT}/README.md")
    losses = [dict(re.findall(r"^step (\d+) loss (\S+)", text, re.M)) for text in (
        run(*train), run(*RANKS, "4", *train, "--cp", "2"))]
    one, four = ({n: float(x) for n, x in x.items()} for x in losses)
    assert len(one) == 4 and one.keys() == four.keys() and one["3"] < one["0"]
    assert all(abs(four[n] - one[n]) <= 1e-9 for n in one)
    assert "--cp: " in run(*train, "--cp", "2", status=2)
    text = run(train[0], "--text", tmp_path / "none", status=2)
    assert "none" in text and text.count("\n") == 1


def check(tmp_path, function, *words, status=0):
    return run(f"{ROOT}/tests/kcp_check.py", "--check", f"{BUILD}/kcp-check", function, *words,
               status=status, cwd=tmp_path)


@pytest.mark.parametrize("words", ("chunk_kda --stage 13",
                                   "chunk_gated_delta_rule --stage 08 --cp 2"))
def test_judged(tmp_path, words):
    """kcp_check.py judges kcp_torch on small random cases, with FULL=1 on all cases."""
    check(tmp_path, *f"kcp_torch:{words} --as fla".split(),
          *([] if os.environ.get("FULL") else ["--small"]))


MINE = '''
import time
import numpy as np

def of(change):
    def on(ranks):
        def run(case):
            out = {"o": np.zeros((len(case.v), case.HV, case.V)),
                   "ht": np.zeros((1, case.HV, case.K, case.V))}
            if case.rank in ranks: change(case, out)
            return out
        return run
    return on((1,)), on((0, 1))

def leave(case, out): raise RuntimeError("out of paper")
def change_input(case, out): case.v[0] += 1
(raises, all_raise), (writes, all_write) = of(leave), of(change_input)
shape, all_shape = of(lambda case, out: out.update(o=out["o"][:-1]))
kind, all_kind = of(lambda case, out: out.update(o="text"))
unreal, all_unreal = of(lambda case, out: out["o"].fill(np.nan))
hangs, all_hang = of(lambda case, out: time.sleep(1000))
'''


@pytest.mark.parametrize("function, words", (
    ("raises", "rank 1: RuntimeError: out of paper"), ("shape", "rank 1: .* found shape"),
    ("writes", "rank 1: .* v: the function changed its input"),
    ("kind", "rank 1: .* found str"), ("unreal", "o rank 1 .* is nan"),
    ("hangs", "rank 1: no answer in 15 s"),
    ("all_raise", "rank [01]: RuntimeError: out of paper"),
    ("all_shape", "rank [01]: .* found shape"),
    ("all_write", "rank [01]: .* v: the function changed its input"),
    ("all_kind", "rank [01]: .* found str"), ("all_unreal", "o rank 0 .* is nan"),
    ("all_hang", "rank 0, 1: no answer in 15 s")))
def test_mistake_of_a_rank(tmp_path, function, words):
    """One verdict names the rank, or one of the ranks, and the case."""
    (tmp_path / "mine.py").write_text(MINE)
    text = check(tmp_path, f"mine:{function}", "--stage", "08", "--numpy", "--cp", "2",
                 "--limit", "15", "--case", "live kda R=2 K=16 V=16 lengths=40", status=1)
    assert re.search(words, text) and "--case" in text
    assert len(re.findall("^  FAIL", text, re.M)) == 1
