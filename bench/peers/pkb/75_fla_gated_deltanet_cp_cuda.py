"""Problem 75 of ParallelKernelBench (togethercomputer, 3cc0f9b): GDN over ranks with K = 256
and V = 512, solved with kcp_torch.

Book: chapter 20.

Run it as the solution of problem 74. The benchmark's reference moves heads between ranks, so
each rank has the parameters of H / R heads; here a rank keeps its tokens and needs the
parameters of all heads.
"""
import functools

import torch
import torch.distributed as dist

from kcp_torch import build_cp_context, chunk_gated_delta_rule


@functools.cache
def context(tokens, group):
    """Returns the context of one sequence of this length, which each call reuses."""
    return build_cp_context([0, tokens], group)


def of_all_heads(part, group):
    """Gathers a parameter of this rank's heads to the parameter of all heads."""
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, part.contiguous(), group=group)
    return torch.cat(parts)


@torch.no_grad()
def solution(q, k, v, gate, beta, a_log, dt_bias, group=None):
    """The benchmark's signature. Each rank has [B, T / R, H, 256] of q and k, 512 columns of
    v, [B, T / R, H] of gate and beta, and returns its rows of o. B must be 1."""
    group = group or dist.group.WORLD
    R = dist.get_world_size(group)
    return chunk_gated_delta_rule(
        q, k, v, gate, beta, A_log=of_all_heads(a_log, group),
        dt_bias=of_all_heads(dt_bias, group), use_qk_l2norm_in_kernel=True,
        use_gate_in_kernel=True,
        cp_context=context(R * q.shape[1], group) if R > 1 else None)[0]
