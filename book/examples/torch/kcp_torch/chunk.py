"""chunk.py -- chunk_kda and chunk_gated_delta_rule, with FLA's signatures.

Book: chapters 08, 13.  Checked by: tests/cli/torch.sh.  Next: conv.py.

Gradients are rank-local: a rank's gradient of a tensor that all ranks hold (A_log,
dt_bias, rows of the initial state) is its part, and the parts add up to the whole, as
DistributedDataParallel and an all_reduce want it. The library has the sum over the
ranks of A_log's and dt_bias's; a rank's part is an R-th of it. reduce_gradients=True
gives every rank the whole.
"""
import collections

import torch

from . import ops
from .core import (cast, floating, option, prepared, split_of, storage)

Spec = collections.namedtuple("Spec", "split group options whole")
FORMS = {"all_gather": "KCP_ALL_GATHER", "chain": "KCP_CHAIN",
         "pipeline": "KCP_PIPELINE", "scan": "KCP_SCAN"}
INPUTS = ("q_raw", "k_raw", "v", "g_raw", "beta_raw", "A_log", "dt_bias", "h0")
GRADIENTS = ("dq_raw", "dk_raw", "dv", "dg_raw", "dbeta_raw", "dA_log", "ddt_bias",
             "dh0")


def sizes(spec, q, v):
    """The shape of the states, and the options with the sizes in them."""
    H, K, HV, V = q.shape[2], q.shape[3], v.shape[2], v.shape[3]
    known = dict(spec.options)
    gdn = known["model"] == option(x="KCP_GDN")[0][1]
    turned = known["layout"] == option(x="KCP_VK")[0][1]
    rows = (len(spec.split[0]) - 1, HV)
    more = (("H", H), ("HV", HV), ("K", K), ("V", V), ("KG", 1 if gdn else K))
    return rows + ((V, K) if turned else (K, V)), spec.options + more


def forward(spec, inputs, keep):
    """o, ht, and the tensors that the way back reads."""
    q, v, h0 = inputs[0], inputs[2], inputs[7]
    store, act, acc = storage("q", q)
    states, options = sizes(spec, q, v)
    call = prepared("forward", store, q.device, options, spec.split, spec.group)
    kinds = (act,) * 5 + (acc,) * 3
    arrays = [cast(x, d) for x, d in zip(inputs, kinds)]
    o = torch.empty_like(arrays[2])
    ht = torch.zeros(states, dtype=acc, device=q.device)
    saved = None
    if keep:
        saved = torch.empty(call.saved_bytes, dtype=torch.uint8, device=q.device)
    call(q.device, dict(zip(INPUTS, arrays), o=o, ht=ht), saved)
    # A state is fp32, as FLA's, or double where the caller works in double.
    wide = q.dtype == torch.float64 or (h0 is not None and h0.dtype == torch.float64)
    return o.to(v.dtype), ht.to(torch.float64 if wide else torch.float32), saved, arrays


def backward(spec, saved, arrays, do, dht, dtypes):
    """The gradients of the eight inputs, in their own types."""
    device = arrays[0].device
    acc = torch.float64 if arrays[0].dtype == torch.float64 else torch.float32
    states, options = sizes(spec, arrays[0], arrays[2])
    call = prepared("backward", {torch.float64: "KCP_F64", torch.bfloat16: "KCP_BF16",
                                 torch.float32: "KCP_F32"}[arrays[0].dtype],
                    device, options, spec.split, spec.group)
    kinds = (None,) * 3 + (acc,) * 4
    out = [None if x is None else torch.empty_like(x, dtype=d)
           for x, d in zip(arrays, kinds)]
    out.append(torch.zeros(states, dtype=acc, device=device))
    do = torch.zeros_like(arrays[2]) if do is None else cast(do, arrays[2].dtype)
    named = dict(zip(INPUTS, arrays), do_=do, dht=cast(dht, acc))
    call(device, dict(named, **dict(zip(GRADIENTS, out))), saved)
    if spec.group is not None and not spec.whole:
        out[5:7] = [None if x is None else x / spec.group.size() for x in out[5:7]]
    return [None if d is None else x.to(d) for x, d in zip(out, dtypes)]


class Chunk(torch.autograd.Function):
    @staticmethod
    def forward(ctx, spec, *inputs):
        keep = any(ctx.needs_input_grad)
        o, ht, saved, arrays = forward(spec, inputs, keep)
        if keep:
            ctx.spec = spec
            ctx.dtypes = [None if x is None else x.dtype for x in inputs]
            ctx.save_for_backward(saved, *arrays)
        ctx.set_materialize_grads(False)
        return o, ht

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, do, dht):
        saved, *arrays = ctx.saved_tensors
        return (None,) + tuple(backward(ctx.spec, saved, arrays, do, dht, ctx.dtypes))


def _layer(model, q, k, v, g, beta, scale, initial_state, output_final_state, l2norm,
           gate, sigmoid, negative, lower_bound, keep_all, turned, cu_seqlens,
           cu_seqlens_cpu, cp_context, A_log, dt_bias, chunk_size, form, whole):
    floating("q", q, (None,) * 4, None, "[B, T, H, K]")
    B, T, H, K = q.shape
    floating("k", k, (B, T, H, K), q)
    floating("v", v, (B, T, None, None), q, f"[{B}, {T}, HV, V]")
    HV, V = v.shape[2:]
    if not H or HV % H:
        raise ValueError(f"v: found {HV} heads, expected a multiple of q's {H}")
    floating("g", g, (B, T, HV) if model == "KCP_GDN" else (B, T, HV, K), q)
    floating("beta", beta, (B, T, HV), q)
    cu, cuts, group = split_of(B, T, cu_seqlens, cu_seqlens_cpu, cp_context, "q")
    if form not in FORMS:
        raise ValueError(f"form: found {form!r}, expected one of {', '.join(FORMS)}")
    if gate:
        if A_log is None:
            raise ValueError("A_log: found None, expected [HV] with use_gate_in_kernel")
        A_log = _parameter("A_log", A_log, (HV,), q)
        wide = (HV,) if model == "KCP_GDN" else (HV, K)
        if dt_bias is not None:
            dt_bias = _parameter("dt_bias", dt_bias, wide, q)
    elif A_log is not None or dt_bias is not None:
        raise ValueError(f"{'dt_bias' if A_log is None else 'A_log'}: found one,"
                         " expected None without use_gate_in_kernel")
    if lower_bound is not None and not lower_bound < 0:
        raise ValueError(f"lower_bound: found {lower_bound}, expected below 0")
    if initial_state is not None:
        floating("initial_state", initial_state,
                 (len(cu) - 1, HV) + ((V, K) if turned else (K, V)), q)
    forms = "KCP_GATE_SOFTPLUS" if lower_bound is None else "KCP_GATE_BOUNDED"
    betas = "KCP_BETA_SIGMOID2" if negative else "KCP_BETA_SIGMOID"
    spec = Spec((cu, cuts, chunk_size, 0), group, option(
        model=model, gate=forms if gate else "KCP_GATE_RAW",
        beta_form=betas if sigmoid else "KCP_BETA_RAW", l2norm=int(l2norm),
        layout="KCP_VK" if turned else "KCP_KV", form=FORMS[form],
        save="KCP_SAVE_ALL" if keep_all else "KCP_RECOMPUTE",
        scale=float(K ** -0.5 if scale is None else scale),
        lower_bound=float(-5 if lower_bound is None else lower_bound)), bool(whole))
    inputs = (q, k, v, g, beta, A_log, dt_bias, initial_state)
    o, ht = ops.chunk(spec, inputs) if ops.wanted() else Chunk.apply(spec, *inputs)
    return o, ht if output_final_state else None


def _parameter(name, x, shape, like):
    """A parameter in any shape with as many numbers, as FLA's layers hold it."""
    n = 1
    for m in shape:
        n *= m
    if not isinstance(x, torch.Tensor) or x.numel() != n:
        found = list(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
        raise ValueError(f"{name}: found {found}, expected {list(shape)}")
    floating(name, x, (None,) * x.dim(), like)
    return x.reshape(shape)


def _turned(state_v_first, transpose_state_layout, more):
    if more:
        raise TypeError(f"{sorted(more)[0]}: found an argument of this name, expected"
                        " those of FLA's function")
    return bool(state_v_first or transpose_state_layout)


def chunk_kda(q, k, v, g, beta, scale=None, initial_state=None,
              output_final_state=False, use_qk_l2norm_in_kernel=False,
              use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
              allow_neg_eigval=False, safe_gate=False, lower_bound=None,
              disable_recompute=False, state_v_first=False, cu_seqlens=None,
              cu_seqlens_cpu=None, cp_context=None, A_log=None, dt_bias=None,
              transpose_state_layout=False, chunk_size=64, form="all_gather",
              reduce_gradients=False, **more):
    """Kimi Delta Attention. q, k [B,T,H,K]; v [B,T,HV,V]; g [B,T,HV,K]; beta [B,T,HV];
    initial_state [N,HV,K,V], by global sequence under cp_context. Returns o [B,T,HV,V]
    and, if asked for, the final states: under cp_context the rows of those sequences
    that end on this rank, and zeros."""
    if safe_gate and use_gate_in_kernel and lower_bound is None:
        raise ValueError("lower_bound: found None, expected a number with safe_gate")
    return _layer("KCP_KDA", q, k, v, g, beta, scale, initial_state, output_final_state,
                  use_qk_l2norm_in_kernel, use_gate_in_kernel,
                  use_beta_sigmoid_in_kernel, allow_neg_eigval, lower_bound,
                  disable_recompute, _turned(state_v_first, transpose_state_layout,
                                             more),
                  cu_seqlens, cu_seqlens_cpu, cp_context, A_log, dt_bias, chunk_size,
                  form, reduce_gradients)


def chunk_gated_delta_rule(q, k, v, g, beta, scale=None, initial_state=None,
                           output_final_state=False, use_qk_l2norm_in_kernel=False,
                           cu_seqlens=None, cu_seqlens_cpu=None, cp_context=None,
                           use_gate_in_kernel=False, A_log=None, dt_bias=None,
                           use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False,
                           disable_recompute=False, state_v_first=False,
                           transpose_state_layout=False, chunk_size=64,
                           form="all_gather", reduce_gradients=False, **more):
    """Gated DeltaNet: as chunk_kda, with one gate a head, g [B,T,HV]."""
    return _layer("KCP_GDN", q, k, v, g, beta, scale, initial_state, output_final_state,
                  use_qk_l2norm_in_kernel, use_gate_in_kernel,
                  use_beta_sigmoid_in_kernel, allow_neg_eigval, None,
                  disable_recompute, _turned(state_v_first, transpose_state_layout,
                                             more),
                  cu_seqlens, cu_seqlens_cpu, cp_context, A_log, dt_bias, chunk_size,
                  form, reduce_gradients)
