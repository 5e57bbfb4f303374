"""library.py -- loads libkcp.so by ctypes, and reads the layout of its structs.

Book: chapter 08.

This file has no copy of a struct of kcp.h. Functions of the library return sizes,
offsets, types and enum values by name; a table lists the arrays of each stage. So
another version of the library either works, or raises an error with the missing name.
"""
import ctypes as C
import functools
import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
KIND = {"i": C.c_int, "l": C.c_int64, "z": C.c_size_t, "d": C.c_double, "p": C.c_void_p}
STATUS = ("OK", "NA", "BAD", "NO_MEMORY", "COMM", "CUDA", "MISMATCH")


def _load():
    """Loads the library from KCP_LIB if set, else the first library that is found: the
    one in this package, the one built in the checkout, the one of another kcp_torch on
    Python's path (an example in a checkout beside an installed wheel), or libkcp.so.3."""
    said = os.environ.get("KCP_LIB")
    checkout = os.path.join(HERE, *[".."] * 4, "build", "libkcp.so")
    wheels = [os.path.join(x, "kcp_torch", "libkcp.so") for x in sys.path]
    for path in [said] if said else [os.path.join(HERE, "libkcp.so"), checkout, *wheels]:
        if os.path.exists(path):
            return C.CDLL(path)
    if said:
        raise ImportError(f"KCP_LIB: found no file {said}, expected libkcp.so")
    try:
        return C.CDLL("libkcp.so.3")
    except OSError:
        raise ImportError("found no libkcp.so: set KCP_LIB to its path, or run make"
                          " build/libkcp.so in the checkout, or make install") from None


def shown(x):
    """Returns x in one short line, for errors."""
    return f"{' '.join(repr(x).split()):.60}"


lib = _load()
if not hasattr(lib, "kcp_struct_member"):
    raise ImportError("libkcp.so: found no kcp_struct_member, expected KCP 3.0.0+")
for _name in ("kcp_layer_saved", "kcp_layer_forward_work", "kcp_layer_backward_work",
              "kcp_layer_conv_work", "kcp_struct_size"):
    getattr(lib, _name).restype = C.c_size_t
lib.kcp_version.restype = lib.kcp_why.restype = C.c_char_p
lib.kcp_stage_find.restype = C.c_void_p
lib.kcp_plan_make.argtypes = [C.c_void_p, C.c_int, C.c_void_p, C.c_int, C.c_void_p,
                              C.c_int64, C.c_int, C.c_int, C.c_void_p]
lib.kcp_plan_owned.argtypes = lib.kcp_plan_make.argtypes
lib.kcp_owners_make.argtypes = [C.c_void_p, C.c_int, C.c_int, C.c_void_p, C.c_int,
                                C.c_int64, C.c_void_p]
lib.kcp_plan_free.argtypes = lib.kcp_owners_free.argtypes = [C.c_void_p]


@C.CFUNCTYPE(None, C.c_char_p)
def _notice(line):
    warnings.warn("kcp_torch: " + line.decode(errors="replace"))


lib.kcp_notices(_notice)


@functools.lru_cache(None)
def size(struct):
    n = lib.kcp_struct_size(struct.encode())
    if not n:
        raise ImportError(f"libkcp.so: found no struct {struct}")
    return n


@functools.lru_cache(None)
def member(struct, name):
    at, kind = C.c_size_t(), C.c_char()
    if lib.kcp_struct_member(struct.encode(), name.encode(), C.byref(at),
                             C.byref(kind)):
        raise ImportError(f"libkcp.so: found no member {name} of struct {struct}")
    return at.value, KIND[kind.value.decode()]


@functools.lru_cache(None)
def value(name):
    """Returns the number of an enum constant by its name."""
    x = C.c_int()
    if lib.kcp_enum_value(name.encode(), C.byref(x)):
        raise ImportError(f"libkcp.so: found no value {name}")
    return x.value


@functools.lru_cache(None)
def forms():
    """Returns the exchange forms: {"all_gather": "KCP_ALL_GATHER", ...}."""
    names = (C.c_char_p * value("KCP_FORMS")).in_dll(lib, "kcp_form_names")
    return {name.decode(): "KCP_" + name.decode().upper() for name in names}


def get(struct, address, name):
    """Reads a member of the struct at this address."""
    at, kind = member(struct, name)
    return kind.from_address(address + at).value


def put(struct, buffer, **members):
    """Writes members of the struct at the start of this buffer."""
    for name, x in members.items():
        at, kind = member(struct, name)
        kind.from_buffer(buffer, at).value = x


@functools.lru_cache(None)
def stage(name):
    """Returns the size of a stage's args struct and the offset of each of its
    arrays."""
    at = lib.kcp_stage_find(name.encode())
    if not at:
        raise ImportError(f"libkcp.so: found no stage {name}")
    fields, step, arrays = get("kcp_stage", at, "fields"), size("kcp_field"), {}
    for i in range(get("kcp_stage", at, "nfields")):
        f = fields + i * step
        text = C.string_at(get("kcp_field", f, "name")).decode()
        arrays[text] = get("kcp_field", f, "at")
    return get("kcp_stage", at, "args"), arrays


class Plan:
    """A plan (chapter 06), and one rank's part of the plan. `cuts`: None, the first
    token of each rank, or "zigzag"."""

    def __init__(self, cu, R, r, chunk, window, cuts):
        self.at, why = C.c_void_p(), C.c_char_p()
        array, N = (C.c_int64 * len(cu))(*cu), len(cu) - 1
        where, make, bad = None, lib.kcp_plan_make, 0
        if cuts == "zigzag":
            make, where = lib.kcp_plan_owned, C.create_string_buffer(size("kcp_owners"))
            bad = lib.kcp_owners_make(where, value("KCP_ZIGZAG"), N, array, R, 0,
                                      C.byref(why))
        elif cuts:
            where = (C.c_int64 * len(cuts))(*cuts)
        bad = bad or make(C.byref(self.at), N, array, R, where, 0, chunk, window,
                          C.byref(why))
        if cuts == "zigzag":
            lib.kcp_owners_free(where)
        if bad:
            why = (why.value or b"no memory").decode()
            about = "cuts" if "cuts" in why else "conv1d_kernel_size" if "Wc" in why \
                else "cu_seqlens"
            raise ValueError(f"{about}: {why}")
        self.context = get("kcp_plan", self.at.value, "ctx") + r * size("kcp_context")
        know = functools.partial(get, "kcp_context", self.context)
        self.begin, self.end = know("begin"), know("end")
        self.N, self.NS, self.NC = N, know("NS"), know("NC")
        ints = lambda name, n: list((C.c_int * n).from_address(know(name))) if n else []
        self.grid = {"cu": ints("cu", self.NS + 1), "cn": ints("cn", self.NS + 1),
                     "sc": ints("sc", self.NC)}

    def tokens(self):
        """Returns each rank's ranges (first token, end) of consecutive tokens."""
        R, ranks = get("kcp_plan", self.at.value, "R"), []
        seg, step = get("kcp_plan", self.at.value, "seg"), size("kcp_segment")
        for at in range(get("kcp_plan", self.at.value, "S")):
            know = functools.partial(get, "kcp_segment", seg + at * step)
            while len(ranks) <= know("rank"):
                ranks.append([])
            a, b = know("begin"), know("end")
            if ranks[-1] and ranks[-1][-1][1] == a:
                a = ranks[-1].pop()[0]
            ranks[-1].append((a, b))
        return ranks + [[] for _ in range(R - len(ranks))]

    def __del__(self):
        if getattr(self, "at", None) and lib is not None:    # None: Python is ending
            lib.kcp_plan_free(self.at)


@functools.lru_cache(256)
def plan_of(cu, R, r, chunk, window=0, cuts=None):
    """Returns a plan, cached because it depends only on these arguments."""
    return Plan(cu, R, r, chunk, window, cuts)


class Layer:
    """A struct kcp_layer: reference functions (CPU), or kernels for one type (GPU)."""

    def __init__(self, cuda, storage):
        self.at = C.create_string_buffer(size("kcp_layer"))
        why = C.create_string_buffer(256)
        if not cuda:
            lib.kcp_layer_ref(self.at)
        elif lib.kcp_layer_gpu(self.at, value(storage), None, why, C.c_size_t(256)):
            raise RuntimeError(f"libkcp.so: {why.value.decode()}")


layer_of = functools.lru_cache(None)(Layer)


def check(status, what, comm=None):
    """Raises an error if status is not 0, with a callback's exception as the cause."""
    if not status:
        return
    said, cause = comm.reason() if comm else ("", None)
    if not said:                             # kcp_why says which field is wrong
        why = (lib.kcp_why() or b"").decode(errors="replace")
        said = f": {why}" if why else ""
    name = STATUS[status] if status < len(STATUS) else str(status)
    kind = NotImplementedError if name == "NA" else RuntimeError
    shape = ": the kernels do not take this shape or option" if name == "NA" else ""
    raise kind(f"{what}: KCP_{name}{shape}{said}") from cause
