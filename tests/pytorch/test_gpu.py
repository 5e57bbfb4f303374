"""test_gpu.py -- checks streams, graphs, threads, torch.compile, memory and waits on a GPU.

Book: chapters 08, 13, 14.
"""
import os
import sys
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../book/examples/torch"))
import kcp_torch                                                        # noqa: E402
import train                                                            # noqa: E402
from oracle import B16, TOKENS, call, close, draw, equal, on_gpu, options  # noqa: E402

pytestmark = on_gpu
NAMES = (*TOKENS, "A_log", "dt_bias", "h0")
CU, SIZES = (0, 200, 200, 345, 346, 1000), (2, 4, 128, 128)


def example(seed, cu, sizes, gate=2):
    """Returns options, inputs on the GPU, and gradients of o and ht."""
    o = options(act=B16, gates=B16, beta=1, h0=True, fade=0.05, bias=-3, gate=gate)
    x, do, dht = draw(seed, cu, *sizes, o)
    return o, {n: x[n].cuda() for n in NAMES}, [do.cuda(), dht.cuda()]


def replayed(step, x):
    """Returns the results of a CUDA graph of step(x) that was captured with other inputs."""
    late = {n: torch.zeros_like(t) for n, t in x.items()}
    step(late)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step(late)
    for n, t in late.items():
        t.copy_(x[n])
    graph.replay()
    torch.cuda.synchronize()
    return got


def test_convolution_in_a_graph():
    r = lambda *s: torch.randn(*s, device="cuda", dtype=B16)
    x = dict(x=r(1, 300, 48), weight=r(48, 4), initial_state=r(5, 48, 4))
    grads = [r(1, 300, 48), r(5, 48, 4)]

    def step(t):
        t = {n: a.detach().requires_grad_() for n, a in t.items()}
        out = kcp_torch.causal_conv1d(**t, activation="silu", output_final_state=True,
                                      cu_seqlens_cpu=(0, 17, 17, 19, 20, 300))
        return [*out, *torch.autograd.grad(list(out), list(t.values()), grads)]
    want = step(x)
    equal(replayed(step, x), want)


@pytest.fixture(scope="module")
def layer():
    """Returns a function that computes outputs and gradients, its inputs and results."""
    o, x, grads = example(20, CU, SIZES)

    def both(y, wrap=lambda f, t: f(*t)):
        y = [y[n].detach().requires_grad_() for n in NAMES]
        out = wrap(lambda *t: call(dict(zip(NAMES, t)), o, cu_seqlens_cpu=CU), y)
        return [*out, *torch.autograd.grad(list(out), y, grads)]
    return both, x, [t.clone() for t in both(x)]


def test_memory(layer):
    """Memory does not grow from call to call."""
    both, x, _ = layer
    both(x)
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    for _ in range(3):
        both(x)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == held


def test_late_inputs(layer):
    """A call on a stream that writes the inputs late reads the late values, and the host
    does not wait."""
    both, x, want = layer
    late = {n: torch.zeros_like(t) for n, t in x.items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        both(late)
        side.synchronize()
        torch.cuda._sleep(400_000_000)
        for n, t in late.items():
            t.copy_(x[n])
        torch.cuda.set_sync_debug_mode("error")
        got = both(late)
        torch.cuda.set_sync_debug_mode("default")
        idle = side.query()
    torch.cuda.synchronize()
    assert not idle
    equal(got, want)


def test_graph(layer):
    equal(replayed(layer[0], layer[1]), layer[2])


def test_checkpoint(layer):
    both, x, want = layer
    equal(both(x, lambda f, t: checkpoint(f, *t, use_reentrant=False)), want)


def test_two_threads(layer):
    """Two threads with separate streams."""
    both, x, want = layer
    found = [[], []]

    def work(i):
        mine = torch.cuda.Stream()
        with torch.cuda.stream(mine):
            for _ in range(20):
                found[i] = both(x)
            mine.synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    equal(found[0], want)
    equal(found[1], want)


def test_unaligned(layer):
    """A view whose address is not a multiple of 16 bytes."""
    both, x, want = layer
    odd = torch.empty(x["q"].numel() + 1, dtype=B16, device="cuda")[1:].view_as(x["q"])
    equal(both(dict(x, q=odd.copy_(x["q"]))), want)


def test_deep_first_sequence():
    """An eighth of the heads has gates that close in the first sequence alone, and blocks
    of chunk_prepare have chunks of two sequences: all equals each sequence alone."""
    cu, H = (0, 700, 1500, 2240), 96
    r = torch.Generator("cuda").manual_seed(3)
    q, k, v, g, do = (torch.randn(1, cu[-1], H, 128, generator=r, device="cuda")
                      for _ in range(5))
    g[:, :cu[1], ::8, 5] = 40
    x = [t.to(B16) for t in (q, k, v, g - 3, torch.rand_like(q[..., 0]))]
    zero = torch.zeros(H, device="cuda")

    def run(a, b, cu):
        y = [t[:, a:b].detach().requires_grad_() for t in x]
        o, _ = kcp_torch.chunk_kda(
            *y, A_log=zero, dt_bias=zero.repeat(128), use_gate_in_kernel=True,
            use_qk_l2norm_in_kernel=True, cu_seqlens=list(cu), cu_seqlens_cpu=list(cu))
        return o.detach(), *torch.autograd.grad(o, y, do[:, a:b].to(B16))

    whole = run(0, cu[-1], cu)
    if torch.cuda.get_device_capability() == (9, 0):
        assert kcp_torch.last_paths() == ("forward_kda_by_head", "backward_kda_by_head")
    for a, b in zip(cu, cu[1:]):
        close(*((w[:, a:b], s, f"{n} from {a}", 1e-2) for w, s, n in zip(
            whole, run(a, b, (0, b - a)), ("o", *TOKENS))))


@pytest.mark.skipif(not kcp_torch.ops.available, reason="torch.compile: needs PyTorch 2.4")
def test_compiled():
    o, x, grads = example(30, (0, 300), (2, 2, 64, 64), gate=1)
    w = torch.randn(128, 4, device="cuda", dtype=B16)

    def block(*t):
        y = dict(zip(NAMES, t))
        v, _ = kcp_torch.causal_conv1d(y["v"].reshape(1, 300, 128), w, activation="silu")
        return call(dict(y, v=v.view_as(y["v"])), o)[0] * 2
    outs = []
    for f in (block, torch.compile(block, fullgraph=True)):
        t = [x[n].detach().requires_grad_() for n in NAMES]
        y = f(*t)
        outs.append([y, *torch.autograd.grad(y, t, grads[0])])
    close(*((b, a, f"torch.compile {n}", 1e-2) for a, b, n in zip(*outs, ("o", *NAMES))))


# ---- a training step (forward, loss, backward and AdamW of train.py's model) never waits

LENGTHS = ([700, 1300, 48], [1000, 1000, 48], [48, 1300, 700])
SLEEP = 0.5                           # seconds for which the GPU is busy


def steps_of(batch):
    """Returns training steps of one model on three batches. batch(cu) returns the model's
    options and the function that takes this rank's tokens."""
    torch.manual_seed(1)
    model = train.Model(width=256, H=2, K=128).cuda().bfloat16()

    def made(lengths):
        cu = torch.tensor([0, *lengths]).cumsum(0).tolist()
        text, (where, part) = torch.randint(0, 256, (1, cu[-1] + 1)), batch(cu)
        x, y = (part(t).cuda() for t in (text[:, :-1], text[:, 1:]))
        adam = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)

        def step():
            F.cross_entropy(model(x, where)[0], y[0], reduction="sum").backward()
            adam.step()
            adam.zero_grad(set_to_none=True)
        return step
    steps = [made(lengths) for lengths in LENGTHS]
    for step in steps * 2:                    # allocates, compiles, loads kernels
        step()
    torch.cuda.synchronize()
    return steps


def host_seconds(step):
    """Returns how long the host takes to enqueue a step while the GPU is busy."""
    torch.cuda.synchronize()
    start, cycles = time.perf_counter(), 200_000_000
    torch.cuda._sleep(cycles)
    torch.cuda.synchronize()
    torch.cuda._sleep(int(cycles * SLEEP / (time.perf_counter() - start)))
    start = time.perf_counter()
    step()
    took = time.perf_counter() - start
    torch.cuda.synchronize()
    return took


def waits(steps, timed=True):
    """PyTorch's own waits raise an error. Waits of the library are found by time. Both ways
    must find a wait (item). Also requires that a step allocates no new segment. On ranks that
    share a GPU time shows nothing, because the ranks wait for one another."""
    item = lambda: torch.ones(1, device="cuda").item()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in steps * 2:
            step()
        with pytest.raises(RuntimeError):
            item()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    if timed:
        assert max(map(host_seconds, steps)) < SLEEP / 2
        assert host_seconds(item) > SLEEP / 2
    counts = []
    for _ in range(3):
        before = torch.cuda.memory_stats()
        steps[0]()
        after = torch.cuda.memory_stats()
        counts.append([after[n] - before[n] for n in (
            "allocation.all.allocated", "segment.all.allocated", "allocated_bytes.all.current")])
    assert counts[1] == counts[2] and counts[1][1:] == [0, 0], counts


def test_waits():
    waits(steps_of(lambda cu: (dict(cu_seqlens_cpu=cu), lambda t: t)))


def test_waits_over_ranks(world):
    def batch(cu):
        context = kcp_torch.build_cp_context(cu, world, conv1d_kernel_size=4)
        return dict(cp_context=context), context.shard
    waits(steps_of(batch),
          int(os.environ["LOCAL_WORLD_SIZE"]) <= torch.cuda.device_count())
