"""torch_layer.py -- kcp_torch and FLA on the same tensors: times, and errors of outputs
and gradients relative to the references in double.

Book: chapter 19.  Checked by: tests/cli/torch_check.py --cuda, which has limits.
Next: ../records.py, which keeps torch.tsv.

    python3 bench/peers/torch_layer.py torch.tsv [--no-fla] T=8192 H=96 model=kda ...
    torchrun --nproc-per-node 2 bench/peers/torch_layer.py torch.tsv T=131072 H=32 ...

The words before the next model= are one case. Under torchrun each rank has its own part
of the tokens. FLA and kcp_torch get the same cp_context. Times are the slowest rank's. Errors are
relative RMS of one head, the worst of all outputs; on ranks of the whole sequence, if it
has at most 32768 tokens.
"""
import csv
import os
import sys

import ahead
import common

FIELDS = ("what how n model T H HV K V C gate ranks us us_p10 us_p90 worst error says"
          " peer").split()


def write(path, row):
    new = not os.path.exists(path)
    with open(path, "a", newline="") as f:
        w = csv.DictWriter(f, FIELDS, delimiter="\t", lineterminator="\n")
        if new:
            w.writeheader()
        w.writerow(row)
    print("\t".join(str(row.get(n, "")) for n in FIELDS if n != "peer"), flush=True)


def layer(f, case, x, context=None):
    more = dict(scale=x["scale"], use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                use_beta_sigmoid_in_kernel=True, A_log=x["A_log"], dt_bias=x["dt_bias"])
    if case["model"] == "kda":
        more.update(safe_gate=True, lower_bound=-5.0)
    if context is not None:
        more["cp_context"] = context
    elif "h0" in x:
        more.update(initial_state=x["h0"], output_final_state=True)
    return f(x["q"], x["k"], x["v"], x["g"], x["beta"], **more)


LEARNED = ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "h0")


def learn(f, case, x, context=None):
    """Outputs and gradients by name."""
    y = {n: x[n].detach().requires_grad_() for n in LEARNED if n in x}
    o, ht = layer(f, case, dict(x, **y), context)
    outs = [(o, x["do"])] + ([] if ht is None else [(ht, x["dht"])])
    import torch
    grads = torch.autograd.grad([a for a, _ in outs], list(y.values()),
                                [b for _, b in outs])
    return {"o": o.detach(), "ht": ht, **{"d" + n: g for n, g in zip(y, grads)}}


def head(x, i):
    """One value head of all tensors, in double on the host; HV is H here."""
    cut = dict(q=2, k=2, v=2, g=2, beta=2, do=2, A_log=0, h0=1, dht=1, o=2, ht=1, dq=2,
               dk=2, dv=2, dg=2, dbeta=2, dA_log=0, dh0=1)
    out = {}
    for n, t in x.items():
        if n in ("dt_bias", "ddt_bias"):
            t = t.reshape(x["beta" if n == "dt_bias" else "dbeta"].shape[2], -1)[i]
            out[n] = t.double().cpu()
        elif n in cut:
            out[n] = t.narrow(cut[n], i, 1).double().cpu()
        elif n == "scale":
            out[n] = t
    return out


def gathered(x):
    """The whole sequence of a head on every rank, from its shards; sums are added."""
    import torch
    import torch.distributed as dist
    out = {}
    for n, t in x.items():
        if not torch.is_tensor(t):
            out[n] = t
            continue
        parts = [torch.empty_like(t, device="cuda") for _ in
                 range(dist.get_world_size())]
        dist.all_gather(parts, t.cuda())
        if n in ("A_log", "dt_bias"):         # replicated, not sharded
            whole = parts[0]
        else:
            whole = sum(parts) if n in ("dA_log", "ddt_bias") else torch.cat(parts, 1)
        out[n] = whole.cpu()
    return out


def spread_of(f, case, x, context):
    import torch
    y = {n: x[n].detach().requires_grad_() for n in LEARNED if n in x}
    z, kept = dict(x, **y), {}

    def inference():
        with torch.no_grad():
            layer(f, case, z, context)

    def forward():
        o, ht = layer(f, case, z, context)
        kept["y"] = [(o, x["do"])] + ([] if ht is None else [(ht, x["dht"])])

    def backward():
        outs = kept.pop("y")
        torch.autograd.grad([a for a, _ in outs], list(y.values()),
                            [b for _, b in outs])
    alone = common.time_calls(torch, [inference], 5, 40)[0]
    both = common.time_calls(torch, [forward, backward], 5, 40)
    return alone, both[0], both[1]


def one_case(path, case, fla):
    import torch
    import kcp_torch
    gdn = case["model"] == "gdn"
    name = "chunk_gated_delta_rule" if gdn else "chunk_kda"
    ours = getattr(kcp_torch, name)
    R = int(os.environ.get("WORLD_SIZE", 1))
    r = int(os.environ.get("RANK", 0))
    T = case["T"] // R
    x = common.inputs(torch, case, T, 1 + r, states=R == 1)
    contexts = {}
    functions = [("kcp_torch", ours)]
    if fla:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        from fla.ops.kda import chunk_kda
        functions += [("fla", chunk_gated_delta_rule if gdn else chunk_kda)]
    if R > 1:
        import torch.distributed as dist
        contexts["kcp_torch"] = kcp_torch.build_cp_context([0, case["T"]])
        if fla:
            from fla.ops.cp import build_cp_context
            contexts["fla"] = build_cp_context(
                torch.tensor([0, case["T"]], device="cuda"), group=dist.group.WORLD)
    want, row = None, dict(case, ranks=R)
    whole = (lambda y: y) if R == 1 else gathered
    if R == 1 or case["T"] <= 32768:
        y = whole(head(x, 0))
        want = learn(ours, case, y) if r == 0 else {}
    for how, f in functions:
        c = contexts.get(how)
        worst, e = "", ""
        if want is not None:
            got = whole(head({n: t for n, t in learn(f, case, x, c).items()
                              if t is not None}, 0))
            errors = {n: ((got[n] - t).square().mean().sqrt() /
                          t.square().mean().sqrt()).item() for n, t in want.items()
                      if n in got and t is not None and n != "dA_log"}
            said = " ".join(f"{n} {v:.1e}" for n, v in errors.items())
            worst, e = max(errors.items(), key=lambda p: p[1], default=("", 0.0))
            e = f"{e:.1e}"
        else:
            said = ""
        times = spread_of(f, case, x, c)
        if R > 1:
            import torch.distributed as dist
            t = torch.tensor(times, device="cuda")
            dist.all_reduce(t, op=dist.ReduceOp.MAX)
            times = t.tolist()
        peer = f"torch {torch.__version__}, kcp_torch {kcp_torch.__version__}"
        if how == "fla":
            import fla as package
            peer = f"flash-linear-attention {package.__version__}" \
                f" {os.environ.get('FLA_COMMIT', '')}".strip()
        for what, us in zip(("forward, nothing kept", "forward", "backward"), times):
            if r == 0:
                back = what == "backward"
                write(path, dict({n: row[n] for n in FIELDS if n in row}, what=what,
                                 how=how, us=round(us[0], 1), us_p10=round(us[1], 1),
                                 us_p90=round(us[2], 1), worst=worst if back else "",
                                 error=e if back else "", says=said if back else "",
                                 peer=peer))


def main(words):
    path, *words = words
    fla = "--no-fla" not in words
    cases = []
    for word in (w for w in words if w != "--no-fla"):
        if not cases or word.startswith("model="):
            cases.append([])
        cases[-1].append(word)
    import torch
    if not torch.cuda.is_available():
        sys.exit("torch_layer.py: no GPU found: nothing was run")
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        import torch.distributed as dist
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
    for words in cases or [["model=kda"]]:
        one_case(path, common.head("", words), fla)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        import kcp_torch
        kcp_torch.release()
        dist.destroy_process_group()


if __name__ == "__main__":
    if "--no-fla" not in sys.argv:
        ahead.install()
    main(sys.argv[1:])
