"""rounded_keys.py -- how far the reference of FLA's tests over ranks is from the exact
result, on tensors drawn as those tests draw them. No GPU.

Book: chapter 19.  Checked by: tests/cli/torch.sh, which wants it beyond their limit;
the exact half is what tests/cli/torch_check.py holds.  Next: fla_tests.py.

    python3 bench/peers/rounded_keys.py [torch.tsv] [T=1024]

tests/context_parallel/test_cp_kda.py normalises q and k in bfloat16 and lets autograd
go back through that; FLA's kernels normalise in float32 and round once. Its keys have a
mean of five times their spread, so they are alike, and errors grow. Everything else is
double here, so what is printed is what exact kernels of either kind would show.
"""
import math
import sys
from functools import partial

import torch
import torch.nn.functional as F

import kcp_torch

LIMIT, HEADS, D = 8e-3, (0, 5, 11), 128       # theirs; three of their twelve heads
NAMES = "o dq dk dv dg db".split()


def draw(T):
    torch.manual_seed(42)
    H, half = len(HEADS), torch.bfloat16
    q, k = torch.randn(1, T, H, D) + 1, torch.randn(1, T, H, D) * 10 - 50
    v, g, do = (torch.randn(1, T, H, D) for _ in range(3))
    beta = torch.randn(1, T, H).sigmoid()
    A = torch.linspace(1, 8, 12)[list(HEADS)].double()
    low, high = math.log(0.001), math.log(0.1)
    dt = torch.exp(torch.rand(H, D) * (high - low) + low).clamp_(min=1e-4)
    bias = (dt + torch.log(-torch.expm1(-dt))).double()
    return [t.to(half) for t in (q, k, v, g, beta)], do.to(half).double(), A, bias


def once(x):
    """As FLA's kernels round: after a norm in float32."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + 1e-6)).to(x.dtype)


def passes(tensors, do, A, bias, norm=None):
    """norm: what rounds q and k in their own type; None: everything in double."""
    x = [t.clone() if norm and i < 2 else t.double() for i, t in enumerate(tensors)]
    q, k, v, g, beta = x = [t.requires_grad_() for t in x]
    gate = -5 * torch.sigmoid(A[:, None] * (g + bias))
    norm = norm or partial(F.normalize, p=2, dim=-1)
    q, k = (norm(t).double() for t in (q, k))
    o, _ = kcp_torch.chunk_kda(q, k, v, gate, beta)
    return [o] + list(torch.autograd.grad(o, x, do))


def told(got, want):
    off = [((a.double() - b.double()).square().mean() /
            b.double().square().mean()).sqrt().item() for a, b in zip(got, want)]
    return ", ".join(f"{n} {e:.1e}" for n, e in zip(NAMES, off)), off


def main(words):
    T = next((int(w[2:]) for w in words if w.startswith("T=")), 1024)
    case = draw(T)
    exact, theirs = passes(*case), passes(*case, partial(F.normalize, p=2, dim=-1))
    says, off = told(theirs, exact)
    print(f"rounded_keys.py: T = {T}: their reference against double: {says};"
          f" their limit is {LIMIT:.0e}")
    again, more = told(passes(*case, once), theirs)
    print(f"rounded_keys.py: rounded once, against their reference: {again}")
    if words and "=" not in words[0]:
        from torch_layer import write
        write(words[0], dict(
            what="reference of FLA's tests/context_parallel/test_cp_kda.py, which"
                 f" rounds normalised q and k, against double, T = {T}",
            how="their reference", n=len(HEADS), peer=f"torch {torch.__version__}",
            says=f"{says}; q and k rounded once, as FLA's kernels do, against that"
                 f" reference: {again}; the tests allow {LIMIT:.0e}"))
    return int(min(max(off), max(more)) < LIMIT)     # 1: it is good enough


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
