"""conv.py -- the short convolution, with FLA's signature.

Book: chapter 14.  Checked by: tests/cli/torch.sh.  Next: ops.py.
"""
import torch

from . import groups, ops
from .core import Spec, cast, floating, option, split_of, storage


def call_of(spec, which, store, bias, names):
    names = tuple(n for n in names if bias is not None or "bias" not in n)
    return spec.call("conv", store, names, option(**{"pass": which}))


def forward(spec, x, weight, bias):
    """y, and the arrays that the way back reads."""
    store, act, acc = storage("x", x)
    arrays = cast(x, act), cast(weight, acc), cast(bias, acc)
    y = torch.empty_like(arrays[0])
    call = call_of(spec, "KCP_FORWARD", store, bias, ("x", "weight", "bias", "y"))
    call([t.data_ptr() for t in (*arrays, y) if t is not None])
    return y.to(x.dtype), arrays


def backward(spec, store, arrays, dy, dtypes):
    x, weight, bias = arrays
    dx, dw = torch.empty_like(x), torch.zeros_like(weight)
    db = None if bias is None else torch.zeros_like(bias)
    call = call_of(spec, "KCP_BACKWARD", store, bias,
                   ("x", "weight", "bias", "dy", "dx", "dweight", "dbias"))
    dy = cast(dy, x.dtype)
    call([t.data_ptr() for t in (x, weight, bias, dy, dx, dw, db) if t is not None])
    dw, db = spec.part(call, [dw, db])
    return [None if d is None else t.to(d) for t, d in zip((dx, dw, db), dtypes)]


class Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, spec, x, weight, bias):
        y, arrays = forward(spec, x, weight, bias)
        ctx.rest = (spec, storage("x", x)[0],
                    [None if t is None else t.dtype for t in (x, weight, bias)])
        ctx.save_for_backward(*arrays)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        spec, store, dtypes = ctx.rest
        return (None,) + tuple(backward(spec, store, ctx.saved_tensors, dy, dtypes))


_known = groups.cache()                       # as in chunk.py


def spec_of(what, group, x):
    key = what, group, x.shape[-1], x.dtype, x.device
    spec = _known.get(key)
    if spec is None:
        if len(_known) >= 1024:
            _known.clear()
        starts, cuts, W, silu, whole = what
        options = option(act="KCP_ACT_SILU" if silu else "KCP_ACT_NONE",
                         D=x.shape[-1], Wc=W)
        spec = Spec((starts, cuts, 64, W), group, options, whole, x.device)
        _known[key] = spec
    return spec


def _rows_before(x, state, cu):
    """Sequences with the last rows of what came before them put in front."""
    parts, starts, reach = [], [0], state.shape[2] - 1
    for n, (a, b) in enumerate(zip(cu, cu[1:])):
        parts += [state[n, :, 1:].t().to(x.dtype), x[a:b]]
        starts.append(starts[-1] + reach + b - a)
    return torch.cat(parts), tuple(starts)


def causal_conv1d(x, weight, bias=None, residual=None, initial_state=None,
                  output_final_state=False, activation=None, cu_seqlens=None,
                  cu_seqlens_cpu=None, cp_context=None, reduce_gradients=False,
                  **more):
    """y_t = act(bias + sum_j weight_j x_{t+j-W+1}) + residual_t, each sequence alone.
    x [B,T,D], weight [D,W], bias [D]; states [N,D,W] hold the last W rows, without
    cp_context alone. Returns y and, if asked for, the final states."""
    if set(more) - {"backend"}:
        raise TypeError(f"{sorted(set(more) - {'backend'})[0]}: found an argument of"
                        " this name, expected those of FLA's function")
    floating("x", x, (None,) * 3, None, "[B, T, D]")
    B, T, D = x.shape
    weight = weight.squeeze(1) if isinstance(weight, torch.Tensor) and \
        weight.dim() == 3 else weight
    floating("weight", weight, (D, None), x, f"[{D}, W]")
    if bias is not None:
        floating("bias", bias, (D,), x)
    if residual is not None:
        floating("residual", residual, (B, T, D), x)
    if activation not in (None, "silu", "swish"):
        raise ValueError(f"activation: found {activation!r}, expected None, 'silu' or"
                         " 'swish'")
    cu, cuts, group = split_of(B, T, cu_seqlens, cu_seqlens_cpu, cp_context, "x")
    W, N = weight.shape[1], len(cu) - 1
    if cp_context is not None and (initial_state is not None or output_final_state):
        raise ValueError("initial_state: found states asked for, expected None with"
                         " cp_context: the rows come from the rank before")
    if initial_state is not None:
        floating("initial_state", initial_state, (N, D, W), x)
    rows, starts = x, cu
    if initial_state is not None:
        rows, starts = _rows_before(x.reshape(B * T, D), initial_state, cu)
    what = starts, cuts, W, bool(activation), bool(reduce_gradients)
    if ops.wanted():
        y = ops.conv(what, group, rows, weight, bias)
    else:
        y = Conv.apply(spec_of(what, group, x), rows, weight, bias)
    if initial_state is not None:
        y = torch.cat([y[starts[n] + W - 1:starts[n + 1]] for n in range(N)])
    y = y.reshape(B, T, D)
    y = y if residual is None else y + residual
    if not output_final_state:
        return y, None
    flat = x.reshape(B * T, D)
    last = x.new_zeros(N, D, W) if initial_state is None else initial_state.to(x.dtype)
    final = [torch.cat([last[n], flat[a:b].t()], 1)[:, -W:]
             for n, (a, b) in enumerate(zip(cu, cu[1:]))]
    return y, torch.stack(final)
