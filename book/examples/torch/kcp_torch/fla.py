"""fla.py -- a backend for flash-linear-attention (FLA). After `import kcp_torch.fla`,
FLA's chunk_kda and chunk_gated_delta_rule run on libkcp, also with FLA's cp_context.

Book: chapter 19.

FLA 0.6.0 or newer is needed: 0.5.0 and 0.5.1 have no dispatcher for GDN, and in 0.5.2
torch.compiler.disable bypasses the dispatcher. The import makes one call of each
function on the CPU, and fails if this backend does not receive the call. A call on CPU
tensors runs KCP's references in C. If this backend rejects a call, FLA runs the call on
another backend or its own kernels, and the reason is logged once. A context of FLA
describes one rank. The import makes FLA's builder attach a context of the whole batch,
so contexts built before the import are rejected. A call on a GPU for which KCP has only
slow kernels is left to FLA; the warning has the condition that failed and what meets
it. KCP_FLA=0 turns the backend off; KCP_FLA=all also takes calls with slow kernels.
KCP_ROUND_GATES=1: if q is bfloat16, gates and beta of a wider type are rounded to
bfloat16. KCP_ROUND_KEYS=1: normalised q and k are rounded to the type of q and k, as in
FLA's kernels; by default they stay float32. KCP_ROUND_KEYS=reference: PyTorch
normalises q and k in their type, as in the reference of FLA's tests.
"""
import collections
import functools
import inspect
import os
import warnings

import torch

from . import chunk, groups

VERSION = "not installed"
try:
    import fla
    VERSION = fla.__version__
    from fla.backends import BaseBackend, register
    from fla.ops.cp import context as _context
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.kda import chunk_kda
except ImportError as e:
    raise ImportError(f"kcp_torch.fla: found flash-linear-attention {VERSION} ({e}),"
                      " expected 0.6.0 or newer") from None

KNOWN = {"A_log", "dt_bias", "chunk_size", "transpose_state_layout", "lower_bound",
         "use_gate_in_kernel", "use_beta_sigmoid_in_kernel", "allow_neg_eigval",
         "use_qk_l2norm_in_kernel", "safe_gate", "disable_recompute", "state_v_first",
         "initial_state", "output_final_state", "scale", "cu_seqlens",
         "cu_seqlens_cpu", "chunk_indices", "cp_context", "return_intermediate_states",
         "use_graph", "max_num_seqs"}
TYPES = torch.bfloat16, torch.float16, torch.float32


@functools.lru_cache(None)
def _said(words):
    warnings.warn(f"kcp_torch.fla does not run this call: {words}", stacklevel=5)


PARAMETERS = {"kda": tuple(inspect.signature(chunk_kda).parameters),
              "gdn": tuple(inspect.signature(chunk_gated_delta_rule).parameters)}


def _names(model, args, more):
    return dict(zip(PARAMETERS[model], args), **more)


def _why_not(model, x):
    """Returns the reason to reject this call, or None. Calls that FLA would reject are
    rejected here, so that FLA reports the error; on a CPU, _run reports the reason."""
    odd = set(x) - KNOWN - {"q", "k", "v", "g", "beta"}
    if odd:
        return f"argument {sorted(odd)[0]} is not known"
    for n in ("q", "k", "v", "g", "beta"):
        if not isinstance(x.get(n), torch.Tensor):
            return f"{n} is no tensor"
    q, v, h0 = x["q"], x["v"], x.get("initial_state")
    if q.device.type not in ("cuda", "cpu"):
        return f"q is on {q.device}"
    if any(x[n].dtype not in TYPES for n in ("q", "k", "v", "g", "beta")):
        return "q, k, v, g or beta is not bfloat16, float16 or float32"
    if q.dim() != 4 or v.dim() != 4 or q.shape[3] > 256 or v.shape[3] > 512:
        return "q or v is not 4-dimensional, or K is above 256 or V above 512"
    if not q.shape[1] or not q.shape[2] or v.shape[2] % q.shape[2]:
        return "no tokens, or the number of v's heads is no multiple of q's"
    if x.get("return_intermediate_states"):
        return "return_intermediate_states"
    if x.get("use_graph"):
        return "use_graph"
    kda = model == "kda"                      # FLA checks KDA more than GDN
    if x.get("chunk_size", 64) not in ((32, 64) if kda else (16, 32, 64)):
        return f"chunk_size {x['chunk_size']}"
    if h0 is not None and (h0.dtype not in TYPES or kda and h0.dtype != torch.float32):
        return f"initial_state is {h0.dtype}"
    if x.get("allow_neg_eigval") and not x.get("use_beta_sigmoid_in_kernel"):
        return "allow_neg_eigval without use_beta_sigmoid_in_kernel"
    if x.get("state_v_first") and "transpose_state_layout" in x:
        return "found both state_v_first and transpose_state_layout"
    low = x.get("lower_bound")
    if x.get("safe_gate") and x.get("use_gate_in_kernel") and \
            (low is None or not -5 <= low < 0):
        return f"lower_bound {low}"
    if not kda and low is not None:
        return "a lower_bound of GDN"
    context = x.get("cp_context")
    if context is not None and getattr(context, "layout", "") not in ("", "contiguous"):
        return f"cp_context has the layout {context.layout}, expected contiguous"
    if context is not None and not hasattr(context, "kcp_context"):
        return ("cp_context was built before `import kcp_torch.fla`: import first, then"
                " call build_cp_context again")
    if context is None and x.get("cu_seqlens") is not None and q.shape[0] != 1:
        return "cu_seqlens with a batch of more than 1"
    if q.device.type == "cuda" and os.environ.get("KCP_FLA") != "all":
        return _slow(model, x)
    return None


def _slow(model, x):
    """Returns why KCP's kernels for this call are slow, or None. All ranks get the same
    answer, because it depends on types, sizes of heads, options and the GPU, but not on
    this rank's tokens: a rank that left alone would wait forever."""
    own = bool(x.get("use_gate_in_kernel"))
    options = chunk.Options((
        "KCP_KDA" if model == "kda" else "KCP_GDN", 1.0,
        bool(x.get("use_qk_l2norm_in_kernel")), own,
        bool(x.get("use_beta_sigmoid_in_kernel")), bool(x.get("allow_neg_eigval")),
        x.get("lower_bound") if own else None,
        "all" if x.get("disable_recompute") else "recompute",
        bool(x.get("state_v_first") or x.get("transpose_state_layout")),
        x.get("chunk_size", 64), "all_gather", False,
        os.environ.get("KCP_ROUND_GATES") == "1"))
    (H, K), (HV, V) = x["q"].shape[2:], x["v"].shape[2:]
    return chunk.choice_of(options, options.words(H, HV, K, V), x["q"], x["g"],
                           x["beta"]).why or None


_arrived = collections.deque(maxlen=1)        # the model of the last call


def _run(function, model, args, more):
    x = _names(model, args, more)
    why = x["q"].is_cpu and _why_not(model, x)
    if why:
        raise NotImplementedError(f"kcp_torch.fla does not run this call: {why}; it leaves"
                                  " such calls to FLA, whose kernels need a GPU")
    context = x.pop("cp_context", None)
    for name in "return_intermediate_states", "use_graph", "max_num_seqs":
        x.pop(name, None)
    _arrived.append(model)
    if "transpose_state_layout" in x:
        warnings.warn("`transpose_state_layout` is deprecated and renamed to"
                      " `state_v_first`.", DeprecationWarning, stacklevel=4)
        x["state_v_first"] = x.pop("transpose_state_layout")
    if context is not None:
        x.pop("cu_seqlens", None)
        x.pop("cu_seqlens_cpu", None)
        x["cp_context"] = context.kcp_context
    rounded = os.environ.get("KCP_ROUND_KEYS")
    if rounded in ("1", "reference") and x.get("use_qk_l2norm_in_kernel"):
        x["use_qk_l2norm_in_kernel"] = False
        for n in ("q", "k"):
            if rounded == "reference":
                x[n] = torch.nn.functional.normalize(x[n], p=2, dim=-1)
                continue
            wide = x[n].float()
            unit = wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + 1e-6)
            x[n] = unit.to(x[n].dtype)
    # FLA ignores lower_bound if the caller has computed the gate.
    if not x.get("use_gate_in_kernel"):
        x.pop("lower_bound", None)
    return function(**x, round_gates=os.environ.get("KCP_ROUND_GATES") == "1")


class Backend(BaseBackend):
    backend_type = "kcp"
    package_name = "kcp_torch"
    env_var = "KCP_FLA"
    priority = 0

    def _verify(self, model, args, more):
        x = _names(model, args, more)
        why = _why_not(model, x)
        if why and getattr(x.get("q"), "is_cpu", False):
            return True, None                 # _run raises an error that says why
        if why:
            _said(why)
        return why is None, why

    def chunk_kda_verifier(self, *args, **more):
        return self._verify("kda", args, more)

    def chunk_kda(self, *args, **more):
        return _run(chunk.chunk_kda, "kda", args, more)

    def chunk_gated_delta_rule_verifier(self, *args, **more):
        return self._verify("gdn", args, more)

    def chunk_gated_delta_rule(self, *args, **more):
        return _run(chunk.chunk_gated_delta_rule, "gdn", args, more)


def _remember(build):
    """Wraps FLA's builder: each context gets an attribute kcp_context, our context for
    this batch and group."""
    @functools.wraps(build)
    def wrapper(cu_seqlens, cu_seqlens_cpu=None, *args, **more):
        context = build(cu_seqlens, cu_seqlens_cpu, *args, **more)
        if context.group is not None and not hasattr(context, "kcp_context") and \
                getattr(context, "layout", "contiguous") == "contiguous":
            cu = cu_seqlens if cu_seqlens_cpu is None else cu_seqlens_cpu
            context.kcp_context = groups.build_cp_context(
                cu, context.group, context.conv1d_kernel_size)
        return context
    return wrapper


def probe():
    """Raises ImportError if FLA's functions do not call this backend."""
    q, gate = torch.zeros(1, 1, 1, 8), torch.zeros(1, 1, 1)
    for model, function, g in (("kda", chunk_kda, q), ("gdn", chunk_gated_delta_rule,
                                                       gate)):
        _arrived.clear()
        try:
            function(q, q, q, g, gate)
        except Exception as e:
            why = f": {type(e).__name__}"
        else:
            why = ""
        if list(_arrived) != [model]:
            raise ImportError(f"kcp_torch.fla: found flash-linear-attention {VERSION},"
                              f" whose {function.__name__} does not call this backend"
                              f"{why}: unset FLA_DISABLE_BACKEND_DISPATCH or install"
                              " 0.6.0")


def install():
    """Registers the backend for both functions and wraps the builder of contexts."""
    try:
        for entry in chunk_kda, "gated_delta_rule":
            register(entry)(Backend)
    except KeyError as e:
        raise ImportError(f"kcp_torch.fla: found flash-linear-attention {VERSION}"
                          f" without a dispatcher of {e}, expected 0.6.0") from None
    if not getattr(_context.get_cp_cu_seqlens, "kcp", False):
        _context.get_cp_cu_seqlens = _remember(_context.get_cp_cu_seqlens)
        _context.get_cp_cu_seqlens.kcp = True
    if os.environ.get("KCP_FLA") != "0":
        probe()


install()
