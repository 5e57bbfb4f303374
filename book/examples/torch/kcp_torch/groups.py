"""groups.py -- makes struct kcp_comm, the library's communicator, from a process group;
defines the context of context parallelism (CP).

Book: chapter 20.

On CPUs each function of kcp_comm calls torch.distributed, so that any backend for host
memory works. On GPUs, if PyTorch gives the address of the group's NCCL communicator,
the library uses that communicator, which PyTorch aborts after a failure (ref/comm.h).
If PyTorch gives no address, this file creates a communicator for the group. On GPUs the
ranks compare their calls through the store of torch.distributed, because a comparison over
NCCL would wait for the GPU whenever a batch has new boundaries.
"""
import atexit
import copy
import ctypes as C
import gc
import operator
import os
import threading
import time
import warnings
import weakref
from typing import Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist

from .library import check, lib, member, plan_of, put, shown, size, value

P, I, Z = C.c_void_p, C.c_int, C.c_size_t
GATHER = C.CFUNCTYPE(I, P, P, P, Z, P)
PAIR = C.CFUNCTYPE(I, P, P, Z, I, P)
GROUP = C.CFUNCTYPE(I, P, I)
BARRIER = C.CFUNCTYPE(I, P, P)
FAIL = C.CFUNCTYPE(None, P, I, C.c_char_p)
LOST = C.CFUNCTYPE(I, P, P, P, Z)
FREE = C.CFUNCTYPE(None, P)


def _memory(at, n):
    return torch.frombuffer((C.c_ubyte * n).from_address(at), dtype=torch.uint8)


class HostComm:
    """Callbacks for the library on CPUs. `lock` is held during a call of the library,
    so that calls do not overlap."""

    def __init__(self, group):
        self.group, self.lock = group, threading.RLock()
        self.pending, self.deep, self.error, self.said = [], False, None, ""
        R, r = dist.get_world_size(group), dist.get_rank(group)
        # torch.distributed's send and receive take global ranks.
        to_global = getattr(dist, "get_global_rank", None) or \
            dist.distributed_c10d._get_global_rank
        self.peer = [to_global(group, i) for i in range(R)]
        self.R = R
        self.calls = {
            "all_gather": GATHER(self._all_gather), "send": PAIR(self._send),
            "recv": PAIR(self._recv), "group": GROUP(self._grouped),
            "barrier": BARRIER(self._barrier), "fail": FAIL(self._fail),
            "lost": LOST(self._lost), "free": FREE(lambda _: None)}
        self.calls["show"] = self.calls["all_gather"]   # compares the ranks' plans
        self.name = C.c_char_p(b"torch")
        self.at = C.create_string_buffer(size("kcp_comm"))
        put("kcp_comm", self.at, R=R, r=r, backend=C.cast(self.name, P).value,
            **{n: C.cast(f, P).value for n, f in self.calls.items()})
        self.address = C.addressof(self.at)

    def __enter__(self):
        self.lock.acquire()
        self.pending, self.deep, self.error, self.said = [], False, None, ""

    def __exit__(self, *_):
        self.lock.release()

    def reason(self):
        return (f": {self.said}" if self.said else ""), self.error

    def _try(self, work):
        """Runs work(); returns a status. Saves exceptions, which cannot pass through C."""
        if self.error:
            return value("KCP_COMM")
        try:
            work()
            return 0
        except BaseException as e:
            self.error, self.said = e, str(e).splitlines()[0] if str(e) else repr(e)
            return value("KCP_COMM")

    def _all_gather(self, _, mine, all_, n, stream):
        return self._try(lambda: n and dist.all_gather(
            list(_memory(all_, n * self.R).split(n)), _memory(mine, n),
            group=self.group))

    def _post(self, how, at, n, rank):
        def work():
            if n:
                self.pending.append(how(_memory(at, n), self.peer[rank],
                                        group=self.group))
            if not self.deep:
                self._wait()
        return self._try(work)

    def _send(self, _, at, n, rank, stream):
        return self._post(dist.isend, at, n, rank)

    def _recv(self, _, at, n, rank, stream):
        return self._post(dist.irecv, at, n, rank)

    def _wait(self):
        while self.pending:
            self.pending.pop(0).wait()

    def _grouped(self, _, begin):
        self.deep = bool(begin)
        return 0 if begin else self._try(self._wait)

    def _barrier(self, _, stream):
        return self._try(lambda: dist.barrier(group=self.group))

    def _fail(self, _, status, why):
        self.said = self.said or (why or b"").decode(errors="replace")

    def _lost(self, _, rank, why, n):
        return int(bool(self.said))


class NcclId(C.Structure):
    _fields_ = [("bytes", C.c_ubyte * 128)]


class StoreRows:
    """Gathers a row of bytes per rank through the store of torch.distributed. The host
    waits for the other hosts, at most KCP_TIMEOUT_S seconds, and not for the GPU."""
    made = {}                             # how many objects a group has had

    def __init__(self, group):
        c10d = dist.distributed_c10d
        name = getattr(group, "group_name", None) or c10d._pg_names[group]
        self.made[name] = self.made.get(name, 0) + 1
        self.store, self.count = c10d._get_default_store(), 0
        self.key = f"kcp/{name}/{self.made[name]}/%d/%d"
        self.R, self.r = dist.get_world_size(group), dist.get_rank(group)
        self.seconds = float(os.environ.get("KCP_TIMEOUT_S") or 60)

    def gather(self, row):
        """Polls, because a wait would hold a lock of the store that other threads need."""
        keys = [self.key % (self.count, r) for r in range(self.R)]
        self.store.set(keys[self.r], row)
        until = time.monotonic() + self.seconds
        while not self.store.check(keys):
            if time.monotonic() > until:
                raise TimeoutError(f"the comparison of calls did not complete within"
                                   f" {self.seconds:g} s")
            time.sleep(2e-4)
        rows = [self.store.get(key) for key in keys]
        if self.count:                    # every rank has read the previous rows
            self.store.delete_key(self.key % (self.count - 1, self.r))
        self.count += 1
        return rows


class NcclComm:
    """The ranks of a process group over NCCL. The class never frees or aborts the
    group's communicator. If PyTorch has none, the class creates and frees its own."""

    def __init__(self, group, device):
        self.lock, self.group, self.own = threading.RLock(), group, None
        with torch.cuda.device(device):
            at = self._of_group(group, device) or self._ours(group, device)
            out = C.c_void_p()
            check(lib.kcp_nccl_from(C.byref(out), P(at)), "kcp_nccl_from")
        self.address = out.value
        self.rows, self.show = StoreRows(group), GATHER(self._show)
        if hasattr(self.rows.store, "check"):            # PyTorch 2
            at, kind = member("kcp_comm", "show")
            kind.from_address(self.address + at).value = C.cast(self.show, P).value

    def _show(self, _, mine, all_, n, stream):
        """The function `show` of kcp_comm. Exceptions cannot pass through C."""
        try:
            if torch.cuda.is_current_stream_capturing():
                return value("KCP_NA")
            C.memmove(all_, b"".join(self.rows.gather(C.string_at(mine, n))),
                      n * self.rows.R)
            return 0
        except BaseException as e:
            at, kind = member("kcp_comm", "fail")
            FAIL(kind.from_address(self.address + at).value)(
                self.address, value("KCP_COMM"), str(e).encode()[:120])
            return value("KCP_COMM")

    @staticmethod
    def _of_group(group, device):
        """Returns the address of the group's communicator, or None if PyTorch or the
        backend has no function that returns the address."""
        try:
            pointer = group._get_backend(device)._comm_ptr
        except (AttributeError, RuntimeError):
            return None
        if not pointer():                     # a first collective creates it
            dist.all_reduce(torch.zeros(1, device=device), group=group)
        return pointer() or None

    def _ours(self, group, device):
        warnings.warn("kcp_torch: PyTorch gives no NCCL communicator of this group, so"
                      " kcp_torch creates one (backend nccl of PyTorch 2.5+ gives it)")
        nccl, which, at = C.CDLL("libnccl.so.2"), NcclId(), C.c_void_p()
        nccl.ncclCommInitRank.argtypes = [C.c_void_p, I, NcclId, I]
        bad = dist.get_rank(group) == 0 and nccl.ncclGetUniqueId(C.byref(which))
        on = device if dist.get_backend(group) == "nccl" else "cpu"
        said = torch.tensor(list(which.bytes) + [int(bool(bad))], device=on)
        parts = [torch.zeros_like(said) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, said, group=group)
        *first, bad = parts[0].tolist()
        which.bytes[:] = first
        if bad or nccl.ncclCommInitRank(C.byref(at), dist.get_world_size(group), which,
                                        dist.get_rank(group)):
            raise RuntimeError("kcp_torch: NCCL created no communicator for this group:"
                               " each rank needs a separate GPU")
        self.own = nccl, at
        return at.value

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()

    def reason(self):
        at, kind = member("kcp_comm", "lost")
        why, rank = C.create_string_buffer(256), C.c_int(-1)
        lost = LOST(kind.from_address(self.address + at).value)
        lost(self.address, C.addressof(rank), C.addressof(why), 256)
        return (f": {why.value.decode(errors='replace')}" if why.value else ""), None

    def free(self):
        at, kind = member("kcp_comm", "free")
        FREE(kind.from_address(self.address + at).value)(self.address)
        if self.own:
            self.own[0].ncclCommDestroy(self.own[1])


_comms, _making, _era = {}, threading.Lock(), 0
_caches = []


class Cache(dict):
    """Maps the arguments of calls to prepared calls. Prepared calls may refer to
    groups, so release() empties every cache."""

    def __init__(self):
        super().__init__()
        _caches.append(self)

    def __setitem__(self, key, value):
        if len(self) >= 1024:
            self.clear()
        super().__setitem__(key, value)


def era():
    """Returns how often release() ran. Each run makes older prepared calls invalid."""
    return _era


def comm_of(group, device):
    """Returns the communicator for a group and device; creates it at the first call."""
    if group is None:
        return None
    key = (group, str(device) if device.type == "cuda" else "cpu")
    with _making:
        if key not in _comms:
            _comms[key] = (NcclComm(group, device) if device.type == "cuda"
                           else HostComm(group))
        return _comms[key]


def _forget(which):
    """Drops all prepared calls. Frees each communicator for which
    `which(group, device)` is true.

    After a collective, a thread of gloo needs Python's lock to free its tensors. In
    PyTorch 2.11 the group's destructor holds this lock while it waits for the thread, so
    a group must not be destroyed before its threads are idle: the host sleeps."""
    if any(key[1] == "cpu" and which(*key) for key in _comms):
        time.sleep(0.1)
    for prepared in _caches:
        prepared.clear()
    for key in [k for k in _comms if which(*k)]:
        getattr(_comms.pop(key), "free", lambda: None)()


def release(group: Optional["dist.ProcessGroup"] = None) -> None:
    """Frees a group's communicators. Call this before `destroy_process_group`.

    - `group`: `None` means all groups. A later call creates communicators again.

    >>> release()
    """
    global _era
    if group is not None and not isinstance(group, dist.ProcessGroup):
        raise ValueError(f"group: found {type(group).__name__}, expected a process"
                         " group, or None for all groups")
    with _making:
        _era += 1
        _forget(lambda of, device: group is None or of is group)


@atexit.register
def _leave():
    """Releases gloo groups before Python ends. Otherwise a group's thread could free
    the last reference to a tensor after the interpreter has ended, and abort the
    process. NCCL's communicators are not freed, because freeing would wait for the
    GPU."""
    _forget(lambda of, device: device == "cpu")
    gc.collect()                          # frees HostComm, a cycle of references


class CPContext:
    """The result of `build_cp_context`: which tokens of a batch each rank has.

    - `group`: the process group; `size`: its number of ranks; `rank`: this rank.
    - `global_cu_seqlens`: `cu_seqlens` of the whole batch, a tuple. `ranges`: for each
      rank, its ranges (first token, end) of consecutive tokens of the batch.
    - `begin`, `end`: rows of this rank among the rows of all ranks, rank 0 first. In a
      contiguous layout these are the numbers of its tokens. `cu_seqlens_cpu`: where
      this rank's runs of consecutive tokens of one sequence begin, int64.
    - `shard(x, dim=1)`: x has all tokens of the batch; returns the tokens of this rank
      (contiguous layout: a view).
    - `positions(rank=None)`: the numbers of a rank's tokens, int64 (`None`: this rank);
      for labels, and for the positions and masks of softmax layers.

    >>> context = build_cp_context([0, 61, 128])
    >>> context.shard(torch.ones(1, 128, 2)).shape
    torch.Size([1, 128, 2])
    """

    def __init__(self, cu: Tuple[int, ...], group: "dist.ProcessGroup",
                 conv1d_kernel_size: Optional[int],
                 cuts: Union[None, str, Tuple[int, ...]]) -> None:
        self.group = group
        self.global_cu_seqlens, self.cuts = cu, cuts
        self.conv1d_kernel_size = conv1d_kernel_size
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        plan = plan_of(cu, self.size, self.rank, 64, conv1d_kernel_size or 0, cuts)
        self.begin, self.end, self.ranges = plan.begin, plan.end, plan.tokens()
        inside, n = {0}, 0
        for a, b in self.ranges[self.rank]:
            inside |= {min(max(x, a), b) - a + n for x in cu}
            n += b - a
        self.cu_seqlens_cpu = torch.tensor(sorted(inside), dtype=torch.int64)

    def __deepcopy__(self, memo):             # a group cannot be copied
        return copy.copy(self)

    def shard(self, x: torch.Tensor, dim: int = 1) -> torch.Tensor:
        """Returns the tokens of this rank."""
        T = self.global_cu_seqlens[-1]
        if not isinstance(x, torch.Tensor) or type(dim) is not int or \
                not -x.dim() <= dim < x.dim() or x.shape[dim] != T:
            found = f"{list(x.shape)}, dim {dim}" if isinstance(x, torch.Tensor) else \
                type(x).__name__
            raise ValueError(f"x: found {found}, expected a tensor with the {T} tokens"
                             " of the batch in this dimension")
        parts = [x.narrow(dim, a, b - a) for a, b in self.ranges[self.rank]]
        if len(parts) < 2:
            return parts[0] if parts else x.narrow(dim, 0, 0)
        return torch.cat(parts, dim)

    def positions(self, rank: Optional[int] = None) -> torch.Tensor:
        """Returns the numbers of a rank's tokens."""
        if rank is not None and (not isinstance(rank, int) or
                                 not 0 <= rank < self.size):
            raise ValueError(f"rank: found {rank!r:.40}, expected 0 to {self.size - 1}")
        parts = [torch.arange(a, b) for a, b in
                 self.ranges[self.rank if rank is None else rank]]
        return torch.cat(parts) if parts else torch.arange(0)


cpu = torch.device("cpu")
_read = {}                               # host copies of cu_seqlens on GPUs


# True while torch.compile traces.
compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


@getattr(getattr(torch, "compiler", None), "assume_constant_result", lambda f: f)
def whole_graph():
    """Returns whether torch.compile traces with fullgraph=True; False if this version
    of PyTorch does not report the option."""
    try:
        tracer = torch._dynamo.symbolic_convert.InstructionTranslator
        return tracer.current_tx().one_graph
    except AttributeError:
        return False


def whole(cu, name="cu_seqlens"):
    """Returns cu as a tuple of integers below 2^62, or raises ValueError. A set or a
    dict has no order, and an iterator ends after its first use."""
    try:
        if type(cu) not in (tuple, list) and (
                isinstance(cu, (dict, bytes)) or not hasattr(cu, "__getitem__")):
            raise TypeError
        cu = tuple(map(operator.index, cu))
    except TypeError:
        raise ValueError(f"{name}: found {shown(cu)}, expected a list of whole"
                         " numbers") from None
    for x in cu:              # torch.compile cannot trace max() with a default
        if abs(x) >= 2 ** 62:                        # int64_t in the library
            raise ValueError(f"{name}: found {x}, expected -2^62 < x < 2^62")
    return cu


def boundaries(cu, name="cu_seqlens"):
    """Returns cu_seqlens as a tuple. If cu_seqlens is a tensor on a GPU, the host waits
    for a copy, and reuses this copy until the tensor is modified."""
    if isinstance(cu, torch.Tensor):
        if cu.dim() != 1 or cu.dtype not in (torch.int32, torch.int64) or cu.is_meta:
            on = " on meta" if cu.is_meta else ""
            raise ValueError(f"{name}: found {cu.dtype} {tuple(cu.shape)}{on}, expected"
                             " int32 or int64 [N+1]")
        if compiling():
            torch._dynamo.graph_break(msg="cu_seqlens: found a tensor under"
                                      " torch.compile: give cu_seqlens_cpu as a list")
        if cu.device.type == "cpu" or cu.is_inference():
            cu = cu.tolist()
        else:
            known = _read.get(id(cu))
            if known is None or known[0]() is not cu or known[1] != cu._version:
                if len(_read) >= 64:
                    _read.clear()
                known = _read[id(cu)] = weakref.ref(cu), cu._version, cu.tolist()
            cu = known[2]
    cu = whole(cu, name)
    if len(cu) < 2 or cu[0] != 0 or any(a > b for a, b in zip(cu, cu[1:])):
        raise ValueError(f"{name}: found {cu[:6]}, expected 0 first, then numbers"
                         " that are never less than the previous number")
    return cu


def where_of(cu_seqlens, cu_seqlens_cpu, cp_context):
    """Returns the part of a call's cache key that identifies the packed sequences: the
    context, the boundaries as a tuple, or None."""
    if cp_context is not None:
        return cp_context
    where = cu_seqlens if cu_seqlens_cpu is None else cu_seqlens_cpu
    if where is None:
        return None
    if isinstance(where, torch.Tensor):
        return boundaries(where)
    cu = whole(where)
    if cu_seqlens is not None and cu_seqlens_cpu is not None:
        here = getattr(cu_seqlens, "device", cpu) == cpu   # a GPU's tensor needs a wait
        if here and boundaries(cu_seqlens) != cu:
            raise ValueError(f"cu_seqlens_cpu: found {shown(cu)}, expected the numbers"
                             f" of cu_seqlens, {shown(boundaries(cu_seqlens))}")
    return cu


def build_cp_context(cu_seqlens: Union[Sequence[int], torch.Tensor],
                     group: Optional["dist.ProcessGroup"] = None,
                     conv1d_kernel_size: Optional[int] = None,
                     cu_seqlens_cpu: Optional[Sequence[int]] = None,
                     cuts: Optional[Sequence[int]] = None,
                     layout: str = "contiguous") -> "CPContext":
    """Builds the context of one batch over the ranks of a process group. Every rank
    calls this function.

    - `cu_seqlens` [N + 1]: the first token of each sequence of the whole batch, and the
      number of all tokens.
    - `group`: a process group with this rank; `None` means the default group.
    - `conv1d_kernel_size`: only checked; a convolution uses the size of its `weight`.
    - `cuts` [R + 1]: rank r of R has tokens cuts[r] to cuts[r + 1] - 1. `None` means
      that cuts[r] is `r * T / R`, rounded down, where T is the number of all tokens.
    - `layout`: `contiguous`, or `zigzag` as in ring attention: each sequence of n tokens
      has 2 R ranges, range i begins at `i * n / (2 * R)`, rounded down, and rank r has
      ranges r and 2 R - 1 - r, so that a causal mask gives all ranks equal work.

    Returns a `CPContext`. Raises ValueError for a wrong argument, with the value found
    and the value expected.

    >>> context = build_cp_context([0, 61, 128], conv1d_kernel_size=4)
    >>> context.size, context.rank, context.begin, context.end
    (1, 0, 0, 128)
    """
    cu = boundaries(cu_seqlens if cu_seqlens_cpu is None else cu_seqlens_cpu)
    group = dist.distributed_c10d._get_default_group() if group is None else group
    if not isinstance(group, dist.ProcessGroup):
        raise ValueError(f"group: found {type(group).__name__}, expected a process"
                         " group that contains this rank")
    if conv1d_kernel_size is not None and (
            type(conv1d_kernel_size) is not int or
            not 0 <= conv1d_kernel_size < 2 ** 31):
        raise ValueError(f"conv1d_kernel_size: found {conv1d_kernel_size!r}, expected"
                         " a whole number from 0 to 2^31 - 1")
    if layout not in ("contiguous", "zigzag"):
        raise ValueError(f"layout: found {layout!r:.40}, expected contiguous or zigzag")
    if layout == "zigzag" and cuts is not None:
        raise ValueError("cuts: found cuts with layout zigzag, expected None")
    if cuts is not None:
        cuts, R = whole(cuts, "cuts"), dist.get_world_size(group)
        if len(cuts) != R + 1:
            raise ValueError(f"cuts: found {len(cuts)} numbers, expected {R + 1}, one"
                             " more than ranks")
        if cuts[0] != 0 or cuts[-1] != cu[-1] or any(map(operator.gt, cuts, cuts[1:])):
            raise ValueError(f"cuts: found {shown(cuts)}, expected 0 first, {cu[-1]}"
                             " last, and no number less than the previous one")
    cuts = "zigzag" if layout == "zigzag" else cuts
    return CPContext(cu, group, conv1d_kernel_size, cuts)
