"""conv.py -- the short convolution, with FLA's signature.

Book: chapter 14.  Checked by: tests/cli/torch.sh.  Next: ops.py.
"""
import torch

from .core import cast, floating, option, prepared, split_of, storage


class Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, split, group, options, whole, x, weight, bias):
        store, act, acc = storage("x", x)
        D, Wc = weight.shape
        ctx.rest = store, split, group, options + (("D", D), ("Wc", Wc)), whole
        ctx.dtypes = [None if t is None else t.dtype for t in (x, weight, bias)]
        arrays = cast(x, act), cast(weight, acc), cast(bias, acc)
        y = torch.empty_like(arrays[0])
        call = prepared("conv", store, x.device,
                        ctx.rest[3] + option(**{"pass": "KCP_FORWARD"}), split, group)
        call(x.device, dict(x=arrays[0], weight=arrays[1], bias=arrays[2], y=y))
        ctx.save_for_backward(*arrays)
        return y.to(x.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        store, split, group, options, whole = ctx.rest
        x, weight, bias = ctx.saved_tensors
        dx, dw = torch.empty_like(x), torch.zeros_like(weight)
        db = None if bias is None else torch.zeros_like(bias)
        call = prepared("conv", store, x.device,
                        options + option(**{"pass": "KCP_BACKWARD"}), split, group)
        call(x.device, dict(x=x, weight=weight, bias=bias, dy=cast(dy, x.dtype),
                            dx=dx, dweight=dw, dbias=db))
        if group is not None and not whole:              # as chunk.py says
            dw, db = [None if t is None else t / group.size() for t in (dw, db)]
        return (None,) * 4 + tuple(None if d is None else t.to(d)
                                   for t, d in zip((dx, dw, db), ctx.dtypes))


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
    options = option(act="KCP_ACT_SILU" if activation else "KCP_ACT_NONE")
    rows, starts = x, cu
    if initial_state is not None:
        rows, starts = _rows_before(x.reshape(B * T, D), initial_state, cu)
    y = Conv.apply((starts, cuts, 64, W), group, options, bool(reduce_gradients), rows,
                   weight, bias)
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
