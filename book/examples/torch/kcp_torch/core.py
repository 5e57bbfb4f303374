"""core.py -- a call of the library, prepared once for its sizes and options.

Book: chapters 08, 13, 14.  Checked by: tests/cli/torch.sh.  Next: chunk.py.

A call's args struct is the same bytes every time but for the arrays' addresses, so it
is made once and copied. On a GPU everything is put on the current stream, memory comes
from PyTorch's allocator, and nothing is waited for.
"""
import ctypes as C
import functools
import struct
import warnings

import torch

from .groups import comm_of
from .library import check, layer_of, lib, member, plan_of, put, size, stage, value


@functools.lru_cache(None)
def said_once(words):
    warnings.warn(words, stacklevel=4)


def storage(name, x):
    """What the library computes in, for a tensor that comes as x: on a CPU double, on a
    GPU the kernels' storage. The rest is cast on the way in and on the way out."""
    if x.device.type == "cpu":
        return "KCP_F64", torch.float64, torch.float64
    if x.device.type != "cuda":
        raise ValueError(f"{name}: found device {x.device}, expected cpu or cuda")
    if x.dtype == torch.bfloat16:
        return "KCP_BF16", torch.bfloat16, torch.float32
    if x.dtype == torch.float64:
        raise ValueError(f"{name}: found {x.dtype} on a GPU, expected bfloat16, float16"
                         " or float32")
    if x.dtype == torch.float16:
        said_once("kcp_torch: float16 has no kernels of its own, float32's are used")
    return "KCP_F32", torch.float32, torch.float32


def floating(name, x, shape, like, letters=None):
    """A tensor of this shape on the same device; a None in shape is any length."""
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{name}: found {type(x).__name__}, expected a tensor")
    if not x.dtype.is_floating_point:
        raise ValueError(f"{name}: found {x.dtype}, expected a floating-point type")
    good = x.dim() == len(shape) and all(b is None or a == b
                                         for a, b in zip(x.shape, shape))
    if not good:
        want = letters or "[" + ", ".join("any" if n is None else str(n)
                                          for n in shape) + "]"
        raise ValueError(f"{name}: found {list(x.shape)}, expected {want}")
    if like is not None and x.device != like.device:
        raise ValueError(f"{name}: found device {x.device}, expected {like.device}")


def split_of(B, T, cu_seqlens, cu_seqlens_cpu, cp_context, names):
    """cu_seqlens of the whole batch as a tuple, the cuts, the group."""
    from .groups import CPContext, boundaries
    if cp_context is not None:
        if not isinstance(cp_context, CPContext):
            raise ValueError(f"cp_context: found {type(cp_context).__name__}, expected"
                             " what kcp_torch.build_cp_context made")
        if B != 1:
            raise ValueError(f"{names}: found a batch of {B}, expected 1 with"
                             " cp_context: pack the sequences")
        mine = cp_context.end - cp_context.begin
        if T != mine:
            raise ValueError(f"{names}: found {T} tokens on rank {cp_context.rank},"
                             f" expected {mine} by cp_context")
        return cp_context.global_cu_seqlens, cp_context.cuts, cp_context.group
    if cu_seqlens is None and cu_seqlens_cpu is None:
        return tuple(range(0, (B + 1) * T, T)) if T else (0,) * (B + 1), None, None
    if B != 1:
        raise ValueError(f"{names}: found a batch of {B}, expected 1 with cu_seqlens")
    named = "cu_seqlens" if cu_seqlens_cpu is None else "cu_seqlens_cpu"
    cu = boundaries(cu_seqlens if cu_seqlens_cpu is None else cu_seqlens_cpu, named)
    if cu[-1] != T:
        raise ValueError(f"{named}: found {cu[-1]} last, expected {T}, the tokens")
    return cu, None, None


class Prepared:
    """One pass of one stage: its bytes, its workspace, its saved block."""

    def __init__(self, pass_, store, cuda, options, split, ranks, comm):
        cu, cuts, chunk, window = split
        name, self.work_of, run = {
            "forward": ("08", "kcp_layer_forward_work", "kcp_layer_forward"),
            "backward": ("13", "kcp_layer_backward_work", "kcp_layer_backward"),
            "conv": ("14", "kcp_layer_conv_work", "kcp_layer_conv")}[pass_]
        self.struct = {"08": "kcp_forward", "13": "kcp_backward"}.get(name)
        self.plan = plan_of(cu, ranks[0], ranks[1], chunk, window, cuts)
        self.layer, self.comm = layer_of(cuda, store), comm
        self.run, self.what = getattr(lib, run), run
        self.bytes, self.at = stage(name)
        self.args = bytearray(self.bytes)
        view = (C.c_char * self.bytes).from_buffer(self.args)
        put("kcp_call", view, **dict(options))
        lib.kcp_layer_call(self.layer.at, view, self.plan.at,
                           C.c_void_p(comm.address if comm else None))
        self.saved_bytes = 0
        if self.struct:
            self.saved_bytes = lib.kcp_layer_saved(self.layer.at, view)
        sizes = lambda: getattr(lib, self.work_of)(self.layer.at, view)
        self.work_bytes = sizes()
        if self.struct:
            put(self.struct, view, saved=64, saved_bytes=self.saved_bytes)
            self.work_bytes = max(self.work_bytes, sizes())
            put(self.struct, view, saved=None, saved_bytes=0)
        del view
        self.stream = member("kcp_call", "stream")[0]
        self.work = member("kcp_call", "work")[0], member("kcp_call", "work_bytes")[0]
        if self.struct:
            self.saved = (member(self.struct, "saved")[0],
                          member(self.struct, "saved_bytes")[0])

    def grid(self, device, stream):
        """The plan's grid as tensors; on a GPU a copy for each stream that reads it."""
        key = (device, stream)
        if key not in self.plan.on:
            made = {}
            for name, x in self.plan.grid.items():
                x = torch.tensor(x, dtype=torch.int32)
                if device.type == "cuda":
                    x = x.pin_memory().to(device, non_blocking=True)
                made[name] = x
            self.plan.on[key] = made
        return self.plan.on[key]

    def __call__(self, device, arrays, saved=None):
        args = bytearray(self.args)
        write = lambda at, x: struct.pack_into("N", args, at, x)
        stream = 0
        if device.type == "cuda":
            stream = torch.cuda.current_stream(device).cuda_stream
        arrays = dict(arrays, **self.grid(device, stream))
        for name, x in arrays.items():
            if x is not None:
                write(self.at[name], x.data_ptr())
        work = torch.empty(self.work_bytes, dtype=torch.uint8, device=device)
        write(self.work[0], work.data_ptr())
        write(self.work[1], self.work_bytes)
        write(self.stream, stream)
        if saved is not None:
            write(self.saved[0], saved.data_ptr())
            write(self.saved[1], saved.numel())
        view = (C.c_char * self.bytes).from_buffer(args)
        if self.comm is None:
            check(self.run(self.layer.at, view), self.what)
        else:
            with self.comm:
                check(self.run(self.layer.at, view), self.what, self.comm)


@functools.lru_cache(1024)
def _prepared(pass_, store, cuda, options, split, ranks, comm):
    return Prepared(pass_, store, cuda, options, split, ranks, comm)


def prepared(pass_, store, device, options, split, group):
    """As above, of what is known of it; made once."""
    ranks, comm = (1, 0), None
    if group is not None:
        ranks, comm = (group.size(), group.rank()), comm_of(group, device)
    return _prepared(pass_, store, device.type == "cuda", options, split, ranks, comm)


def option(**names):
    """Options as a key; a word beginning with KCP_ becomes its number."""
    known = lambda x: value(x) if isinstance(x, str) else x
    return tuple((k, known(x)) for k, x in names.items())


def cast(x, dtype):
    return None if x is None else x.detach().to(dtype).contiguous()
