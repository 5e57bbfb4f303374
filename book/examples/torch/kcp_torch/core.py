"""core.py -- prepares calls of the library, once per set of sizes and options.

Book: chapters 08, 13, 14.

Two calls with equal sizes and options differ only in the addresses of their arrays, so
the args struct is prepared once and copied. On a GPU all work is enqueued on the
current stream, memory comes from PyTorch's allocator, and the host waits only to read a
cu_seqlens tensor. So a CUDA graph can capture a call whose sizes an earlier call had.
"""
import ctypes as C
import functools
import numbers
import operator
import struct
import warnings
from typing import Sequence, Union

import torch

from . import groups
from .library import check, layer_of, lib, member, plan_of, put, shown, stage, value
from .paths import args_of

Boundaries = Union[Sequence[int], torch.Tensor]       # a cu_seqlens


@functools.lru_cache(None)
def said_once(words):
    warnings.warn(words, stacklevel=4)


def truth(name, x):
    """Returns an option that is true or false. A word such as "no" would be true."""
    if x is None or isinstance(x, numbers.Integral) and x in (0, 1) or \
            type(x).__module__ == "numpy" and type(x).__name__ in ("bool", "bool_"):
        return bool(x)
    raise ValueError(f"{name}: found {shown(x)}, expected True or False")


def count(name, x, least, limit=""):
    """Returns a whole number of any type but bool and tensor, as int."""
    if isinstance(x, bool) or not isinstance(x, numbers.Integral) or \
            not least <= x < 2 ** 31:
        raise ValueError(f"{name}: found {shown(x)}, expected a whole number, {least}"
                         f" or more{limit}")
    return int(x)


FLOATING = torch.float64, torch.float32, torch.bfloat16, torch.float16


def storage(name, x):
    """Returns the library's storage for x, the type of tensors, and the type of sums.
    On a CPU both types are double. Tensors of other types are cast."""
    if x.device.type == "cpu":
        return "KCP_F64", torch.float64, torch.float64
    if x.device.type != "cuda":
        raise ValueError(f"{name}: found device {x.device}, expected cpu or cuda")
    if x.dtype == torch.float64:
        raise ValueError(f"{name}: found {x.dtype} on a GPU, expected bfloat16, float16"
                         " or float32")
    if x.dtype == torch.bfloat16:
        return "KCP_BF16", torch.bfloat16, torch.float32
    return "KCP_F32", torch.float32, torch.float32


def floating(name, x, shape, like, letters=None):
    """Checks that x is a floating-point tensor of this shape on the device of `like`.
    None in `shape` allows any length."""
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{name}: found {type(x).__name__}, expected a tensor")
    if x.dtype not in FLOATING:
        raise ValueError(f"{name}: found {x.dtype}, expected a floating-point type of 16,"
                         " 32 or 64 bits")
    if x.layout is not torch.strided or x.is_nested:
        found = "a nested tensor" if x.is_nested else x.layout
        raise ValueError(f"{name}: found {found}, expected a dense tensor")
    good = x.dim() == len(shape) and all(b is None or a == b
                                         for a, b in zip(x.shape, shape))
    if not good:
        want = letters or "[" + ", ".join("any" if n is None else str(n)
                                          for n in shape) + "]"
        raise ValueError(f"{name}: found {list(x.shape)}, expected {want}")
    if like is not None and x.device != like.device:
        raise ValueError(f"{name}: found device {x.device}, expected {like.device}")


def in_memory(**tensors):
    """Rejects tensors without memory of their own, such as a DTensor, or sparse ones."""
    for name, x in tensors.items():
        if x is not None and x.layout is not torch.strided:
            raise ValueError(f"{name}: found {x.layout}, expected a dense tensor")
        if x is not None and x.numel() and not x.data_ptr():
            raise ValueError(f"{name}: found {type(x).__name__} without memory,"
                             " expected a plain tensor, e.g. a DTensor's to_local()")


def split_of(B, T, cu_seqlens, cu_seqlens_cpu, cp_context, names):
    """Returns the batch's cu_seqlens, the cuts (first token per rank) and the group."""
    if cp_context is not None:
        if not isinstance(cp_context, groups.CPContext):
            raise ValueError(f"cp_context: found {type(cp_context).__name__}, expected"
                             " a result of kcp_torch.build_cp_context")
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
    cu = cu_seqlens if cu_seqlens_cpu is None else cu_seqlens_cpu
    if groups.compiling() and isinstance(cu, torch.Tensor) and groups.whole_graph():
        torch.ops.kcp.refuse_tensor(cu)       # raises when the graph runs
        n = cu.shape[0] - 1                   # range makes a symbolic T a number
        return (0,) * n + tuple(range(T, T + 1)), None, None
    cu = groups.boundaries(cu, named)
    if cu[-1] != T:
        raise ValueError(f"{named}: found {cu[-1]} last, expected {T}, the tokens")
    return cu, None, None


# Returns the current stream's address. PyTorch's private function saves time.
_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or \
    (lambda index: torch.cuda.current_stream(index).cuda_stream)
current_gpu = getattr(torch._C, "_cuda_getDevice", None) or torch.cuda.current_device


# Two private functions of PyTorch save time: one allocates without the dispatcher, the
# other compares many tensors in one call. If one is missing, slower code replaces it.
_dynamo = getattr(torch._C, "_dynamo", None)
_guards = getattr(_dynamo, "guards", None)


@functools.lru_cache(1024)
def maker(shape, dtype, device):
    """Returns a function that allocates an uninitialised dense tensor of this shape. If
    `device` is a GPU, this GPU must be the current device."""
    strides, n = [], 1
    for m in reversed(shape):
        strides.insert(0, n)
        n *= max(m, 1)
    made = getattr(_guards, f"_empty_strided_{device.type}", None)
    if made is not None:
        return functools.partial(made, shape, tuple(strides), dtype)
    return functools.partial(torch.empty(0, dtype=dtype, device=device).new_empty,
                             shape)


# kcp_torch has no rules for torch.func's transforms or for forward-mode derivatives.
_transforms = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_forward_mode = torch.autograd.forward_ad
_jit = getattr(torch._C, "_get_tracing_state", lambda: None)


def refuse_transforms():
    if _jit() is not None:                    # the trace would keep this call's numbers
        raise NotImplementedError("kcp_torch: found torch.jit.trace, expected"
                                  " torch.compile or torch.export")
    if _transforms() or _forward_mode._current_level >= 0:
        raise NotImplementedError("kcp_torch: found a transform of torch.func or a"
                                  " forward-mode derivative, expected only backward")


def shortest(function):
    """Returns function.apply without PyTorch's test for torch.func's transforms."""
    if hasattr(torch._C, "_are_functorch_transforms_active"):
        return super(torch.autograd.Function, function).apply
    return function.apply


def refuse_second(ctx, *_):
    raise RuntimeError("kcp_torch: found a second derivative, expected first"
                       " derivatives only: compute it with a PyTorch reference")


class Anchor(torch.autograd.Function):
    """Returns an empty tensor that depends on the inputs without saving the inputs."""
    @staticmethod
    def forward(ctx, *inputs):
        return torch.empty(0)

    backward = staticmethod(refuse_second)


class FirstOnly(torch.autograd.Function):
    """Returns the first n tensors. Backward through these tensors raises an error."""
    @staticmethod
    def forward(ctx, n, *tensors):
        return tuple(t.detach() for t in tensors[:n])

    backward = staticmethod(refuse_second)


def anchor(inputs, arrays):
    """Returns a tensor that depends on every input outside `arrays`, or None if there
    is no such input. first_only needs this tensor, because `arrays` may have a cast
    copy of an input, and autograd does not connect the copy to the input."""
    kept = set(map(id, arrays))
    lost = [x for x in inputs
            if x is not None and x.requires_grad and id(x) not in kept]
    if not lost:
        return None
    with torch.enable_grad():
        return Anchor.apply(*lost)


def first_only(grads, *sources):
    """Returns the gradients of a backward pass. With create_graph the returned tensors
    depend on all sources, so that every second derivative raises an error."""
    if not torch.is_grad_enabled():
        return grads
    given = [t for t in grads if t is not None]
    out = iter(FirstOnly.apply(len(given), *given,
                               *(t for t in sources if t is not None)))
    return [None if t is None else next(out) for t in grads]


class Alike:
    """Remembers the properties (types, sizes, strides, devices, requires_grad) of at most
    KINDS sets of tensors. Tensors with equal properties need no checks, casts or copies."""
    KINDS = 4

    def __init__(self):
        self.seen = []

    def remember(self, tensors):
        known = getattr(_guards, "TensorGuards", None)
        if known is None or len(self.seen) == self.KINDS or \
                not all(x.numel() for x in tensors):
            return
        check = known(*tensors, dynamic_dims_sizes=None,
                      dynamic_dims_strides=None).check
        if check(*tensors):                   # false if a tensor occurs twice
            self.seen.append(check)

    def __call__(self, tensors):
        """Returns the addresses of the tensors, or None if no earlier set matches or an
        address is not a multiple of 16 bytes."""
        for x in tensors:
            if x.is_nested:                   # check() would abort the process
                return None
        for check in self.seen:
            if check(*tensors):
                places = [x.data_ptr() for x in tensors]
                return None if functools.reduce(operator.or_, places) & 15 else places
        return None


class Prepared:
    """A prepared pass of a stage on one device: the bytes of the args struct, and the
    sizes of the workspace and of the block that forward saves for backward.

    Member args->work and all later members are addresses and sizes of eight bytes, so
    one call of `pack` writes them. `names`: the arrays, in the order of their
    addresses in a call."""

    def __init__(self, pass_, store, device, options, split, ranks, comm, local, names):
        cu, cuts, chunk, window = split
        name = {"forward": "08", "backward": "13", "conv": "14"}[pass_]
        self.work_of, run = f"kcp_layer_{pass_}_work", f"kcp_layer_{pass_}"
        self.struct = f"kcp_{pass_}"
        self.plan = plan_of(cu, ranks[0], ranks[1], chunk, window, cuts)
        self.layer, self.comm = layer_of(device.type == "cuda", store), comm
        self.run, self.what = getattr(lib, run), run
        self.bytes, at = stage(name)
        self.view = C.c_char * self.bytes
        self.device, self.gpu, self.index = device, device.type == "cuda", device.index
        args, view = args_of(pass_, self.layer, options, self.plan, comm, names)
        if local and pass_ != "forward":      # sums gradients over this rank's tokens
            put("kcp_call", view, part=value("KCP_SUM_LOCAL"))
        self.saved_bytes = 0
        if pass_ != "conv":
            self.saved_bytes = lib.kcp_layer_saved(self.layer.at, view)
        sizes = lambda: getattr(lib, self.work_of)(self.layer.at, view)
        self.work_bytes = sizes()
        if pass_ != "conv":
            put(self.struct, view, saved=64, saved_bytes=self.saved_bytes)
            with_block = sizes()
            # Backward always has a saved block. Forward has a block only if gradients
            # are needed, so forward's workspace must suffice with and without a block.
            self.work_bytes = (with_block if pass_ == "backward"
                               else max(self.work_bytes, with_block))
            put(self.struct, view, saved=None, saved_bytes=0)
        del view
        self.args = bytes(args)
        first, ends = member("kcp_call", "work")[0], list(at.values())
        if pass_ != "conv":
            ends.append(member(self.struct, "saved_bytes")[0])
        slot = lambda offset: (offset - first) // 8
        n = slot(max(ends)) + 1
        self.head, self.tail = self.args[:first], self.args[first + 8 * n:]
        self.pack = struct.Struct(f"={first}s{n}Q{len(self.tail)}s").pack
        self.blank = [0] * n
        self.blank[1] = self.work_bytes
        self.slots = [slot(at[x]) for x in names]
        start, end = self.slots[0], self.slots[0] + len(names)
        self.straight = slice(start, end) if self.slots == list(range(start, end)) \
            else None                         # consecutive slots
        self.stream = slot(member("kcp_call", "stream")[0])
        if pass_ != "conv":
            self.saved = slot(member(self.struct, "saved")[0])
        self.at, self.arrived, self.slot_of = at, False, slot
        self.event = self.kept = self.work = self.block = None

    def grid(self):
        """Writes the addresses of the plan's grid (arrays cu, cn, sc) into the
        list `blank`. Copies the grid to the GPU; other streams wait for this copy."""
        capturing = self.gpu and torch.cuda.is_current_stream_capturing()
        if self.work is None:                 # torch.compile may trace __init__
            self.work = maker((self.work_bytes,), torch.uint8, self.device)
            self.block = maker((self.saved_bytes,), torch.uint8, self.device)
        if self.kept is None:
            if capturing:
                raise RuntimeError("kcp_torch: found new sizes during a graph capture,"
                                   " expected the sizes of an earlier call")
            kept = {}
            for name, x in self.plan.grid.items():
                x = torch.tensor(x, dtype=torch.int32)
                if self.gpu:
                    x = x.pin_memory().to(self.device, non_blocking=True)
                kept[name] = x
            if self.gpu:
                self.event = torch.cuda.Event()
                self.event.record()
            for name, x in kept.items():
                self.blank[self.slot_of(self.at[name])] = x.data_ptr()
            self.kept = kept
        # A graph capture begins after earlier work has ended, so the grid has arrived.
        if not self.gpu or capturing or self.event.query():
            self.arrived = True
        else:
            torch.cuda.current_stream(self.device).wait_event(self.event)

    def __call__(self, places, keep=False, saved=None):
        """Runs the pass. `places` has each array's address, or 0 if empty. Returns
        the block saved for backward: a new block if `keep`, else `saved`."""
        gpu = self.gpu
        if gpu and self.index != current_gpu():
            with torch.cuda.device(self.device):
                return self(places, keep, saved)
        if not self.arrived:
            self.grid()
        if keep:
            saved = self.block()
        slots = self.blank.copy()
        if self.straight:
            slots[self.straight] = places
        else:
            for at, place in zip(self.slots, places):
                slots[at] = place
        work = self.work()
        slots[0] = work.data_ptr()
        if gpu:
            slots[self.stream] = _stream(self.index)
        if saved is not None:
            slots[self.saved] = saved.data_ptr()
            slots[self.saved + 1] = self.saved_bytes
        args = self.pack(self.head, *slots, self.tail)
        if self.comm is None:
            status = self.run(self.layer.at, args)
        else:
            with self.comm:
                status = self.run(self.layer.at, args)
        if status:
            check(status, self.what, self.comm)
        return saved


class Spec:
    """A checked call, without its arrays, and the prepared passes of this call. `split`
    has cu_seqlens of the whole batch, the cuts, the chunk size and the window size. If
    `whole` is true, gradients of parameters are summed over all ranks."""

    def __init__(self, split, group, options, whole, device):
        self.split, self.group, self.options = split, group, options
        self.whole, self.device, self.calls, self.era = whole, device, {}, groups.era()

    def call(self, pass_, store, names, more=()):
        """Returns the prepared pass for the arrays `names` with the options `more`."""
        if self.era != groups.era():          # communicators were released
            self.calls, self.era = {}, groups.era()
        made = self.calls.get((pass_, names, more))
        if made is None:
            ranks, comm = (1, 0), None
            if self.group is not None:
                ranks = self.group.size(), self.group.rank()
                comm = groups.comm_of(self.group, self.device)
            made = Prepared(pass_, store, self.device, self.options + more, self.split,
                            ranks, comm, not self.whole, names)
            self.calls[pass_, names, more] = made
        return made


def option(**names):
    """Returns options as a hashable tuple. Each string must name an
    enum constant, and becomes the constant's number."""
    known = lambda x: value(x) if isinstance(x, str) else x
    return tuple((k, known(x)) for k, x in names.items())


def cast(x, dtype):
    """Returns x as the kernels need it: of this type, dense and aligned to 16 bytes."""
    if x is None:
        return None
    if x.dtype is not dtype or not x.is_contiguous() or x.is_neg():
        x = x.to(dtype).contiguous().resolve_neg()
    return x.clone() if x.data_ptr() & 15 else x


def placed(tensors, dtypes):
    """Casts all tensors of a call as `cast` does; also returns the addresses of all
    tensors that are not None."""
    arrays = [cast(x, dtype) for x, dtype in zip(tensors, dtypes)]
    return arrays, [x.data_ptr() for x in arrays if x is not None]
