"""fla_ops.py -- times the Triton kernels of flash-linear-attention (FLA).

Book: chapter 18.  Checked by: its controls, measured in the same run.
Next: ahead.py.

    python3 bench/peers/fla_ops.py [--seconds S] FILE.tsv... [T=8192 H=96 model=kda]
    torchrun --nproc-per-node 4 bench/peers/fla_ops.py FILE.tsv T=131072 H=32

A file is a case that kcp-bench timed; a file that does not exist is a case of the words.
Under torchrun FLA's context parallelism is timed: the forward, then forward and backward,
the share of one rank alone, and on four ranks two groups of two with half of the heads.
Medians are those of the slowest rank. TRITON_CACHE_AUTOTUNING=1 keeps the tuner's choice;
the first case compiles and tunes for a minute or two on many cores (ahead.py). If FLA is
not installed, one line says so and the exit status is 0.
"""
import os
import sys

import ahead
import common


def load():
    try:
        import torch
        if not torch.cuda.is_available():
            raise ImportError("no GPU")
        import fla
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        from fla.ops.generalized_delta_rule import chunk_dplr_delta_rule
        from fla.ops.kda import chunk_kda
    except ImportError as e:
        print(f"fla_ops.py: {common.IDLE} ({e}): flash-linear-attention was not timed")
        sys.exit(0)
    commit = os.environ.get("FLA_COMMIT", "")
    peer = f"flash-linear-attention {fla.__version__} {commit}".strip()
    return torch, chunk_kda, chunk_gated_delta_rule, chunk_dplr_delta_rule, peer


torch, chunk_kda, chunk_gdn, chunk_dplr, peer = load()
LEARNED = ("q", "k", "v", "a", "b", "gk", "g", "beta", "A_log", "dt_bias", "h0")


def layer(case, x, context=None):
    """Returns FLA's layer; norm, gate and beta are inside, except for DPLR."""
    if case["model"] == "dplr":
        return chunk_dplr(x["q"], x["k"], x["v"], x["a"], x["b"], x["gk"], x["scale"],
                          x["h0"], True, lower_bound=-0.6065)
    more = dict(scale=x["scale"], use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                use_beta_sigmoid_in_kernel=True, A_log=x["A_log"], dt_bias=x["dt_bias"])
    if context is not None:
        more["cp_context"] = context
    elif "cu" in x:
        more["cu_seqlens"] = x["cu"]
    if context is None and "h0" in x:
        more.update(initial_state=x["h0"], output_final_state=True)
    if case["model"] == "kda":
        more.update(safe_gate=True, lower_bound=-5.0)
    call = chunk_kda if case["model"] == "kda" else chunk_gdn
    return call(q=x["q"], k=x["k"], v=x["v"], g=x["g"], beta=x["beta"], **more)


def passes(case, x, context=None, iters=100):
    """Times of the forward without gradients, of the backward, and of both."""
    def inference():
        with torch.no_grad():
            layer(case, x, context)

    learned = [x[n].requires_grad_() for n in LEARNED if n in x]
    kept = {}

    def forward():
        kept["y"] = layer(case, x, context)

    def backward():
        o, ht = kept.pop("y")
        outputs = [(o, x["do"])] + ([(ht, x["dht"])] if ht is not None else [])
        torch.autograd.grad([y for y, _ in outputs], learned, [d for _, d in outputs])

    alone = common.time_calls(torch, [inference], iters=iters)[0]
    try:
        back = common.time_calls(torch, [forward, backward], iters=iters)
    except RuntimeError as e:               # for example an unsupported version of Triton
        if context is not None and "Triton" not in str(e):
            raise                           # a Triton error occurs on all ranks alike
        print(f"fla_ops.py: {case['model']} backward not run: {str(e)[:200]!r}")
        return alone, None, None
    return alone, back[1], back[2]


def rows_of(name, times, **more):
    alone, back, both = times
    there, again = ("08_forward", 0), ("13_backward", 0)
    if name.startswith("fla_dplr"):          # chapter 16 is one stage of two passes
        there, again = ("16_family", 0), ("16_family", 1)
    rows = [common.row(there[0], name, there[1], alone, peer, **more)]
    if back:
        rows.append(common.row(again[0], name, again[1], back, peer, **more))
        rows.append(common.row("forward_backward", name, 0, both, peer, **more))
    for r in rows:
        common.say(r)
    return rows


def title(case, where=""):
    print(f"# {peer}; T={case['T']} H={case['H']} {case['model']} {case['gate']}"
          f"{where}")


def one_gpu(path, words):
    case = common.head(path, words)
    title(case)
    x = common.inputs(torch, case, case["T"], 1)
    if "copy" not in case:
        case.update(common.controls(torch))
    common.append(path, case, rows_of("fla_" + case["model"], passes(case, x)))


def slowest(times):
    """The maximum over the ranks, element by element."""
    import torch.distributed as dist
    n = [len(t) if t else 0 for t in times]
    flat = torch.tensor([u for t in times for u in t or ()], device="cuda")
    dist.all_reduce(flat, op=dist.ReduceOp.MAX)
    flat = iter(flat.tolist())
    return [tuple(next(flat) for _ in range(k)) for k in n]


def context_parallel(path, words, limit):
    import torch.distributed as dist
    from fla.ops.cp import build_cp_context
    R, r = dist.get_world_size(), dist.get_rank()
    case = common.head(path, [*words, f"ranks={R}"])
    def bounds(tokens):
        return torch.tensor([0, tokens], dtype=torch.long, device="cuda")

    name = "fla_" + case["model"]

    def trial(label, heads, group, ranks, context):
        late = slowest([(float(common.gone(limit)),)])[0][0]
        if late:
            if r == 0:
                print(f"fla_ops.py: {label}: no time left: not timed")
            return
        here = dict(case, H=case["H"] // heads, HV=case["HV"] // heads)
        x = common.inputs(torch, here, case["T"] // ranks, 1 + r, states=False)
        cp = build_cp_context(bounds(case["T"]), group=group) if context else None
        if not cp:
            x["cu"] = bounds(case["T"] // ranks)
        dist.barrier()
        times = slowest(passes(here, x, cp, iters=100))
        if r == 0:
            common.append(path, case, rows_of(name + label, times, ranks=R))

    if r == 0:
        if "copy" not in case:
            case.update(common.controls(torch))
        title(case, f" on {R}")
    dist.barrier()
    trial(f"_cp{R}", 1, dist.group.WORLD, R, True)
    trial("_share_alone", 1, None, R, False)
    if R == 4 and case["H"] % 2 == 0:
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]     # by every rank
        trial("_cp2_heads2", 2, pairs[r // 2], 2, True)
    dist.barrier()


def main(words):
    limit, files, case = 0.0, [], []
    while words:
        word = words.pop(0)
        if word == "--seconds":
            limit = float(words.pop(0))
        else:
            (case if "=" in word else files).append(word)
    if not files:
        sys.exit("fla_ops.py: found no file, expected FILE.tsv...")
    many = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if many:
        import torch.distributed as dist
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
    for path in files:
        if many:
            context_parallel(path, case, limit)
        elif common.gone(limit):
            print(f"fla_ops.py: {path}: no time left: not timed")
        else:
            one_gpu(path, case)
    if many:
        dist.destroy_process_group()


if __name__ == "__main__":
    ahead.install()
    main(sys.argv[1:])
