"""torch_step.py -- a layer's step by kcp_torch and by FLA's functions on the same
tensors: three short convolutions, KDA, and their gradients; time and peak of memory.

Book: chapter 19.  Checked by: tests/cli/torch_gpu.py, which holds kcp_torch to limits.
Next: torch_layer.py, KDA alone.

    python3 bench/peers/torch_step.py torch.tsv [--no-fla] T=8192 H=96

Rows of torch.tsv, as torch_layer.py's: the three convolutions (width 4, SiLU) forward
and backward, the step forward and backward, and in a row without a time the most
memory that a step held above its inputs.
"""
import os
import sys

import torch

import ahead
import common
from torch_layer import write

SAID = ("q", "k", "v")


def functions(fla):
    import kcp_torch
    named = f"torch {torch.__version__}, kcp_torch {kcp_torch.__version__}"
    found = [("kcp_torch", named, kcp_torch.chunk_kda, kcp_torch.causal_conv1d)]
    if fla:
        import fla as package
        from fla.modules.convolution import causal_conv1d
        from fla.ops.kda import chunk_kda
        named = f"flash-linear-attention {package.__version__}" \
            f" {os.environ.get('FLA_COMMIT', '')}".strip()
        found.append(("fla", named, chunk_kda, causal_conv1d))
    return found


def timed(first, then):
    return common.time_calls(torch, [first, then], 5, 40)


def one(case, x, weights, chunk, conv):
    T, HV, K = case["T"], case["HV"], case["K"]
    flat = {n: x[n].reshape(1, T, -1) for n in SAID}

    def convolved(y):
        return [conv(y[n], weights[n], activation="silu")[0] for n in SAID]
    grown = {n: t.detach().requires_grad_() for n, t in flat.items()}
    learned = [*grown.values(), *weights.values()]
    douts = [torch.randn_like(t) for t in flat.values()]
    kept = {}

    def conv_first():
        kept["y"] = convolved(grown)

    def conv_then():
        torch.autograd.grad(kept.pop("y"), learned, douts)
    us = timed(conv_first, conv_then)
    yield "three convolutions, forward", us[0]
    yield "three convolutions, backward", us[1]
    rest = {n: x[n].detach().requires_grad_() for n in ("g", "beta", "A_log",
                                                        "dt_bias")}
    learned += rest.values()

    def first():
        q, k, v = (t.view(1, T, -1, K) for t in convolved(grown))
        kept["o"], _ = chunk(
            q, k, v, rest["g"], rest["beta"], scale=x["scale"],
            use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
            use_beta_sigmoid_in_kernel=True, A_log=rest["A_log"],
            dt_bias=rest["dt_bias"], safe_gate=True, lower_bound=-5.0)

    def then():
        torch.autograd.grad(kept.pop("o"), learned, x["do"])
    us = timed(first, then)
    yield "convolutions and KDA, forward", us[0]
    yield "convolutions and KDA, backward", us[1]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    first()
    after = torch.cuda.memory_allocated() - before
    then()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    yield "memory", (peak, after)


def main(words):
    path, *words = words
    fla = "--no-fla" not in words
    case = common.head("", [w for w in words if w != "--no-fla"])
    if not torch.cuda.is_available():
        sys.exit("torch_step.py: no GPU here: nothing was run")
    x = common.inputs(torch, case, case["T"], 1, states=False)
    weights = {n: (0.3 * torch.randn(x[n].shape[2] * x[n].shape[3], 4, device="cuda"))
               .to(torch.bfloat16).requires_grad_() for n in SAID}
    for how, peer, chunk, conv in functions(fla):
        for what, us in one(case, x, weights, chunk, conv):
            row = dict(how=how, peer=peer)
            if what == "memory":
                write(path, dict(row, n=1, what="memory above its inputs, convolutions"
                                 f" and KDA, T = {case['T']}, H = {case['H']}",
                                 says=f"peak {us[0] / 2**30:.2f} GiB, of it"
                                 f" {us[1] / 2**30:.2f} GiB kept between the passes"))
                continue
            write(path, dict({n: case[n] for n in ("model", "T", "H", "HV", "K", "V",
                                                   "C", "gate")}, **row, ranks=1,
                             what=what, us=round(us[0], 1), us_p10=round(us[1], 1),
                             us_p90=round(us[2], 1)))


if __name__ == "__main__":
    if "--no-fla" not in sys.argv:
        ahead.install()
    main(sys.argv[1:])
