"""ops.py -- the layer as custom ops, which torch.compile can trace.

Book: chapter 08.  Checked by: tests/cli/torch.sh, where PyTorch is 2.4 or newer.
Next: ../train.py.

An op's arguments are tensors, numbers and words: a spec travels as JSON, its group by
name. The fake kernels say shapes and the size of the saved block, by the library's own
word; shapes are static.
"""
import functools
import json

import torch

available = hasattr(torch, "library") and hasattr(torch.library, "register_autograd") \
    and hasattr(torch.library, "register_fake")


def wanted():
    """While torch.compile looks; otherwise the autograd.Function is the shorter way."""
    return available and torch.compiler.is_compiling()


def chunk(spec, inputs):
    from .chunk import Spec                                   # noqa: F401
    name = "" if spec.group is None else spec.group.group_name
    words = json.dumps([spec.split, name, spec.options, spec.whole])
    grad = torch.is_grad_enabled() and any(x is not None and x.requires_grad
                                           for x in inputs)
    o, ht, _ = torch.ops.kcp.chunk_forward(*inputs, words, grad)
    return o, ht


@functools.lru_cache(1024)
def spec_of(words):
    from .chunk import Spec
    (cu, cuts, chunk_, window), name, options, whole = json.loads(words)
    group = None
    if name:
        group = torch.distributed.distributed_c10d._resolve_process_group(name)
    cuts = None if cuts is None else tuple(cuts)
    return Spec((tuple(cu), cuts, chunk_, window), group,
                tuple((k, x) for k, x in options), whole)


if available:
    from torch import Tensor
    from typing import List, Optional, Tuple

    @torch.library.custom_op("kcp::chunk_forward", mutates_args=())
    def chunk_forward(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor,
                      A_log: Optional[Tensor], dt_bias: Optional[Tensor],
                      h0: Optional[Tensor], words: str, keep: bool
                      ) -> Tuple[Tensor, Tensor, Tensor]:
        from .chunk import forward
        o, ht, saved, _ = forward(spec_of(words),
                                  (q, k, v, g, beta, A_log, dt_bias, h0), keep)
        saved = q.new_empty(0, dtype=torch.uint8) if saved is None else saved
        return o, ht, saved

    @chunk_forward.register_fake
    def _(q, k, v, g, beta, A_log, dt_bias, h0, words, keep):
        from .chunk import sizes
        from .core import prepared, storage
        spec = spec_of(words)
        states, options = sizes(spec, q, v)
        call = prepared("forward", storage("q", q)[0], q.device, options, spec.split,
                        spec.group)
        wide = q.dtype == torch.float64 or (h0 is not None and
                                            h0.dtype == torch.float64)
        ht = q.new_empty(states, dtype=torch.float64 if wide else torch.float32)
        saved = q.new_empty(call.saved_bytes if keep else 0, dtype=torch.uint8)
        return torch.empty_like(v).contiguous(), ht, saved

    @torch.library.custom_op("kcp::chunk_backward", mutates_args=())
    def chunk_backward(saved: Tensor, q: Tensor, k: Tensor, v: Tensor, g: Tensor,
                       beta: Tensor, A_log: Optional[Tensor],
                       dt_bias: Optional[Tensor], h0: Optional[Tensor],
                       do: Optional[Tensor], dht: Optional[Tensor], words: str
                       ) -> List[Tensor]:
        from .chunk import backward
        from .core import cast, storage
        inputs = (q, k, v, g, beta, A_log, dt_bias, h0)
        _, act, acc = storage("q", q)
        arrays = [cast(x, d) for x, d in zip(inputs, (act,) * 5 + (acc,) * 3)]
        out = backward(spec_of(words), saved, arrays, do, dht,
                       [None if x is None else x.dtype for x in inputs])
        return [x for x in out if x is not None]

    @chunk_backward.register_fake
    def _(saved, q, k, v, g, beta, A_log, dt_bias, h0, do, dht, words):
        return [x.new_empty(x.shape) for x in (q, k, v, g, beta, A_log, dt_bias, h0)
                if x is not None]

    def _setup(ctx, inputs, output):
        *tensors, words, _ = inputs
        ctx.words = words
        ctx.save_for_backward(output[2], *tensors)

    def _backward(ctx, do, dht, _):
        saved, *tensors = ctx.saved_tensors
        grads = iter(chunk_backward(saved, *tensors, do, dht, ctx.words))
        return tuple(None if x is None else next(grads) for x in tensors) + (None, None)

    torch.library.register_autograd("kcp::chunk_forward", _backward,
                                    setup_context=_setup)
