"""loss_curve.py -- trains a small model with kcp_torch and with FLA, and compares losses.

Book: chapter 18.

    python3 bench/peers/loss_curve.py --fla DIR [--steps 300] [--text FILE...]

The model is train.py's, with two KDA layers of width 256 and two heads of 128 channels, in
bfloat16 by autocast; its text is the book. DIR contains FLA's package. Both systems start
from the same parameters and read the same batches. With bf16 gates, the layer passes g and
beta in bfloat16, and the kernel computes the gate. With f32 gates, PyTorch computes gate and
beta in float32, as Kimi-Linear does. Losses are means of 10 steps. The exit status is 1 if
the last losses of both systems differ by more than LIMIT, or if the control's do not: in the
control, the gradients of g and beta have the wrong sign. Without a GPU: a line, status 2.
"""
import argparse
import glob
import os
import sys
import time

import torch
import torch.nn.functional as F

from common import PEERS, ROOT

sys.path.insert(0, os.path.join(ROOT, "book/examples/torch"))
import kcp_torch                                                        # noqa: E402
import train                                                            # noqa: E402

OURS, B, T = kcp_torch.chunk_kda, 8, 512
LIMIT = 0.01                                  # nats per byte


def gated(function, f32, wrong):
    """Returns chunk_kda with the gate in the kernel, or with float32 gates of PyTorch."""
    def call(q, k, v, g, beta, A_log, dt_bias, **more):
        for x in (g, beta) if wrong else ():
            x.register_hook(torch.neg)
        if not f32:
            return function(q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, **more)
        H, K = g.shape[2:]
        g = -A_log.exp()[:, None] * F.softplus(g.float() + dt_bias.view(H, K))
        return function(q, k, v, g, beta.float().sigmoid(), use_qk_l2norm_in_kernel=True)
    return call


def curve(function, text, steps, lr=3e-3):
    """Trains a model from a fixed seed; returns the loss of each step."""
    train.kcp_torch.chunk_kda = function
    torch.manual_seed(1)
    model = train.Model(width=256, H=2, K=128, layers=2).cuda()
    adam, losses = torch.optim.AdamW(model.parameters(), lr=lr), []
    place = torch.Generator().manual_seed(2)
    for step in range(steps):
        at = torch.randint(len(text) - T - 1, (B,), generator=place).tolist()
        x = torch.stack([text[i:i + T + 1] for i in at]).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(x[:, :-1], {})
        loss = F.cross_entropy(logits.float().flatten(0, 1), x[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def main():
    take = argparse.ArgumentParser(prog="loss_curve.py")
    take.add_argument("--fla", metavar="DIR", default=PEERS)
    take.add_argument("--steps", type=int, default=300)
    take.add_argument("--text", nargs="+", metavar="FILE")
    o = take.parse_args()
    if not torch.cuda.is_available():
        print("loss_curve.py: no GPU found", file=sys.stderr)
        return 2
    files = o.text or sorted(glob.glob(os.path.join(ROOT, "book/*.md")))
    text = torch.tensor(list(b"".join(open(f, "rb").read() for f in files)))
    sys.path.insert(0, o.fla)
    import ahead
    ahead.install()
    from fla.ops.kda import chunk_kda as theirs
    mean = lambda x, n: sum(x[max(0, n - 10):n]) / min(n, 10)
    bad = 0
    print(f"# {len(text)} bytes, {o.steps} steps of {B} x {T}; torch {torch.__version__}")
    for f32 in (False, True):
        runs = dict(kcp_torch=(OURS, False), FLA=(theirs, False), control=(OURS, True))
        losses = {}
        for name, (function, wrong) in runs.items():
            began = time.monotonic()
            losses[name] = curve(gated(function, f32, wrong), text, o.steps)
            print(f"# {'f32' if f32 else 'bf16'} gates, {name}:"
                  f" {time.monotonic() - began:.1f} s", flush=True)
        print(f"{'step':>6}" + "".join(f"{n:>12}" for n in runs))
        for n in sorted({1, *range(50, o.steps + 1, 50), o.steps}):
            print(f"{n:6}" + "".join(f"{mean(x, n):12.4f}" for x in losses.values()))
        last = {n: mean(x, o.steps) for n, x in losses.items()}
        off, seen = (abs(last[n] - last["kcp_torch"]) for n in ("FLA", "control"))
        bad += not off <= LIMIT or not seen > LIMIT
        print(f"loss_curve.py: {'f32' if f32 else 'bf16'} gates: last losses differ by"
              f" {off:.4f}, control by {seen:.4f}, limit {LIMIT}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
