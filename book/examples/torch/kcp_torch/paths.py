"""paths.py -- selects types and chunk size of a call on a GPU, and names slow kernels.

Book: chapter 08, "Paths".

kcp_layer_plain searches the library's table of paths (ref/core/paths.def, kcp-check
--paths) for a call's options, types and sizes of heads. It reads no tokens, so all
ranks get the same answer.
"""
import ctypes as C
import functools
from typing import NamedTuple

import torch

from .library import layer_of, lib, put, size, stage, value

TYPES = {torch.float64: "KCP_TYPE_F64", torch.float32: "KCP_TYPE_F32",
         torch.bfloat16: "KCP_TYPE_BF16", torch.float16: "KCP_TYPE_F16"}


def args_of(pass_, layer, options, plan, comm, names):
    """Returns an args struct without addresses of arrays, and a view. Sizes and paths
    depend only on which addresses are NULL, so 64 replaces each address of `names`."""
    n, at = stage({"forward": "08", "backward": "13", "conv": "14"}[pass_])
    args = bytearray(n)
    view = (C.c_char * n).from_buffer(args)
    put("kcp_call", view, **dict(options))
    lib.kcp_layer_call(layer.at, view, plan.at, C.c_void_p(comm.address if comm else
                                                           None))
    for name in names:
        C.c_void_p.from_buffer(args, at[name]).value = 64
    return args, view


@functools.lru_cache(4096)
def plain(store, options, chunk):
    """Returns "", or the plain path that forward or backward would run, and which values
    a fast path needs."""
    call, why = bytearray(size("kcp_call")), C.create_string_buffer(300)
    view = (C.c_char * len(call)).from_buffer(call)
    put("kcp_call", view, C=chunk, **dict(options))
    found = lib.kcp_layer_plain(layer_of(True, store).at, view, 1, why, C.c_size_t(300))
    return why.value.decode() if found == 1 else ""


class Choice(NamedTuple):
    """The storage of a call, the types of q, g and beta in the kernels, the chunk size,
    and, if a path is plain, the reason."""
    store: str
    act: torch.dtype
    g: torch.dtype
    beta: torch.dtype
    chunk: int
    why: str


def typed(options, act, g, beta):
    """Returns the options with the types of q, g and beta. Kernels with storage bf16
    compute calls of float16."""
    name = lambda t, like: value("KCP_AS_Q" if t is like else TYPES[t])
    own = act if act is not torch.float16 else torch.bfloat16
    return options + (("q_type", name(act, own)), ("g_type", name(g, act)),
                      ("beta_type", name(beta, act)))


def candidates(q, g, beta, rounded):
    """Returns (storage, type of q, of g, of beta) in order of preference. Types without
    kernels are cast: g and beta of a wider type than q to float32, with all tensors."""
    bf16, f16, f32 = torch.bfloat16, torch.float16, torch.float32
    if q not in (bf16, f16):
        return [("KCP_F32", f32, f32, f32)]
    if rounded:
        g = beta = bf16
    if q is g is beta is bf16:
        return [("KCP_BF16", bf16, bf16, bf16)]
    narrow = q is bf16 and all(t in (bf16, f16) for t in (g, beta))
    last = ("KCP_BF16", bf16, bf16, bf16) if narrow else ("KCP_F32", f32, f32, f32)
    if torch.float64 in (g, beta):
        return [last]
    return [("KCP_BF16", q, g, beta), last]


@functools.lru_cache(1024)
def choose(q, g, beta, rounded, options, chunk):
    """Returns the Choice for q, g, beta of these types. The chunk size changes roundings
    and time, but not the meaning of a call, so chunks of 64 replace smaller ones if only
    chunks of 64 have fast kernels."""
    types = candidates(q, g, beta, rounded)
    for n in (chunk, 64)[:1 + (chunk < 64)]:
        for c in types:
            if not plain(c[0], typed(options, *c[1:]), n):
                return Choice(*c, n, "")
    # Without fast kernels, the last types are the most exact ones.
    c, first = types[-1], types[0]
    why, of = (plain(t[0], typed(options, *t[1:]), chunk) for t in (c, first))
    need = of.partition(": ")[2] or "this GPU or these options have no fast kernels"
    took = why.partition(":")[0]
    hint = "; round_gates=True rounds g and beta to bf16" if "g is" in need or \
        "beta is" in need else ""
    return Choice(*c, chunk, f"the slow path {took} runs: {need}{hint}")
