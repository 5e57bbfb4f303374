"""Problem 74 of ParallelKernelBench (togethercomputer, 3cc0f9b): KDA over ranks, solved
with kcp_torch.

Book: chapter 20.

Run it with the benchmark's own checker, on two GPUs or more, from the benchmark's folder:

    PYTHONPATH=KCP/book/examples/torch KCP_LIB=KCP/build/libkcp.so \\
      python run_local.py --nproc-per-node 2 --problem 74 --solution cuda \\
      --solutions-dir KCP/bench/peers/pkb --mode eval --measure-perf

On CPUs, with small inputs, against the benchmark's reference:

    torchrun --nproc-per-node 3 THIS_FILE PKB/reference/74_fla_kimi_delta_attention_cp_tp.py

The benchmark's gates are near -2.5 per token, so the state that enters a rank of 64 tokens is
below 2^-200 at its end, and a solution that sends h_ext to the next rank without M passes.
With the argument `live`, gates are near -0.02, so over 3 ranks it fails.
"""
import torch
import torch.distributed as dist

from kcp_torch import build_cp_context, chunk_kda

CONTEXTS = {}


def context(tokens, group):
    """Returns the context of one sequence of this length, which each call reuses."""
    at = tokens, group
    if at not in CONTEXTS:
        CONTEXTS[at] = build_cp_context([0, tokens], group)
    return CONTEXTS[at]


@torch.no_grad()
def solution(q, k, v, g, beta, a_log, dt_bias, cp_group=None, tp_group=None):
    """The benchmark's signature. Each rank has [B, T / R, H, 128] of q, k, v, g and
    [B, T / R, H] of beta, and returns its rows of o. B must be 1 over several ranks."""
    cp_group = cp_group or dist.group.WORLD
    R = dist.get_world_size(cp_group)
    o, _ = chunk_kda(q, k, v, g, beta, A_log=a_log, dt_bias=dt_bias, lower_bound=-5.0,
                     use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                     use_beta_sigmoid_in_kernel=True,
                     cp_context=context(R * q.shape[1], cp_group) if R > 1 else None)
    if tp_group is not None and dist.get_world_size(tp_group) > 1:
        dist.all_reduce(o, group=tp_group)
    return o


def compare(reference, live):
    """Compares both solutions on random inputs of 3 heads; ends with status 1 if an
    output differs by more than 1e-4 of the largest."""
    import importlib.util
    spec = importlib.util.spec_from_file_location("reference", reference)
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    dist.init_process_group("gloo")
    rank, H, T, K = dist.get_rank(), 3, 96, 16
    torch.manual_seed(74 + rank)
    q, k, v, g = (torch.randn(1, T, H, K) for _ in range(4))
    beta = torch.randn(1, T, H)
    a_log, dt_bias = torch.linspace(-0.1, 0.1, H), torch.linspace(-0.1, 0.1, H * K)
    x = (q, k, v, g - 5.5 if live else g, beta, a_log, dt_bias)
    a, b = solution(*x), theirs.solution(*x)
    error = float((a - b).abs().max() / b.abs().max())
    print(f"rank {rank}: largest difference {error:.1e} of the largest output")
    dist.barrier()
    dist.destroy_process_group()
    return not error <= 1e-4


if __name__ == "__main__":
    import sys
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["live"]):
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    sys.exit(compare(sys.argv[1], len(sys.argv) == 3))
