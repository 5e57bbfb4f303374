"""ops.py -- defines layer and convolution as custom ops, which torch.compile can trace.

Book: chapter 08.

An op takes tensors and a string; a forward op also takes a bool. The string is a tuple
of the call's other arguments and the process group's name. The fake kernels return the
outputs' shapes; the library gives the saved block's size. Shapes are static.
"""
import ast

import torch

from . import groups
from .core import cast, refuse_second

available = hasattr(torch, "library") and hasattr(torch.library, "register_autograd") \
    and hasattr(torch.library, "register_fake")


_mode = getattr(torch._C, "_get_dispatch_mode", None) or (lambda key: None)
_proxy = getattr(getattr(torch._C, "_TorchDispatchModeKey", None), "PROXY", None)


def wanted():
    """Returns True if PyTorch has such ops and torch.compile or make_fx traces. If
    False, calls use the autograd.Function, which is faster than an op."""
    return available and (torch.compiler.is_compiling() or _mode(_proxy) is not None)


def chunk(all_, cu, cuts, group, inputs):
    name = "" if group is None else group.group_name
    words = f"{(all_, tuple(cu), cuts, name)}"
    grad = torch.is_grad_enabled() and any(x is not None and x.requires_grad
                                           for x in inputs)
    o, ht, _ = torch.ops.kcp.chunk_forward(*inputs, words, grad)
    return o, ht


def conv(what, group, final, inputs):
    name = "" if group is None else group.group_name
    out = torch.ops.kcp.conv_forward(*inputs, f"{(what, name)}", final)
    return out if final else out[0]


def group_of(name):
    """Returns the process group of this name; None for ""."""
    if not name:
        return None
    return torch.distributed.distributed_c10d._resolve_process_group(name)


_sites = groups.Cache()


def site_of(words, inputs):
    """Returns a call's Site (chunk.py) from the op's string and tensors. Fake tensors
    suffice, because a fake tensor has the device of the real tensor."""
    from .chunk import Options, Site, plain
    key = (words,) + tuple(None if x is None else (plain(x.shape), x.dtype, x.device)
                           for x in inputs)
    site = _sites.get(key)
    if site is None:
        all_, cu, cuts, name = ast.literal_eval(words)
        site = Site(Options(all_), cu, cuts, group_of(name), inputs)
        _sites[key] = site
    return site


if available:
    from torch import Tensor
    from typing import List, Optional, Tuple

    @torch.library.custom_op("kcp::refuse_tensor", mutates_args=("cu",))
    def refuse_tensor(cu: Tensor) -> None:    # mutates_args keeps the op in the graph
        raise ValueError("cu_seqlens: found a tensor under torch.compile with"
                         " fullgraph=True: give cu_seqlens_cpu as a list")

    refuse_tensor.register_fake(lambda cu: None)

    @torch.library.custom_op("kcp::chunk_forward", mutates_args=())
    def chunk_forward(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor,
                      A_log: Optional[Tensor], dt_bias: Optional[Tensor],
                      h0: Optional[Tensor], words: str, keep: bool
                      ) -> Tuple[Tensor, Tensor, Tensor]:
        inputs = q, k, v, g, beta, A_log, dt_bias, h0
        site = site_of(words, inputs)
        inputs = inputs[:5] + site.parameters(A_log, dt_bias) + (h0,)
        o, ht, saved, _ = site.forward(inputs, keep)
        saved = q.new_empty(0, dtype=torch.uint8) if saved is None else saved
        return o, ht, saved

    @chunk_forward.register_fake
    def _(q, k, v, g, beta, A_log, dt_bias, h0, words, keep):
        site = site_of(words, (q, k, v, g, beta, A_log, dt_bias, h0))
        ht = q.new_empty(site.states, dtype=site.wide)
        saved = q.new_empty(site.prepared().saved_bytes if keep else 0,
                            dtype=torch.uint8)
        return v.new_empty(v.shape), ht, saved

    @torch.library.custom_op("kcp::chunk_backward", mutates_args=())
    def chunk_backward(saved: Tensor, q: Tensor, k: Tensor, v: Tensor, g: Tensor,
                       beta: Tensor, A_log: Optional[Tensor],
                       dt_bias: Optional[Tensor], h0: Optional[Tensor],
                       do: Optional[Tensor], dht: Optional[Tensor], words: str
                       ) -> List[Tensor]:
        kept = (q, k, v, g, beta, A_log, dt_bias, h0)
        site = site_of(words, kept)
        inputs = kept[:5] + site.parameters(A_log, dt_bias) + (h0,)
        arrays = [cast(x, t) for x, t in zip(inputs, site.types)]
        out = site.backward(saved, arrays, do, dht)
        return [x.reshape(y.shape) for x, y in zip(out, kept) if x is not None]

    @chunk_backward.register_fake
    def _(saved, q, k, v, g, beta, A_log, dt_bias, h0, do, dht, words):
        return [x.new_empty(x.shape) for x in (q, k, v, g, beta, A_log, dt_bias, h0)
                if x is not None]

    torch.library.register_autograd("kcp::chunk_backward", refuse_second)

    def _setup(ctx, inputs, output):
        *tensors, words, _ = inputs
        ctx.words = words
        ctx.save_for_backward(output[2], *tensors)

    def _backward(ctx, do, dht, _):
        saved, *tensors = ctx.saved_tensors
        if not saved.numel():
            raise RuntimeError("kcp_torch: found a graph that was traced without"
                               " gradients, expected inputs with requires_grad=True")
        grads = iter(chunk_backward(saved, *tensors, do, dht, ctx.words))
        return tuple(None if x is None else next(grads) for x in tensors) + (None, None)

    torch.library.register_autograd("kcp::chunk_forward", _backward,
                                    setup_context=_setup)

    def _conv_spec(words, x):
        from .conv import spec_of as conv_spec
        what, name = ast.literal_eval(words)
        return conv_spec(what, group_of(name), x)

    @torch.library.custom_op("kcp::conv_forward", mutates_args=())
    def conv_forward(x: Tensor, weight: Tensor, bias: Optional[Tensor],
                     state: Optional[Tensor], words: str, final: bool
                     ) -> Tuple[Tensor, Tensor]:
        from .conv import forward
        y, last, _ = forward(_conv_spec(words, x), x, weight, bias, state, final)
        return y, x.new_empty(0) if last is None else last

    @conv_forward.register_fake
    def _(x, weight, bias, state, words, final):
        N = len(ast.literal_eval(words)[0][0]) - 1
        return x.new_empty(x.shape), \
            x.new_empty((N, *weight.shape) if final else (0,))

    @torch.library.custom_op("kcp::conv_backward", mutates_args=())
    def conv_backward(x: Tensor, weight: Tensor, bias: Optional[Tensor],
                      state: Optional[Tensor], dy: Optional[Tensor],
                      dlast: Optional[Tensor], words: str) -> List[Tensor]:
        from .conv import backward, storage
        store, act, acc = storage("x", x)
        arrays = cast(x, act), cast(weight, acc), cast(bias, acc), cast(state, act)
        out = backward(_conv_spec(words, x), store, arrays, dy, dlast,
                       [None if t is None else t.dtype
                        for t in (x, weight, bias, state)])
        return [t for t in out if t is not None]

    @conv_backward.register_fake
    def _(x, weight, bias, state, dy, dlast, words):
        return [t.new_empty(t.shape) for t in (x, weight, bias, state)
                if t is not None]

    torch.library.register_autograd("kcp::conv_backward", refuse_second)

    def _conv_setup(ctx, inputs, output):
        *tensors, ctx.words, ctx.final = inputs
        ctx.save_for_backward(*tensors)

    def _conv_back(ctx, dy, dlast):
        tensors = ctx.saved_tensors
        grads = iter(conv_backward(*tensors, dy, dlast if ctx.final else None,
                                   ctx.words))
        return tuple(None if x is None else next(grads) for x in tensors) + (None, None)

    torch.library.register_autograd("kcp::conv_forward", _conv_back,
                                    setup_context=_conv_setup)
