"""host.py -- prints where the host's time of a call of kcp_torch goes, in microseconds.

Book: chapter 18.

    python3 bench/peers/host.py [T=512] [H=16] [device=cuda]

Calls are enqueued without waiting for the GPU, so the GPU's time is not counted as long as
the call is short. A row's median of 50 calls: `library` is the C function, with the args
struct packed; `site` adds the allocation of outputs; `call` adds checks and autograd's
graph; `floor` is autograd's own cost for as many tensors.
"""
import sys
import time

import torch

import kcp_torch
from kcp_torch import chunk


def median(step, wait, n=50):
    us = []
    for i in range(20 + n):
        if i % 10 == 0:
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

    def call():
        q, k, v, g, beta, A_log, dt_bias = x
        return kcp_torch.chunk_kda(
            q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, lower_bound=-5.0,
            use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
            use_beta_sigmoid_in_kernel=True, safe_gate=True)[0]

    def inference():
        with torch.no_grad():
            call()
    rows = [("call, forward, no gradients", inference), ("call, forward", call),
            ("call, forward + backward", lambda: torch.autograd.grad(call(), learned, do))]
    for name, step in rows:
        print(f"{name:<32}{median(step, wait):9.1f}", flush=True)
    site = list(chunk._latest.values())[-1]
    plain = [t.detach() for t in x] + [None]
    places = [t.data_ptr() for t in plain[:7]]
    _, _, saved, _ = site.forward(plain, True, places)
    grads = site.backward(saved, plain, do, None, site.dtypes)
    first, out = site.prepared(), [t for t in grads if t is not None]
    last = site.call("backward", site.store, site.names13)
    new_o, new_states, _ = site.made()
    ends = [new_o().data_ptr(), new_states().data_ptr()]
    dh0 = new_states()
    to = [*places, do.data_ptr(), *(t.data_ptr() for t in out), dh0.data_ptr()]
    for name, step in (
            ("site, forward", lambda: site.forward(plain, True, places)),
            ("site, backward", lambda: site.backward(saved, plain, do, None, site.dtypes)),
            ("library, forward", lambda: first((*places, *ends), True)),
            ("library, backward", lambda: last(to, saved=saved)),
            ("floor, forward", lambda: Floor.apply(out, *x)),
            ("floor, forward + backward",
             lambda: torch.autograd.grad(Floor.apply(out, *x), learned, do))):
        print(f"{name:<32}{median(step, wait):9.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
