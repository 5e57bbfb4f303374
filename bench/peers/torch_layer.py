"""torch_layer.py -- kcp_torch and FLA on the same tensors: times, and errors of outputs
and gradients relative to the references in double.

Book: chapter 19.  Checked by: tests/cli/torch_check.py --cuda, which has limits.
Next: ../records.py, which keeps torch.tsv.

    python3 bench/peers/torch_layer.py torch.tsv [--no-fla] T=8192 H=96 model=kda ...
    torchrun --nproc-per-node 2 bench/peers/torch_layer.py torch.tsv T=131072 H=32 ...

The words before the next model= are one case. Under torchrun each rank has its own part
of the tokens. FLA and kcp_torch get the same cp_context. Times are the slowest rank's.
Errors are relative RMS of one head, the worst of all outputs; on ranks of the whole
sequence, if it has at most 32768 tokens.
"""
import argparse
import sys

import ahead
import common

LEARNED = ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "h0")
MOST_JUDGED = 32768
# The axis of heads in each tensor.
HEADS = dict(q=2, k=2, v=2, g=2, beta=2, do=2, A_log=0, h0=1, dht=1, o=2, ht=1, dq=2, dk=2,
             dv=2, dg=2, dbeta=2, dA_log=0, dh0=1)


def leaves(x):
    return {n: x[n].detach().requires_grad_() for n in LEARNED if n in x}


def learn(f, case, x, context=None):
    """Runs forward and backward; returns outputs and gradients by name."""
    import torch
    y = leaves(x)
    o, ht = common.layer(f, case, dict(x, **y), context)
    outs = [(o, x["do"])] + ([] if ht is None else [(ht, x["dht"])])
    grads = torch.autograd.grad([a for a, _ in outs], list(y.values()),
                                [b for _, b in outs])
    out = {"o": o.detach(), "ht": ht, **{"d" + n: g for n, g in zip(y, grads)}}
    return {n: t for n, t in out.items() if t is not None}


def first_head(x):
    """Copies the first value head of all tensors to the host, in double (HV = H)."""
    out = {}
    for n, t in x.items():
        if n in ("dt_bias", "ddt_bias"):
            heads = x["beta" if n == "dt_bias" else "dbeta"].shape[2]
            out[n] = t.reshape(heads, -1)[0].double().cpu()
        elif n in HEADS:
            out[n] = t.narrow(HEADS[n], 0, 1).double().cpu()
        elif n == "scale":
            out[n] = t
    return out


def gathered(x, R):
    """Gathers a head's whole sequence on every rank; adds the gradients of parameters."""
    import torch
    import torch.distributed as dist
    out = {}
    for n, t in x.items():
        if not torch.is_tensor(t):
            out[n] = t
            continue
        parts = [torch.empty_like(t, device="cuda") for _ in range(R)]
        dist.all_gather(parts, t.cuda())
        if n in ("A_log", "dt_bias"):         # replicated, not sharded
            whole = parts[0]
        else:
            whole = sum(parts) if n in ("dA_log", "ddt_bias") else torch.cat(parts, 1)
        out[n] = whole.cpu()
    return out


def errors_of(got, want):
    """Columns: the worst output, its error, all errors. On ranks other than 0 there is
    nothing to compare with."""
    e = {n: ((got[n] - t).square().mean().sqrt() / t.square().mean().sqrt()).item()
         for n, t in want.items() if n in got and n != "dA_log"}
    worst, most = max(e.items(), key=lambda p: p[1], default=("", 0.0))
    return dict(worst=worst, error=f"{most:.1e}",
                says=" ".join(f"{n} {value:.1e}" for n, value in e.items()))


def functions_of(case, fla, R):
    """(who, function, cp_context, version) of kcp_torch and of FLA."""
    import torch
    import kcp_torch
    name = "chunk_kda" if case["model"] == "kda" else "chunk_gated_delta_rule"
    context = kcp_torch.build_cp_context([0, case["T"]]) if R > 1 else None
    yield ("kcp_torch", getattr(kcp_torch, name), context,
           f"torch {torch.__version__}, kcp_torch {kcp_torch.__version__}")
    if not fla:
        return
    from fla.ops import gated_delta_rule, kda
    from fla.ops.cp import build_cp_context
    cu = torch.tensor([0, case["T"]], device="cuda")
    context = build_cp_context(cu, group=torch.distributed.group.WORLD) if R > 1 else None
    yield ("fla", getattr(kda if case["model"] == "kda" else gated_delta_rule, name),
           context, common.version("flash-linear-attention"))


def one_case(path, case, fla, r, R):
    import torch
    x = common.inputs(torch, case, case["T"] // R, 1 + r, states=R == 1)
    judged, want = R == 1 or case["T"] <= MOST_JUDGED, None

    def whole(y):
        return y if R == 1 else gathered(y, R)

    for how, f, context, peer in functions_of(case, fla, R):
        if want is None and judged:           # kcp_torch comes first: in double
            y = whole(first_head(x))
            want = learn(f, case, y) if r == 0 else {}
        errors = {}
        if judged:
            errors = errors_of(whole(first_head(learn(f, case, x, context))), want)
        y = leaves(x)

        def call():
            return common.layer(f, case, dict(x, **y), context)
        times = [common.time_inference(torch, call, 5, 40)]
        times += common.time_passes(torch, call, x, list(y.values()), 5, 40)[:2]
        if R > 1:
            times = common.slowest(torch, times)
        for what, us in zip(("forward, nothing kept", "forward", "backward"), times):
            row = {n: case[n] for n in common.OF_TORCH if n in case}
            row.update(what=what, how=how, ranks=R, us=round(us[0], 1), peer=peer,
                       us_p10=round(us[1], 1), us_p90=round(us[2], 1),
                       **(errors if what == "backward" else {}))
            if r == 0:
                common.append(path, [row], common.OF_TORCH)
                print(*(row.get(n, "") for n in common.OF_TORCH[:-1]), sep="\t",
                      flush=True)


def main():
    take = argparse.ArgumentParser(prog="torch_layer.py")
    take.add_argument("--no-fla", action="store_true")
    take.add_argument("file", metavar="torch.tsv")
    take.add_argument("words", nargs="*", metavar="NAME=VALUE")
    o = take.parse_intermixed_args()
    cases = []
    for word in o.words or ["model=kda"]:
        if not cases or word.startswith("model="):
            cases.append([])
        cases[-1].append(word)
    import torch
    if not torch.cuda.is_available():
        sys.exit("torch_layer.py: no GPU found: nothing was run")
    if not o.no_fla:
        ahead.install()
    r, R = common.connect(torch)
    for words in cases:
        one_case(o.file, common.head("", words), not o.no_fla, r, R)
    if R > 1:
        import kcp_torch
        kcp_torch.release()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
