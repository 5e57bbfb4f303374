"""host.py -- prints where the host's time of a call of kcp_torch goes, in microseconds.

Book: chapter 18.

    python3 bench/peers/host.py [T=512] [H=16] [device=cuda]

Calls are enqueued without waiting for the GPU, so the GPU's time is not counted as long as
the call is short. A row's median of 50 calls: `library` is the C function, with the args
struct packed; `site` adds the allocation of outputs, and casts of gradients; `call` adds
checks and autograd's graph; `per layer` is an eighth of eight calls in a row, with one
backward, as in a model; `one thread` runs backward without autograd's thread; `floor` is
autograd's own cost for as many tensors; `launch` is PyTorch's add_. `a graph` is a replay.
"""
import sys
import time

import torch

import kcp_torch
from kcp_torch import chunk


def median(step, wait, n=50, every=10):
    us = []
    for i in range(20 + n):
        if i % every == 0:
            wait()
        a = time.perf_counter()
        step()
        if i >= 20:
            us.append((time.perf_counter() - a) * 1e6)
    return sorted(us)[n // 2]


class Floor(torch.autograd.Function):
    @staticmethod
    def forward(ctx, grads, *inputs):
        ctx.grads = grads
        ctx.save_for_backward(*inputs)
        return inputs[2].new_empty(inputs[2].shape)

    @staticmethod
    def backward(ctx, do):
        ctx.saved_tensors
        return (None, *ctx.grads)


def main(words):
    o = dict(T="512", H="16", K="128", device="cuda")
    o.update(w.split("=", 1) for w in words)
    T, H, K, device = int(o["T"]), int(o["H"]), int(o["K"]), o["device"]
    if device == "cuda" and not torch.cuda.is_available():
        print("host.py: no GPU found", file=sys.stderr)
        return 2
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    kind = torch.bfloat16 if device == "cuda" else torch.float64
    x = [torch.randn(1, T, H, K, device=device).to(kind) for _ in range(4)]
    acc = torch.float32 if device == "cuda" else kind
    x += [torch.randn(1, T, H, device=device).to(kind),
          torch.randn(H, device=device, dtype=acc),
          torch.randn(H * K, device=device, dtype=acc)]
    do = torch.randn(1, T, H, K, device=device).to(kind)
    learned = [t.requires_grad_() for t in x]

    def call(x=x):
        q, k, v, g, beta, A_log, dt_bias = x
        return kcp_torch.chunk_kda(
            q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, lower_bound=-5.0,
            use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
            use_beta_sigmoid_in_kernel=True, safe_gate=True)[0]

    def inference():
        with torch.no_grad():
            call()
    both = lambda: torch.autograd.grad(call(), learned, do)

    layers = [[t.detach().clone().requires_grad_() for t in x] for _ in range(8)]

    def deep():
        y = x[2]
        for own in layers:
            y = call(own[:2] + [y] + own[3:])
        torch.autograd.grad(y, [x[2], *(t for own in layers for t in own[:2] + own[3:])], do)

    def alone():
        with torch.autograd.set_multithreading_enabled(False):
            both()
    rows = [("call, forward, no gradients", inference), ("call, forward", call),
            ("call, forward + backward", both), ("the same, one thread", alone)]
    for name, step in rows:
        print(f"{name:<32}{median(step, wait):9.1f}", flush=True)
    print(f"{'per layer of 8, both':<32}{median(deep, wait, every=2) / 8:9.1f}", flush=True)
    site = list(chunk._latest.values())[-1]
    plain = [t.detach() for t in x] + [None]
    places = [t.data_ptr() for t in plain[:7]]
    _, _, saved, _ = site.forward(plain, True, places)
    first, last = site.prepared(), site.call("backward", site.store, site.names13)
    new_o, new_states, new, _ = site.made()
    kept = [new_o(), new_states(), *(f() for f in new if f)]
    ends = [t.data_ptr() for t in kept[:2]]
    out = [f() for f in new[:7] if f]
    to = [*places, do.data_ptr(), *(t.data_ptr() for t in kept[2:])]
    for name, step in (
            ("site, forward", lambda: site.forward(plain, True, places)),
            ("site, backward", lambda: site.backward(saved, plain, do, None)),
            ("library, forward", lambda: first((*places, *ends), True)),
            ("library, backward", lambda: last(to, saved=saved)),
            ("floor, forward", lambda: Floor.apply(out, *x)),
            ("floor, forward + backward",
             lambda: torch.autograd.grad(Floor.apply(out, *x), learned, do)),
            ("launch", lambda: plain[4].add_(0))):
        print(f"{name:<32}{median(step, wait):9.1f}", flush=True)
    if device == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            both()
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        wait()
        a.record()
        for _ in range(20):
            graph.replay()
        b.record()
        wait()
        print(f"{'a graph, forward + backward':<32}{a.elapsed_time(b) * 50:9.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
