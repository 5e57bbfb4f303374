"""others.py -- wraps kernels of FlashKDA and FlashQLA in functions with FLA's signature, so
that the same programs judge and time all kernels.

Book: chapter 19.

    python3 tests/kcp_check.py others:flash_kda_chunk_kda --stage 08 --as fla --device cuda
    python3 bench/peers/fla_ops.py --others FILE.tsv...

If a kernel does not compute gate, norm or sigmoid, PyTorch computes them before the call.
"""
import torch
import torch.nn.functional as F


def unit(x):
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def ready(g, beta, q, k, options):
    """Computes gate, beta and norm in PyTorch. The gate is computed in double, because
    float32 loses the slope of a saturated gate."""
    if options.get("use_gate_in_kernel"):
        low, A = options.get("lower_bound"), options["A_log"].double().exp()
        bias = options.get("dt_bias")
        A = A.view(-1, *[1] * (g.dim() - 3))
        y = g.double() if bias is None else g.double() + bias.view(g.shape[2:])
        g = -A * F.softplus(y) if low is None else low * torch.sigmoid(A * y)
    if options.get("use_beta_sigmoid_in_kernel"):
        beta = torch.sigmoid(beta.float())
        beta = 2 * beta if options.get("allow_neg_eigval") else beta
    if options.get("use_qk_l2norm_in_kernel"):
        q, k = (unit(x.float()).to(x.dtype) for x in (q, k))
    return g.float(), beta.float(), q, k


def takes(ok, what):
    if not ok:
        raise NotImplementedError(what)


def grows(*tensors):
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad
                                           for x in tensors)


def flash_kda_chunk_kda(q, k, v, g, beta, scale=None, initial_state=None,
                        output_final_state=False, cu_seqlens=None, **o):
    """Calls FlashKDA's forward, which itself computes the bounded gate, sigmoid and norm."""
    import flash_kda
    takes(not grows(q, k, v, g, beta), "only forward")
    takes(o.get("use_gate_in_kernel") and o.get("lower_bound") is not None and
          -5 <= o["lower_bound"] and o.get("dt_bias") is not None, "only the bounded gate")
    takes(o.get("use_beta_sigmoid_in_kernel") and not o.get("allow_neg_eigval"),
          "only sigmoid(beta)")
    takes(o.get("use_qk_l2norm_in_kernel"), "only with norm in the kernel")
    takes(q.shape[3] == v.shape[3] == 128 and q.shape[2] == v.shape[2], "only K=V=128, HV=H")
    takes(q.dtype == torch.bfloat16, "only bfloat16")
    turn = (lambda x: x) if o.get("state_v_first") else (lambda x: x.transpose(2, 3))
    B, T, H, D = v.shape
    cu = torch.arange(0, (B + 1) * T, T, device=q.device) if cu_seqlens is None \
        else cu_seqlens.long()
    ht = torch.empty(len(cu) - 1, H, D, D, device=q.device)
    h0 = None if initial_state is None else turn(initial_state.float()).contiguous()
    flat = [x.reshape(1, -1, *x.shape[2:]).contiguous() for x in (q, k, v, g, beta)]
    out = torch.empty_like(flat[2])
    flash_kda.fwd(*flat, q.shape[3] ** -0.5 if scale is None else scale, out,
                  o["A_log"].float(), o["dt_bias"].float().view(H, D),
                  float(o["lower_bound"]), initial_state=h0, final_state=ht,
                  cu_seqlens=cu)
    return out.view(v.shape), turn(ht) if output_final_state else None


def flash_qla_chunk_gated_delta_rule(q, k, v, g, beta, scale=None, initial_state=None,
                                     output_final_state=False, cu_seqlens=None, **o):
    """Calls FlashQLA's kernels; PyTorch computes gate and sigmoid before the call."""
    from flash_qla import chunk_gated_delta_rule
    takes(q.shape[3] == v.shape[3] == 128, "only K = V = 128")
    takes(q.dtype == torch.bfloat16, "only bfloat16")
    norm = bool(o.pop("use_qk_l2norm_in_kernel", False))
    g, beta, _, _ = ready(g, beta, q, k, o)
    return chunk_gated_delta_rule(
        q, k, v, g, beta, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, use_qk_l2norm_in_kernel=norm,
        cu_seqlens=cu_seqlens, state_v_first=bool(o.get("state_v_first")))


KERNELS = {"kda": (flash_kda_chunk_kda, "FlashKDA"),
           "gdn": (flash_qla_chunk_gated_delta_rule, "flash-qla")}
