"""fla_ops.py -- times kernels of flash-linear-attention (FLA), FlashKDA and FlashQLA.

Book: chapter 18.

    python3 bench/peers/fla_ops.py [--seconds S] [--others] FILE.tsv...
    torchrun --nproc-per-node 4 bench/peers/fla_ops.py [--seconds S] FILE.tsv...

FILE.tsv contains kcp-bench's rows of one case, and gets a row per kernel and pass. Under
torchrun, the program times FLA's context parallelism (forward, then forward and backward), and
writes the slowest rank's medians. With TRITON_CACHE_AUTOTUNING=1, Triton caches the tuner's
choice. The first case also compiles and tunes kernels, for a minute or two on many cores
(ahead.py). With --others, times FlashKDA and FlashQLA (others.py) instead of FLA. In their
rows with "ready inputs", PyTorch computes gate, norm and sigmoid before the call, which is not
timed. If a package is not installed or does not support a case, the program prints one line.
Without a GPU or FLA, the program prints one line and the exit status is 0.
"""
import argparse
import os
import sys

import common

LEARNED = ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "h0")


def load(o):
    """Sets the globals `torch`, `peer` and `functions`, FLA's function for each model."""
    global torch, peer, functions
    try:
        import torch
        if not torch.cuda.is_available():
            raise ImportError("no GPU")
        if o.others:
            return
        import ahead
        ahead.install()
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        from fla.ops.kda import chunk_kda
    except ImportError as e:
        print(f"fla_ops.py: found no GPU, or no package ({e}): nothing was timed")
        sys.exit(0)
    peer = common.version("flash-linear-attention")
    functions = {"kda": chunk_kda, "gdn": chunk_gated_delta_rule}


def options(case, x):
    """Returns the options of a layer that includes norm, gate and beta."""
    more = dict(scale=x["scale"], use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                use_beta_sigmoid_in_kernel=True, A_log=x["A_log"], dt_bias=x["dt_bias"])
    if case["model"] == "kda":
        more["lower_bound"] = -5.0
    return more


def layer(case, x, context=None):
    """Calls FLA's layer. With `context` (FLA's cp_context), x has one rank's tokens."""
    more = options(case, x)
    if case["model"] == "kda":
        more["safe_gate"] = True
    if context is not None:
        more["cp_context"] = context
    elif "cu" in x:
        more["cu_seqlens"] = x["cu"]
    if context is None and "h0" in x:
        more.update(initial_state=x["h0"], output_final_state=True)
    return functions[case["model"]](q=x["q"], k=x["k"], v=x["v"], g=x["g"], beta=x["beta"],
                                    **more)


def passes(case, x, context=None):
    """Returns times of a forward without gradients, a backward, and forward plus backward."""
    def call():
        return layer(case, x, context)

    learned = [x[n].requires_grad_() for n in LEARNED if n in x]
    alone = common.time_inference(torch, call)
    try:
        back = common.time_passes(torch, call, x, learned)
    except RuntimeError as e:               # for example an unsupported version of Triton
        if context is not None and "Triton" not in str(e):
            raise                           # may be on one rank; a Triton error is on all
        print(f"fla_ops.py: {case['model']} backward not run: {str(e)[:200]!r}")
        return alone, None, None
    return alone, back[1], back[2]


def rows_of(name, times, **more):
    alone, back, both = times
    rows = [common.row("08_forward", name, 0, alone, peer, **more)]
    if back:
        rows.append(common.row("13_backward", name, 0, back, peer, **more))
        rows.append(common.row("forward_backward", name, 0, both, peer, **more))
    return rows


def title(case, where=""):
    print(f"# {peer}; T={case['T']} H={case['H']} {case['model']} {case['gate']}"
          f"{where}")


def one_gpu(path):
    case = common.head(path)
    title(case)
    x = common.inputs(torch, case, case["T"], 1)
    common.append(path, case, rows_of("fla_" + case["model"], passes(case, x)))


def other_rows(case, x, f, package):
    """Returns a row for a forward that includes gates and norms, then rows for forward and
    backward on gates and norms that PyTorch computed before the call."""
    import others
    name, version = package.lower().replace("-", "_"), common.version(package)
    states = dict(output_final_state=True, cu_seqlens=x.get("cu"), state_v_first=True)
    more = options(case, x)
    tokens = [x[n] for n in ("q", "k", "v", "g", "beta")]
    us = common.time_inference(
        torch, lambda: f(*tokens, **more, **states, initial_state=x["h0"]), iters=60)
    rows = [common.row("08_forward", name, 0, us, version)]
    with torch.no_grad():
        g, beta, q, k = others.ready(x["g"], x["beta"], x["q"], x["k"], more)
    learned = [t.detach().requires_grad_() for t in (q, k, x["v"], g, beta, x["h0"])]

    def call():
        return f(*learned[:5], scale=x["scale"], **states, initial_state=learned[5])
    try:
        us = common.time_passes(torch, call, x, learned, 5, 30)
    except NotImplementedError as e:
        print(f"fla_ops.py: {name}: no backward timed: {e}")
        return rows
    return rows + [
        common.row("08_forward", name + ", ready inputs, kept", 0, us[0], version),
        common.row("13_backward", name + ", ready inputs", 0, us[1], version)]


def other_system(path):
    import others
    case = common.head(path)
    x = common.inputs(torch, case, case["T"], 1)
    f, package = others.KERNELS[case["model"]]
    try:
        rows = other_rows(case, x, f, package)
    except Exception as e:                  # any error of a package: report it and go on
        print(f"fla_ops.py: {path}: {package}: not timed: {e!r}"[:400])
        rows = []
    common.append(path, case, rows)


def slowest(times):
    """Returns the tuples `times` with each number replaced by its maximum over the ranks."""
    import torch.distributed as dist
    n = [len(t) if t else 0 for t in times]
    flat = torch.tensor([u for t in times for u in t or ()], device="cuda")
    dist.all_reduce(flat, op=dist.ReduceOp.MAX)
    flat = iter(flat.tolist())
    return [tuple(next(flat) for _ in range(k)) for k in n]


def context_parallel(path, limit, r, R):
    import torch.distributed as dist
    from fla.ops.cp import build_cp_context
    case = common.head(path)
    if slowest([(float(common.gone(limit)),)])[0][0]:
        if r == 0:
            print(f"fla_ops.py: {path}: no time left: not timed")
        return
    if r == 0:
        title(case, f" on {R}")
    bounds = torch.tensor([0, case["T"]], dtype=torch.long, device="cuda")
    x = common.inputs(torch, case, case["T"] // R, 1 + r, states=False)
    context = build_cp_context(bounds, group=dist.group.WORLD)
    dist.barrier()
    times = slowest(passes(case, x, context))
    if r == 0:
        name = f"fla_{case['model']}_cp{R}"
        common.append(path, case, rows_of(name, times, ranks=R))
    dist.barrier()


def main():
    take = argparse.ArgumentParser(prog="fla_ops.py")
    take.add_argument("--seconds", type=float, default=0)
    take.add_argument("--others", action="store_true")
    take.add_argument("files", nargs="+", metavar="FILE.tsv")
    o = take.parse_args()
    load(o)
    r, R = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if R > 1:                                   # under torchrun
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl")
    for path in o.files:
        if R > 1:
            context_parallel(path, o.seconds, r, R)
        elif common.gone(o.seconds):
            print(f"fla_ops.py: {path}: no time left: not timed")
        else:
            (other_system if o.others else one_gpu)(path)
            torch.cuda.empty_cache()
    if R > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
