"""rounded_keys.py -- measures how far the reference in FLA's context-parallel tests is from
the exact result, on tensors drawn as in these tests.

Book: chapter 19.

    python3 bench/peers/rounded_keys.py [T=1024]

tests/context_parallel/test_cp_kda.py normalises q and k in bfloat16 and differentiates
through this step. This script computes all other steps in double. In these tests, the mean of
the keys is five times their standard deviation, so all keys are similar and errors grow. The
exit status is 0 if the error is above the limit of these tests.
"""
import math
import sys

import torch
import torch.nn.functional as F

import kcp_torch

LIMIT, HEADS, D = 8e-3, (0, 5, 11), 128       # LIMIT is FLA's; three of FLA's 12 heads
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


def passes(tensors, do, A, bias, rounded=False):
    """Computes in double, but if `rounded` is true, normalises q and k in their own type."""
    x = [t.clone() if rounded and i < 2 else t.double() for i, t in enumerate(tensors)]
    q, k, v, g, beta = x = [t.requires_grad_() for t in x]
    gate = -5 * torch.sigmoid(A[:, None] * (g + bias))
    q, k = (F.normalize(t, p=2, dim=-1).double() for t in (q, k))
    o, _ = kcp_torch.chunk_kda(q, k, v, gate, beta)
    return [o] + list(torch.autograd.grad(o, x, do))


def errors_of(got, want):
    return [((a.double() - b.double()).square().mean() /
             b.double().square().mean()).sqrt().item() for a, b in zip(got, want)]


def main(words):
    T = int(words[0].removeprefix("T=")) if words else 1024
    case = draw(T)
    errors = errors_of(passes(*case, rounded=True), passes(*case))
    says = ", ".join(f"{n} {e:.1e}" for n, e in zip(NAMES, errors))
    print(f"rounded_keys.py: T = {T}: errors of their reference: {says};"
          f" their limit is {LIMIT:.0e}")
    return int(max(errors) < LIMIT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
