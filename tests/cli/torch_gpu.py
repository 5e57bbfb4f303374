"""torch_gpu.py -- checks kcp_torch on a GPU: streams, graphs, threads, torch.compile
and memory.

Book: chapters 08, 13, 14.

    python tests/cli/torch_gpu.py          without a GPU: prints a line, status 0
"""
import sys
import threading
import warnings

sys.argv.append("--cuda")

import torch                                                            # noqa: E402
from torch.utils.checkpoint import checkpoint                           # noqa: E402

import kcp_torch                                                        # noqa: E402
import torch_check as check                                             # noqa: E402
from torch_check import B16, TOKENS, call, close, draw, expect          # noqa: E402

NAMES = (*TOKENS, "A_log", "dt_bias", "h0")


def example(seed, cu, sizes, gate=2):
    """Returns options, inputs on the GPU, and gradients of o and ht."""
    o = check.options(act=B16, gates=B16, beta=1, h0=True, fade=0.05, bias=-3, gate=gate)
    x, do, dht = draw(seed, cu, *sizes, o)
    return o, {n: x[n].cuda() for n in NAMES}, [do.cuda(), dht.cuda()]


def conv_graph():
    """Checks a convolution and its gradients in a CUDA graph."""
    r = lambda *s: torch.randn(*s, device="cuda", dtype=B16)
    cu = (0, 17, 17, 19, 20, 300)
    x = [r(1, 300, 48), r(48, 4), r(5, 48, 4)]
    dy, dlast = r(1, 300, 48), r(5, 48, 4)

    def step(t):
        t = [a.detach().requires_grad_() for a in t]
        y, last = kcp_torch.causal_conv1d(t[0], t[1], initial_state=t[2],
                                          activation="silu", output_final_state=True,
                                          cu_seqlens_cpu=cu)
        return [y, last, *torch.autograd.grad([y, last], t, [dy, dlast])]
    want, late = step(x), [torch.zeros_like(t) for t in x]
    step(late)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step(late)
    for a, b in zip(late, x):
        a.copy_(b)
    graph.replay()
    torch.cuda.synchronize()
    expect(all(map(torch.equal, got, want)), "a convolution in a graph")


def streams():
    """Checks that a call uses the current stream, does not block, and works in a graph."""
    cu = (0, 200, 200, 345, 346, 1000)
    o, x, grads = example(20, cu, (2, 4, 128, 128))

    def both(y, wrap=lambda f, t: f(*t)):
        y = [y[n].detach().requires_grad_() for n in NAMES]
        out = wrap(lambda *t: call(dict(zip(NAMES, t)), o, cu_seqlens_cpu=cu), y)
        return [*out, *torch.autograd.grad(list(out), y, grads)]
    want = [t.clone() for t in both(x)]
    both(x)
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    for _ in range(3):
        both(x)
    torch.cuda.synchronize()
    expect(torch.cuda.memory_allocated() == held, "memory grows from call to call")
    # Stream `side` writes the inputs late. A call on `side` must read the late values.
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
    expect(not idle, "the host waited for the GPU")
    expect(all(map(torch.equal, got, want)), "inputs that arrive late")
    late = {n: torch.zeros_like(t) for n, t in x.items()}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = both(late)
    for n, t in late.items():
        t.copy_(x[n])
    graph.replay()
    torch.cuda.synchronize()
    expect(all(map(torch.equal, got, want)), "a captured graph")
    got = both(x, lambda f, t: checkpoint(f, *t, use_reentrant=False))
    expect(all(map(torch.equal, got, want)), "checkpointed")
    found = [None, None]                      # by two threads with separate streams

    def work(i):
        mine = torch.cuda.Stream()
        with torch.cuda.stream(mine):
            for _ in range(20):
                found[i] = both(x)
            mine.synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for i in range(2):
        expect(found[i] and all(map(torch.equal, found[i], want)), f"thread {i} of two")
    # Tests a call with a view whose address is not a multiple of 16 bytes.
    odd = torch.empty(x["q"].numel() + 1, dtype=B16, device="cuda")[1:].view_as(x["q"])
    got = both(dict(x, q=odd.copy_(x["q"])))
    expect(all(map(torch.equal, got, want)), "an address not divisible by 16")


def compiled():
    if not kcp_torch.ops.available:
        return print(f"torch.compile: needs PyTorch 2.4, this is {torch.__version__}: skipped")
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
    for a, b, n in zip(*outs, ("o", *NAMES)):
        close(b, a, f"torch.compile {n}", 1e-2)


def main():
    if not torch.cuda.is_available():
        print("torch_gpu.py: no GPU here: nothing was run")
        return 0
    warnings.simplefilter("ignore", UserWarning)
    for part in (conv_graph, streams, compiled):
        part()
    for line in check.failed:
        print(f"  FAIL  torch_gpu.py: {line}")
    print(f"torch_gpu.py: torch {torch.__version__}, {torch.cuda.get_device_name()}:"
          f" {check.passed} passed, {len(check.failed)} failed")
    return int(bool(check.failed) or check.passed < 8)


if __name__ == "__main__":
    sys.exit(main())
