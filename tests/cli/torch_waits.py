"""torch_waits.py -- checks that a training step on a GPU never waits for the GPU, and counts
the step's allocations.

Book: chapters 08, 13, 14.

    python tests/cli/torch_waits.py                                      one GPU
    torchrun --nproc_per_node=2 tests/cli/torch_waits.py                 a GPU per rank

A step is forward, loss, backward and AdamW of train.py's model, with cu_seqlens_cpu or, over
ranks, with cp_context. PyTorch's own waits raise an error (set_sync_debug_mode). Waits of the
library are found by time: the GPU is busy for SLEEP seconds when the host begins to enqueue
a step, and the host must finish first. Without a GPU: prints a line, status 0.
"""
import os
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../book/examples/torch"))
import kcp_torch                                                        # noqa: E402
import train                                                            # noqa: E402

LENGTHS = ([700, 1300, 48], [1000, 1000, 48], [48, 1300, 700])
SLEEP = 0.5


def steps_of(model, where, x, y):
    """Returns a function that runs a training step."""
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)

    def step():
        logits = model(x, where)
        F.cross_entropy(logits[0], y[0], reduction="sum").backward()
        adam.step()
        adam.zero_grad(set_to_none=True)
    return step


def busy(cycles_per_s):
    torch.cuda._sleep(int(SLEEP * cycles_per_s))


def rate():
    """Returns the GPU's clock in cycles per second."""
    torch.cuda.synchronize()
    start, n = time.perf_counter(), 200_000_000
    torch.cuda._sleep(n)
    torch.cuda.synchronize()
    return n / (time.perf_counter() - start)


def host_seconds(step, cycles):
    """Returns how long the host takes to enqueue a step while the GPU is busy."""
    torch.cuda.synchronize()
    busy(cycles)
    start = time.perf_counter()
    step()
    took = time.perf_counter() - start
    torch.cuda.synchronize()
    return took


def main():
    if not torch.cuda.is_available():
        print("torch_waits.py: no GPU here: nothing was run")
        return 0
    warnings.simplefilter("ignore")
    R, r = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    if R > 1:
        dist.init_process_group("nccl")
    torch.manual_seed(1)
    model = train.Model(width=256, H=2, K=128).cuda().bfloat16()
    cycles, bad, steps = rate(), 0, []
    for lengths in LENGTHS:
        cu = [0]
        for n in lengths:
            cu.append(cu[-1] + n)
        text = torch.randint(0, 256, (1, cu[-1] + 1))
        where = dict(cu_seqlens_cpu=cu)
        cut = lambda t: t
        if R > 1:
            context = kcp_torch.build_cp_context(cu, dist.group.WORLD,
                                                 conv1d_kernel_size=4)
            where, cut = dict(cp_context=context), context.shard
        x, y = (cut(t).cuda() for t in (text[:, :-1], text[:, 1:]))
        steps.append(steps_of(model, where, x, y))
    for step in steps * 2:                    # allocates, compiles, loads kernels
        step()
    torch.cuda.synchronize()

    def expect(good, words):
        nonlocal bad
        bad += not good
        print(f"torch_waits.py: rank {r}: {'ok  ' if good else 'FAIL'} {words}", flush=True)

    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in steps * 2:
            step()
        expect(True, "no wait of PyTorch in steps of three lengths")
    except RuntimeError as e:
        expect(False, f"a wait of PyTorch: {str(e).splitlines()[0]}")
    try:
        torch.ones(1, device="cuda").item()
        expect(False, "the control, item(), was not found")
    except RuntimeError:
        expect(True, "the control, item(), was found")
    torch.cuda.set_sync_debug_mode("default")
    took = [host_seconds(step, cycles) for step in steps]
    expect(max(took) < SLEEP / 2, f"a step is enqueued in {max(took) * 1e3:.1f} ms while the"
           f" GPU is busy for {SLEEP * 1e3:.0f} ms")
    took = host_seconds(lambda: torch.ones(1, device="cuda").item(), cycles)
    expect(took > SLEEP / 2, f"the control, item(), takes {took * 1e3:.1f} ms")
    counts = []
    for _ in range(3):
        before = torch.cuda.memory_stats()
        steps[0]()
        after = torch.cuda.memory_stats()
        counts.append([after[n] - before[n] for n in (
            "allocation.all.allocated", "segment.all.allocated", "allocated_bytes.all.current")])
    expect(counts[1] == counts[2] and counts[1][1:] == [0, 0],
           f"a step: {counts[1][0]} allocations, {counts[1][1]} new segments,"
           f" {counts[1][2]} bytes more")
    if R > 1:
        total = torch.tensor([bad], device="cuda")
        dist.all_reduce(total)
        bad = int(total.item())
        kcp_torch.release()
        dist.destroy_process_group()
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
