"""conv.py -- the short convolution, with FLA's signature.

Book: chapter 14.
"""
import functools
from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from . import groups, ops
from .core import (Alike, Boundaries, Spec, anchor, cast, count, first_only, floating,
                   in_memory, option, refuse_transforms, said_once, shortest, split_of,
                   storage, truth)

FORWARD, BACKWARD = (option(**{"pass": x}) for x in ("KCP_FORWARD", "KCP_BACKWARD"))


def call_of(spec, which, store, **arrays):
    """Prepares and runs a pass on the arrays that are not None."""
    given = {n: t for n, t in arrays.items() if t is not None}
    call = spec.call("conv", store, tuple(given), which)
    call([t.data_ptr() for t in given.values()])


class Oldest:
    """Copies column 0 of FLA's states [N,D,W]. The output needs no column 0, so the
    library's states [N,W-1,D] lack it. Column 0 of a final state is the W-th row of x
    from the sequence's end, or a column of the initial state if there are fewer rows.
    With cp_context column 0 is 0, because that row may be on another rank."""

    def __init__(self, cu, W, device):
        ends = tuple(enumerate(zip(cu, cu[1:])))
        index = lambda x: torch.tensor(x, dtype=torch.int64).to(device)
        far = [n for n, (a, b) in ends if b - a >= W]
        self.far, self.rows = index(far), index([cu[n + 1] - W for n in far])
        short = {L: [n for n, (a, b) in ends if b - a == L] for L in range(W)}
        self.short = [(index(n), L) for L, n in short.items() if n]

    def read(self, final, x, state):
        final[self.far, :, 0] = x.reshape(-1, x.shape[-1])[self.rows]
        for n, L in self.short:
            final[n, :, 0] = 0 if state is None else state[n, :, L]

    def write(self, dfinal, dx, dstate):
        flat = dx.view(-1, dx.shape[-1])
        flat[self.rows] = flat[self.rows] + dfinal[self.far, :, 0]
        for n, L in self.short if dstate is not None else ():
            dstate[n, :, L] = dstate[n, :, L] + dfinal[n, :, 0]


class Convolution(Spec):
    @property
    def N(self):
        return len(self.split[0]) - 1

    @functools.cached_property
    def oldest(self):
        return Oldest(self.split[0], self.split[3], self.device)


def forward(spec, x, weight, bias, state, final):
    """Returns y, the final states [N,D,W] or None, and the arrays for backward."""
    store, act, acc = storage("x", x)
    if x.dtype == torch.float16 and x.device.type == "cuda":
        said_once("kcp_torch: x is float16: there are no float16 kernels, so the slower"
                  " float32 kernels run; bfloat16 has fast kernels")
    x_, state_ = cast(x, act), cast(state, act)
    arrays = x_, cast(weight, acc), cast(bias, acc), state_
    y, reach = torch.empty_like(x_), arrays[1].shape[1] - 1
    x0 = cast(state_[:, :, 1:].transpose(1, 2), act) if reach and state is not None \
        else None
    xt = x_.new_zeros(spec.N, reach, x.shape[-1]) if reach and final else None
    call_of(spec, FORWARD, store, x=x_, weight=arrays[1], bias=arrays[2], x0=x0,
            y=y, xt=xt)
    last = None
    if final:
        last = x_.new_zeros(spec.N, x.shape[-1], reach + 1)
        if reach:
            last[:, :, 1:] = xt.transpose(1, 2)
        if spec.group is None:
            spec.oldest.read(last, x_, state_)
        last = last.to(x.dtype)
    return y.to(x.dtype), last, arrays


def backward(spec, store, arrays, dy, dlast, dtypes):
    """Returns the gradients of x, weight, bias and the initial states, each in its
    input's type."""
    x, weight, bias, state = arrays
    reach, dx, dw = weight.shape[1] - 1, torch.empty_like(x), torch.zeros_like(weight)
    db = None if bias is None else torch.zeros_like(bias)
    turned = lambda s: cast(s[:, :, 1:].transpose(1, 2), x.dtype) \
        if reach and s is not None else None
    x0, dlast = turned(state), cast(dlast, x.dtype)
    dx0 = None if x0 is None else torch.zeros_like(x0)
    dy = torch.zeros_like(x) if dy is None else cast(dy, x.dtype)
    call_of(spec, BACKWARD, store, x=x, weight=weight, bias=bias, x0=x0,
            dy=dy, dxt=turned(dlast), dx=dx, dweight=dw, dbias=db, dx0=dx0)
    dstate = None if state is None else torch.zeros_like(state)
    if dx0 is not None:
        dstate[:, :, 1:] = dx0.transpose(1, 2)
    if dlast is not None and spec.group is None:
        spec.oldest.write(dlast, dx, dstate)
    return [None if d is None else t.to(d)
            for t, d in zip((dx, dw, db, dstate), dtypes)]


class Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, spec, final, *inputs):
        y, last, arrays = forward(spec, *inputs, final)
        ctx.rest = (spec, storage("x", inputs[0])[0],
                    [None if t is None else t.dtype for t in inputs])
        ctx.save_for_backward(*arrays)
        ctx.anchor = anchor(inputs, arrays)
        ctx.set_materialize_grads(False)
        return (y, last) if final else y

    @staticmethod
    def backward(ctx, dy, dlast=None):
        spec, store, dtypes = ctx.rest
        arrays = ctx.saved_tensors
        with torch.no_grad():
            out = backward(spec, store, arrays, dy, dlast, dtypes)
        return (None, None, *first_only(out, dy, dlast, ctx.anchor, *arrays))


_apply = shortest(Conv)
_known = groups.Cache()                       # as in chunk.py
_latest = groups.Cache()                      # the last call of each kind


def spec_of(what, group, x):
    D = int(x.shape[-1])                      # torch.compile may pass a symbolic size
    key = what, group, D, x.dtype, x.device
    spec = _known.get(key)
    if spec is None:
        starts, cuts, W, silu, whole = what
        options = option(act="KCP_ACT_SILU" if silu else "KCP_ACT_NONE",
                         D=D, Wc=W)
        spec = Convolution((starts, cuts, 64, W), group, options, whole, x.device)
        _known[key] = spec
    return spec


def causal_conv1d(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None,
                  residual: Optional[Tensor] = None,
                  initial_state: Optional[Tensor] = None,
                  output_final_state: bool = False, activation: Optional[str] = None,
                  backend: Optional[str] = None,
                  cu_seqlens: Optional[Boundaries] = None,
                  cu_seqlens_cpu: Optional[Boundaries] = None,
                  chunk_indices: Any = None,
                  cp_context: Optional[groups.CPContext] = None,
                  reduce_gradients: bool = False,
                  **more: Any) -> Tuple[Tensor, Optional[Tensor]]:
    """The causal convolution of each channel and sequence: `y_t = act(bias + sum_j
    weight_j x_(t+j-W+1)) + residual_t`.

    - `x` and `residual` [B, T, D], `weight` [D, W] or [D, 1, W], `bias` [D]: types as
      in `chunk_kda`, on one device. `activation`: None, `silu` or `swish`.
    - `initial_state` [N, D, W]: the W rows before each sequence, of which the output
      needs the last W - 1.
    - `cu_seqlens`, `cu_seqlens_cpu`, `cp_context`: as for `chunk_kda`.
    - `reduce_gradients`: every rank gets the gradients of `weight` and `bias` summed
      over ranks.
    - `backend`, `chunk_indices`: not read; accepted because FLA has these arguments.

    Returns `y` [B, T, D] in the type of x and, with `output_final_state`, the final
    states [N, D, W] (column 0 is 0 with `cp_context`), else None. The errors are as in
    `chunk_kda`.

    >>> x = torch.tensor([[[1.], [2.], [3.]]])
    >>> y, last = causal_conv1d(x, torch.tensor([[10., 1.]]), output_final_state=True)
    >>> y.flatten(), last
    (tensor([ 1., 12., 23.]), tensor([[[2., 3.]]]))
    """
    if more:
        raise TypeError(f"{sorted(more)[0]}: unknown argument")
    if backend is not None and not isinstance(backend, str):
        raise ValueError(f"backend: found {type(backend).__name__}, expected FLA's"
                         " word, which is not read")
    final, inputs = output_final_state, (x, weight, bias, initial_state)
    if type(final) is not bool:
        final = truth("output_final_state", final)
    every = [t for t in (*inputs, residual) if t is not None]
    spec = kind = None
    if not ops.wanted():                      # no checks if an earlier call matches
        refuse_transforms()
        where = groups.where_of(cu_seqlens, cu_seqlens_cpu, cp_context)
        try:
            kind = (where, activation, reduce_gradients, bias is None,
                    initial_state is None, residual is None)
            spec, alike = _latest.get(kind, (None, None))
            if spec is not None and alike(every) is None:
                spec = None
        except (AttributeError, TypeError):   # an input is no tensor
            spec = None
    if spec is None:
        what, group = checked(x, weight, bias, residual, initial_state, activation,
                              (cu_seqlens, cu_seqlens_cpu, cp_context),
                              reduce_gradients)
    if weight.dim() == 3:
        weight = weight.squeeze(1)
        inputs = x, weight, bias, initial_state
    if ops.wanted():
        out = ops.conv(what, group, final, inputs)
    else:
        if spec is None:
            in_memory(x=x, weight=weight, bias=bias, residual=residual,
                      initial_state=initial_state)
            spec = spec_of(what, group, x)
            of, alike = _latest.get(kind, (None, None))
            if of is not spec:
                alike = Alike()
                _latest[kind] = spec, alike
            alike.remember(every)
        if torch.is_grad_enabled() and any(t.requires_grad for t in every):
            out = _apply(spec, final, *inputs)
        else:
            out = forward(spec, *inputs, final)[:2]
            out = out if final else out[0]
    y, last = out if final else (out, None)
    return y if residual is None else y + residual, last


def checked(x, weight, bias, residual, initial_state, activation, split, whole):
    """Checks every shape and type; the error names the first wrong argument."""
    floating("x", x, (None,) * 3, None, "[B, T, D]")
    B, T, D = x.shape
    if isinstance(weight, torch.Tensor) and weight.dim() == 3:
        weight = weight.squeeze(1)
    floating("weight", weight, (D, None), x, f"[{D}, W]")
    if not weight.shape[1]:
        raise ValueError(f"weight: found {list(weight.shape)}, expected 1 column or"
                         " more")
    if bias is not None:
        floating("bias", bias, (D,), x)
    if residual is not None:
        floating("residual", residual, (B, T, D), x)
    if activation not in (None, "silu", "swish"):
        raise ValueError(f"activation: found {activation!r}, expected None, 'silu' or"
                         " 'swish'")
    whole = truth("reduce_gradients", whole)
    cu, cuts, group = split_of(B, T, *split, "x")
    W, N = weight.shape[1], len(cu) - 1
    if initial_state is not None:
        floating("initial_state", initial_state, (N, D, W), x)
    return (cu, cuts, W, bool(activation), whole), group


class ShortConvolution(torch.nn.Conv1d):
    """A module that calls `causal_conv1d` with a trained weight [D, 1, W] and bias [D],
    like FLA's layer of the same name.

    - `hidden_size`: D. `kernel_size`: W. `activation`: None, `silu` or `swish`.
    - The module is called with `x` [B, T, D]. Optional: `mask` [B, T], 0 where a token
      is padding; `cache` [N, D, W]; `cu_seqlens`, `cu_seqlens_cpu` or `cp_context` as
      for `causal_conv1d`.

    The call returns y and, with `output_final_state`, the next cache, else None. A
    decoding step (one token per sequence, no gradients) also updates `cache` in place.

    >>> layer = ShortConvolution(8, 4)
    >>> y, cache = layer(torch.ones(2, 5, 8), output_final_state=True)
    >>> y.shape, cache.shape
    (torch.Size([2, 5, 8]), torch.Size([2, 8, 4]))
    """

    def __init__(self, hidden_size: int, kernel_size: int, bias: bool = False,
                 activation: Optional[str] = "silu", backend: Optional[str] = None,
                 device: Any = None, dtype: Optional[torch.dtype] = None) -> None:
        hidden_size = count("hidden_size", hidden_size, 1)
        kernel_size = count("kernel_size", kernel_size, 1)
        if dtype is not None and not getattr(dtype, "is_floating_point", False):
            raise ValueError(f"dtype: found {dtype!r:.40}, expected a floating-point"
                             " type")
        super().__init__(hidden_size, hidden_size, kernel_size, groups=hidden_size,
                         bias=truth("bias", bias), padding=kernel_size - 1,
                         device=device, dtype=dtype)
        if activation not in (None, "silu", "swish"):
            raise ValueError(f"activation: found {activation!r}, expected None, 'silu'"
                             " or 'swish'")
        self.hidden_size, self.activation, self.backend = \
            hidden_size, activation, backend

    def forward(self, x: Tensor, residual: Optional[Tensor] = None,
                mask: Optional[Tensor] = None, cache: Optional[Tensor] = None,
                output_final_state: bool = False,
                cu_seqlens: Optional[Boundaries] = None, chunk_indices: Any = None,
                **more: Any) -> Tuple[Tensor, Optional[Tensor]]:
        floating("x", x, (None, None, self.hidden_size), None,
                 f"[B, T, {self.hidden_size}]")
        if mask is not None:
            if any(n in more for n in ("cp_context", "cu_seqlens_cpu")) or \
                    cu_seqlens is not None:
                raise ValueError("mask: found a mask with packed sequences, expected"
                                 " None: packed sequences have no padding")
            if not isinstance(mask, torch.Tensor) or mask.shape != x.shape[:2] or \
                    mask.device != x.device:
                found = f"{list(mask.shape)} on {mask.device}" \
                    if isinstance(mask, torch.Tensor) else type(mask).__name__
                raise ValueError(f"mask: found {found}, expected {list(x.shape[:2])} on"
                                 f" {x.device}")
            x = x * mask.unsqueeze(-1).to(x.dtype)
        if cache is not None:
            floating("cache", cache, (None, self.hidden_size, self.kernel_size[0]), x)
        step = cache is not None and x.shape[0] * x.shape[1] == cache.shape[0] and \
            "cp_context" not in more and not torch.is_grad_enabled()
        y, last = causal_conv1d(x, self.weight, self.bias, residual, cache,
                                output_final_state or step, self.activation,
                                cu_seqlens=cu_seqlens, **more)
        if step:
            cache.copy_(last)
        return y, last if output_final_state else None

    @property
    def state_size(self) -> int:
        return self.hidden_size * self.kernel_size[0]
