"""rounded_keys.py -- how far the reference of FLA's tests over ranks is from the exact
result, on tensors drawn as those tests draw them. No GPU.

Book: chapter 19.  Checked by: tests/cli/torch.sh, which wants it beyond their limit;
the exact half is what tests/cli/torch_check.py holds.  Next: fla_tests.py.

    python3 bench/peers/rounded_keys.py [torch.tsv] [T=1024]

tests/context_parallel/test_cp_kda.py normalises q and k in bfloat16 and lets autograd
go back through that; FLA's kernels round there too. Its keys have a mean of five times
their spread, so they are alike, and errors grow. Everything else is double here.
"""
import math
import sys

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


def passes(tensors, do, A, bias, rounded):
    x = [t.clone() if rounded and i < 2 else t.double() for i, t in enumerate(tensors)]
    q, k, v, g, beta = x = [t.requires_grad_() for t in x]
    gate = -5 * torch.sigmoid(A[:, None] * (g + bias))
    q, k = (F.normalize(t, p=2, dim=-1).double() for t in (q, k))
    o, _ = kcp_torch.chunk_kda(q, k, v, gate, beta)
    return [o] + list(torch.autograd.grad(o, x, do))


def main(words):
    T = next((int(w[2:]) for w in words if w.startswith("T=")), 1024)
    case = draw(T)
    exact, theirs = passes(*case, False), passes(*case, True)
    off = [((a.double() - b).square().mean() / b.square().mean()).sqrt().item()
           for a, b in zip(theirs, exact)]
    says = ", ".join(f"{n} {e:.1e}" for n, e in zip(NAMES, off))
    print(f"rounded_keys.py: T = {T}: {says}; their limit is {LIMIT:.0e}")
    if words and "=" not in words[0]:
        from torch_layer import write
        write(words[0], dict(
            what="reference of FLA's tests/context_parallel/test_cp_kda.py, which"
                 f" rounds normalised q and k, against double, T = {T}",
            how="their reference", n=len(HEADS), peer=f"torch {torch.__version__}",
            says=f"{says}; the tests allow {LIMIT:.0e}"))
    return int(max(off) < LIMIT)               # 1: their reference is good enough


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
