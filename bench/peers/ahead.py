"""ahead.py -- compiles Triton's candidates on all cores before the tuner times them.

Book: chapter 18.  Checked by: the tuner, which makes the choice on the GPU.
Next: others.py.

    python3 bench/peers/ahead.py [tune] [ranks=4] [T=131072 H=32 model=kda]

Triton compiles the candidates of a kernel one at a time on one core, which takes many
minutes. Here processes on all cores compile the candidates into Triton's cache, where the
tuner finds them. The candidates and the choice are Triton's. As a program this file only
compiles: for one GPU, or for the first, second and last of several ranks. With tune it
also makes the choice, on a GPU that nothing else uses, and keeps it in the cache.
"""
import math
import os
import sys
import time
from functools import partial

JOBS = int(os.environ.get("JOBS", "0")) or len(os.sched_getaffinity(0))


def compile_one(tuner, config, args, meta, active, target):
    """Runs in a child process, where CUDA must not be called."""
    active.get_current_device = lambda: 0
    active.get_current_stream = lambda device: 0
    active.get_current_target = lambda: target
    kernel = tuner.fn.run(*args, **{**meta, **config.all_kwargs(), "warmup": True})
    if config == tuner.prune_configs(meta)[0]:
        active.launcher_cls(kernel.src, kernel.metadata)      # one C stub for all


def compile_all(tuner, args, meta):
    """Children read numbers of candidates from a pipe until it is empty."""
    from triton.runtime import driver
    active = driver.active
    target = active.get_current_target()
    configs = tuner.prune_configs(meta)
    take, put = os.pipe()
    os.write(put, b"".join(i.to_bytes(2, "little") for i in range(len(configs))))
    os.close(put)
    children = []
    for _ in range(min(JOBS, len(configs))):
        pid = os.fork()
        if pid:
            children.append(pid)
            continue
        os.nice(5)
        while number := os.read(take, 2):
            config = configs[int.from_bytes(number, "little")]
            try:
                compile_one(tuner, config, args, meta, active, target)
            except Exception as e:           # the tuner gets the same error
                say(f"{tuner.base_fn.__name__}: {config}: {e!r}"[:200])
        os._exit(0)
    os.close(take)
    for pid in children:
        os.waitpid(pid, 0)


def say(words):
    if os.environ.get("AHEAD_SAYS"):
        print("ahead.py:", words, flush=True)


def install(choose=True, first=False):
    """Replaces Triton's tuner; call it before FLA is imported. A candidate is timed for 25
    ms instead of 100. Without choose every candidate runs once, the first that works is
    used, and the choice is not kept. first: compile only the first candidate, for runs
    whose results count and not their times."""
    from triton.runtime.autotuner import Autotuner
    from triton.testing import do_bench
    time_one = Autotuner._bench

    def once(call, **_):
        call()
        return [1.0] * 3

    def first_that_runs(self, *args, config, **meta):
        if config == self.prune_configs(meta)[0]:
            self.do_bench, self.found = once, False
        us = [math.inf] * 3 if self.found else time_one(self, *args, config=config,
                                                        **meta)
        self.found = self.found or us[0] < math.inf
        return us

    def bench(self, *args, config, **meta):
        if config == self.prune_configs(meta)[0]:
            began = time.monotonic()
            self.do_bench = partial(do_bench, warmup=5, rep=25) if choose else once
            compile_all(self, args, meta)
            say(f"{self.base_fn.__name__}: {len(self.configs)} candidates in"
                f" {time.monotonic() - began:.1f} s")
        return time_one(self, *args, config=config, **meta)

    Autotuner._bench = first_that_runs if first else bench
    if first:
        keep_choices(False)


def keep_choices(keep):
    for name in ("TRITON_CACHE_AUTOTUNING", "FLA_CACHE_RESULTS"):
        os.environ[name] = str(int(keep))


def pretended(torch, ops, case, ranks):
    """The share of one rank without other ranks: a group of Torch with no members."""
    import torch.distributed as dist
    from fla.ops.cp import build_cp_context
    from torch.testing._internal.distributed.fake_pg import FakeStore
    for r in sorted({0, 1, ranks - 1}):
        dist.init_process_group("fake", store=FakeStore(), rank=r, world_size=ranks)
        x = ops.common.inputs(torch, case, case["T"] // ranks, 1, states=False)
        cu = torch.tensor([0, case["T"]], dtype=torch.long, device="cuda")
        ops.passes(case, x, build_cp_context(cu, group=dist.group.WORLD), iters=1)
        dist.destroy_process_group()


def main(words):
    tune = "tune" in words
    words = [w for w in words if "=" in w]
    keep_choices(tune)
    import fla_ops as ops
    install(choose=tune)
    case = ops.common.head("", words)
    torch, began = ops.torch, time.monotonic()
    if case["ranks"] > 1:
        pretended(torch, ops, case, case["ranks"])
        case["T"] //= case["ranks"]
    x = ops.common.inputs(torch, case, case["T"], 1, states=case["ranks"] == 1)
    if case["ranks"] > 1:
        x["cu"] = torch.tensor([0, case["T"]], dtype=torch.long, device="cuda")
    ops.passes(case, x, iters=1)
    print(f"ahead.py: {' '.join(words)}: {time.monotonic() - began:.0f} s, {JOBS} jobs")


if __name__ == "__main__":
    main(sys.argv[1:])
