"""paths.py -- names the kernels that a call on a GPU would run, before the call runs.

Book: chapter 08, "Paths".  Checked by: tests/cli/torch_check.py.  Next: chunk.py.

The names are rows of the library's table of paths (ref/core/paths.def, kcp-check
--paths). A query has sizes, types and options that are equal on all ranks, and the
tokens of the rank with the most tokens, so that every rank gets the same answer.
"""
import ctypes as C
import functools
import re
from typing import NamedTuple, Optional, Tuple

import torch

from .library import layer_of, lib, member, plan_of, put, stage, value

lib.kcp_layer_path.restype = C.c_char_p
TYPES = {torch.float64: "KCP_TYPE_F64", torch.float32: "KCP_TYPE_F32",
         torch.bfloat16: "KCP_TYPE_BF16", torch.float16: "KCP_TYPE_F16"}
# These rows run one thread per column in some stage, or have no kernels for one
# architecture (sm_80+): 10 to 100 times the time of the fast rows.
SLOW = re.compile(r"_(plain|stages)(_f32|_tall)?$")


def args_of(pass_, layer, options, plan, comm, names):
    """Returns the bytes of an args struct without addresses of arrays. Sizes and paths
    depend only on which addresses are NULL, so 64 replaces each address of `names`."""
    args_bytes, at = stage({"forward": "08", "backward": "13", "conv": "14"}[pass_])
    args = bytearray(args_bytes)
    view = (C.c_char * args_bytes).from_buffer(args)
    put("kcp_call", view, **dict(options))
    lib.kcp_layer_call(layer.at, view, plan.at, C.c_void_p(comm.address if comm else
                                                           None))
    for n in names:
        C.c_void_p.from_buffer(args, at[n]).value = 64
    return args, view


@functools.lru_cache(4096)
def names(store, options, cu, cuts, R, chunk, names08, names13):
    """Returns the names of the rows of forward, which saves a block, and of backward;
    None for a pass without a row."""
    T = cu[-1]
    bounds = cuts or [r * T // R for r in range(R + 1)]
    most = max(range(R), key=lambda r: bounds[r + 1] - bounds[r])
    plan, layer, found = plan_of(cu, R, most, chunk, 0, cuts), layer_of(True, store), []
    for pass_, struct, of in (("forward", "kcp_forward", names08),
                              ("backward", "kcp_backward", names13)):
        args, view = args_of(pass_, layer, options, plan, None, of)
        put("kcp_call", view, r=most, T=plan.end - plan.begin, NS=plan.NS, NC=plan.NC)
        put(struct, view, saved=64, saved_bytes=1 << 62)
        name = lib.kcp_layer_path(layer.at, view, int(pass_ == "backward"))
        found.append(name and name.decode())
        del view
    return tuple(found)


def slow(found):
    """Returns the names of slow rows among `found`; a pass without a row is slow."""
    return [n or "none" for n in found if not n or SLOW.search(n)]


class Choice(NamedTuple):
    """The storage of a call, the types of q, g and beta in the kernels, the chunk size,
    the rows, and, if a row is slow, the reason."""
    store: str
    act: torch.dtype
    g: torch.dtype
    beta: torch.dtype
    chunk: int
    rows: Tuple[Optional[str], Optional[str]]
    why: str


def typed(options, act, g, beta):
    """Returns the options with the types of g and beta."""
    name = lambda t: value("KCP_AS_Q" if t is act else TYPES[t])
    return options + (("g_type", name(g)), ("beta_type", name(beta)))


def candidates(q, g, beta, rounded):
    """Returns (storage, type of q, of g, of beta) in order of preference."""
    bf16, f32 = torch.bfloat16, torch.float32
    if q is not bf16:
        return [("KCP_F32", f32, f32, f32)]
    narrow = all(t in (bf16, torch.float16) for t in (g, beta))
    if rounded or g is beta is bf16:
        return [("KCP_BF16", bf16, bf16, bf16)]
    last = ("KCP_BF16", bf16, bf16, bf16) if narrow else ("KCP_F32", f32, f32, f32)
    if torch.float64 in (g, beta):
        return [last]
    return [("KCP_BF16", bf16, g, beta), last]


@functools.lru_cache(1024)
def choose(q, g, beta, rounded, options, cu, cuts, R, chunk, names08, names13):
    """Returns the Choice for q, g, beta of these types. The chunk size changes roundings
    and time, but not the meaning of a call, so chunks of 64 replace smaller ones if only
    chunks of 64 have fast kernels."""
    def ask(store, act, g, beta, chunk, options=options):
        return names(store, typed(options, act, g, beta), cu, cuts, R, chunk, names08,
                     names13)
    tries = [(*c, n) for n in (chunk, 64)[:1 + (chunk < 64)]
             for c in candidates(q, g, beta, rounded)]
    if not cu[-1]:
        return Choice(*tries[0], ("", ""), "")
    rows = [ask(*c) for c in tries]
    few = min(len(slow(r)) for r in rows)
    at = [i for i, r in enumerate(rows) if len(slow(r)) == few]
    # Without fast kernels, the last types are the most exact ones.
    at = at[0] if few < 2 else len(candidates(q, g, beta, rounded)) - 1
    why = reason(ask, rows[at], q, g, beta, dict(options), chunk) if few else ""
    return Choice(*tries[at], rows[at], why)


def reason(ask, rows, q, g, beta, size, chunk):
    """Returns which rows are slow, the conditions that failed, and what meets them."""
    bf16, types = torch.bfloat16, (q, g, beta)
    word = lambda t: str(t).replace("torch.", "")
    changes = []                              # (found, expected, key of the change)
    if q is not bf16:
        changes.append((f"q is {word(q)}", "bfloat16 q, k, v", "q"))
    wide = [n for n, t in zip(("g", "beta"), types[1:]) if t is not q or q is not bf16]
    if wide:
        changes.append((" and ".join(f"{n} is {word(t)}" for n, t in zip(
            ("g", "beta"), types[1:]) if n in wide), f"bfloat16 {' and '.join(wide)}"
            " (round_gates=True)", "gates"))
    if chunk != 64:
        changes.append((f"chunk_size is {chunk}", "chunk_size 64", "chunk"))
    if (size["K"], size["V"]) != (128, 128):
        changes.append((f"K = {size['K']}, V = {size['V']}", "K = V = 128", "heads"))

    def with_(keys):
        changed = dict(size)
        if "heads" in keys:
            changed.update(K=128, V=128, KG=128 if size["KG"] > 1 else 1)
        a = bf16 if "q" in keys else q
        g_, b_ = (bf16, bf16) if "gates" in keys else (g, beta)
        if a is not bf16:
            return ("none", "none")
        return ask("KCP_BF16", a, g_, b_, 64 if "chunk" in keys else chunk,
                   tuple(changed.items()))
    what = "no kernels" if rows == (None, None) else \
        f"the slow kernels {' and '.join(slow(rows))} run"
    every = [key for *_, key in changes]
    tries = [[key] for key in every] + [[k for k in every if k != "heads"], every]
    for keys in tries:
        if keys and not slow(with_(keys)):
            met = [c for c in changes if c[2] in keys]
            return (f"{what}, because {', '.join(c[0] for c in met)};"
                    f" {', '.join(c[1] for c in met)} would run"
                    f" {' and '.join(with_(keys))}")
    return f"{what}, because there are no fast kernels for this GPU or these options"
