"""chunk.py -- chunk_kda and chunk_gated_delta_rule, with FLA's signatures.

Book: chapters 08, 13.

Each rank has a copy of A_log, dt_bias and the initial state. The gradients of a copy
come from its rank's tokens only, so the caller must sum gradients over ranks. With
reduce_gradients=True every rank gets the sums for A_log and dt_bias.
"""
import ctypes as C
import functools
import math
import numbers
from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from . import groups, library, ops
from .core import (Alike, Boundaries, Spec, anchor, cast, count, current_gpu,
                   first_only, floating, in_memory, maker, option, placed,
                   refuse_transforms, said_once, shortest, shown, split_of, storage,
                   truth)
from .paths import choose, typed

FORMS = library.forms()
INPUTS = ("q_raw", "k_raw", "v", "g_raw", "beta_raw", "A_log", "dt_bias", "h0")
GRADIENTS = ("dq_raw", "dk_raw", "dv", "dg_raw", "dbeta_raw", "dA_log", "ddt_bias",
             "dh0")


# What forward saves for backward, by the value of option `save`.
SAVES = {"recompute": "KCP_RECOMPUTE", "all": "KCP_SAVE_ALL"}


def _save(save, disable_recompute):
    if type(disable_recompute) is not bool:
        disable_recompute = truth("disable_recompute", disable_recompute)
    word = save
    if save is None:
        word = "all" if disable_recompute else "recompute"
    if not isinstance(word, str) or word not in SAVES:
        raise ValueError(f"save: found {shown(word)}, expected one of"
                         f" {', '.join(SAVES)}")
    return word


class Options:
    """All non-tensor arguments of a call."""
    NAMES = ("model", "scale", "l2norm", "gate", "sigmoid", "negative", "lower_bound",
             "keep_all", "turned", "chunk_size", "form", "whole", "rounded")

    def __init__(self, all_):
        self.all = all_
        for name, x in zip(self.NAMES, all_):
            setattr(self, name, x)
        self.gdn = self.model == "KCP_GDN"

    def words(self, H, HV, K, V):
        """Returns the options as numbers that the library expects."""
        low = self.lower_bound
        forms = "KCP_GATE_SOFTPLUS" if low is None else "KCP_GATE_BOUNDED"
        betas = "KCP_BETA_SIGMOID2" if self.negative else "KCP_BETA_SIGMOID"
        return option(
            model=self.model, gate=forms if self.gate else "KCP_GATE_RAW",
            beta_form=betas if self.sigmoid else "KCP_BETA_RAW",
            l2norm=int(bool(self.l2norm)), layout="KCP_VK" if self.turned else "KCP_KV",
            form=FORMS[self.form],
            save=SAVES[self.keep_all],
            scale=float(K ** -0.5 if self.scale is None else self.scale),
            lower_bound=float(-5 if low is None else low),
            H=H, HV=HV, K=K, V=V, KG=1 if self.gdn else K)


def plain(shape):
    """Returns a shape as ints, so that torch.compile, which may pass symbolic sizes,
    compiles each shape separately."""
    return tuple(map(int, shape))


def choice_of(options, words, q, g, beta):
    """Returns the types and the chunk size of a call on a GPU (paths.py)."""
    return choose(q.dtype, g.dtype, beta.dtype, bool(options.rounded), words,
                  options.chunk_size)


@functools.lru_cache(64)
def arrays_of(given):
    """Returns the names of the arrays of forward, of backward, and of backward with a
    gradient of the final states."""
    some = lambda names, also: tuple(n for n, x in zip(names, also) if x)
    inputs, grads = some(INPUTS, given), some(GRADIENTS, given[:7] + (True,))
    return (inputs + ("o", "ht"), inputs + ("do_",) + grads,
            inputs + ("do_", "dht") + grads)


class Site(Spec):
    """A call's sizes, types, options and split into ranks; its forward and backward."""

    def __init__(self, options, cu, cuts, group, inputs):
        q, k, v, g, beta, A_log, dt_bias, h0 = inputs
        shapes = [None if x is None else plain(x.shape) for x in inputs]
        (_, tokens, H, K), (HV, V) = shapes[0], shapes[2][2:]
        words, self.gate = options.words(H, HV, K, V), options.gate
        self.store, self.act, self.acc = storage("q", q)
        gates, chunk = (self.act, self.act), options.chunk_size
        self.given = (True,) * 5 + (self.gate, dt_bias is not None, h0 is not None)
        self.names, self.names13, self.names13_dht = arrays_of(self.given)
        if q.device.type == "cuda":
            choice = choice_of(options, words, q, g, beta)
            if choice.why:
                said_once(f"kcp_torch: {choice.why}")
            self.store, self.act, *gates, chunk = choice[:5]
            words = typed(words, self.act, *gates)
        super().__init__((cu, cuts, chunk, 0), group, words,
                         bool(options.whole), q.device)
        self.types = (self.act,) * 3 + (*gates,) + (self.acc,) * 3
        self.tokens, self.shapes = tokens, shapes
        self.A_log = (HV,) if shapes[5] is None else shapes[5]
        self.states = (len(cu) - 1, HV) + ((V, K) if options.turned else (K, V))
        # States are double if q or the initial state is double, else float32 as in FLA.
        double = q.dtype == torch.float64 or (h0 is not None and
                                              h0.dtype == torch.float64)
        self.wide, self.like = torch.float64 if double else torch.float32, v.dtype
        # If ranks share the batch, the kernels write only the states of sequences that
        # end on this rank; made() writes zeros to the other states.
        self.written, self.makers = group is None and self.tokens, None
        self.dtypes = [None if x is None else x.dtype for x in inputs]
        self.alike = Alike()
        self.index, self.gpu = q.get_device(), q.device.type == "cuda"

    def parameters(self, A_log, dt_bias):
        """Returns A_log and dt_bias. A bounded gate without A_log gets zeros, so the
        factor exp(A_log) is 1. Their shapes may differ from the kernels' shapes,
        because only the order of the numbers matters."""
        if not self.gate:
            return None, None
        if A_log is None:
            A_log = torch.zeros(self.A_log, dtype=torch.float32, device=self.device)
        return A_log, dt_bias

    def made(self):
        """Returns functions that allocate o, the states, the gradients of the kernels, and
        gradients of the inputs' types where these differ."""
        if self.makers is None:          # not in __init__, which torch.compile may trace
            new = lambda shape, dtype: maker(shape, dtype, self.device)
            states = new(self.states, self.acc)
            shapes = [*self.shapes[:5], self.A_log if self.gate else None,
                      self.shapes[6], self.states]
            grads = [x and new(x, kind) for x, kind in zip(shapes, self.types)]
            if not self.written:
                grads[7] = lambda: states().zero_()
            self.makers = (
                new(shapes[2], self.act), grads[7], grads,
                [None if d in (None, kind) else new(x, d)
                 for x, kind, d in zip(shapes, self.types, self.dtypes)])
        return self.makers

    def prepared(self):
        return self.call("forward", self.store, self.names)

    def forward(self, inputs, keep, places=None):
        """Returns o, ht, the saved block, and the tensors that backward reads. `places`
        has the addresses of the inputs if no input needs a copy."""
        if self.gpu and self.index != current_gpu():
            with torch.cuda.device(self.device):
                return self.forward(inputs, keep, places)
        call, arrays = self.prepared(), inputs
        if places is None:
            arrays, places = placed(inputs, self.types)
        new_o, new_states, _, _ = self.makers or self.made()
        o, ht = new_o(), new_states()
        saved = call((*places, o.data_ptr(), ht.data_ptr()), keep)
        if self.act is not self.like:
            o = o.to(self.like)
        if self.acc is not self.wide:
            ht = ht.to(self.wide)
        return o, ht, saved, arrays

    def backward(self, saved, arrays, do, dht):
        """Returns the gradients of the eight inputs, each in the input's type."""
        if self.gpu and self.index != current_gpu():
            with torch.cuda.device(self.device):
                return self.backward(saved, arrays, do, dht)
        names = self.names13 if dht is None else self.names13_dht
        call = self.call("backward", self.store, names)
        _, _, new, cast_to = self.makers or self.made()
        out = [f and f() for f in new]
        do = torch.zeros_like(arrays[2]) if do is None else cast(do, self.act)
        dht = cast(dht, self.acc)
        call([x.data_ptr() for x in (*arrays, do, dht, *out) if x is not None],
             saved=saved)
        # copy_ into a new tensor takes half of the host's time of to().
        return [None if d is None else f().copy_(x) if f else x
                for x, f, d in zip(out, cast_to, self.dtypes)]


class Chunk(torch.autograd.Function):
    @staticmethod
    def forward(ctx, site, final, places, *inputs):
        o, ht, saved, arrays = site.forward(inputs, True, places)
        ctx.site = site
        ctx.save_for_backward(saved, *arrays)
        ctx.anchor = None if arrays is inputs else anchor(inputs, arrays)
        ctx.set_materialize_grads(False)
        return (o, ht) if final else o

    @staticmethod
    def backward(ctx, do, dht=None):
        saved, *arrays = ctx.saved_tensors
        site = ctx.site
        if not torch.is_grad_enabled():
            return (None, None, None,
                    *site.backward(saved, arrays, do, dht))
        with torch.no_grad():                 # create_graph
            out = site.backward(saved, arrays, do, dht)
        return (None, None, None,
                *first_only(out, do, dht, ctx.anchor, *arrays))


_apply = shortest(Chunk)


def checked(options, q, k, v, g, beta, A_log, dt_bias, h0, N):
    """Checks every shape and type; the error names the first wrong argument."""
    o = options
    floating("q", q, (None,) * 4, None, "[B, T, H, K]")
    B, T, H, K = q.shape
    floating("k", k, (B, T, H, K), q)
    floating("v", v, (B, T, None, None), q, f"[{B}, {T}, HV, V]")
    HV, V = v.shape[2:]
    if not K or not V:
        raise ValueError(f"{'v' if K else 'q'}: found a head of 0 channels, expected"
                         " 1 or more")
    if not H or HV % H:
        raise ValueError(f"v: found {HV} heads, expected a multiple of q's {H}")
    floating("g", g, (B, T, HV) if o.gdn else (B, T, HV, K), q)
    floating("beta", beta, (B, T, HV), q)
    for name, x in (("use_qk_l2norm_in_kernel", o.l2norm),
                    ("use_gate_in_kernel", o.gate),
                    ("use_beta_sigmoid_in_kernel", o.sigmoid),
                    ("allow_neg_eigval", o.negative), ("reduce_gradients", o.whole),
                    ("round_gates", o.rounded)):
        truth(name, x)
    if o.negative and not o.sigmoid:
        raise ValueError("allow_neg_eigval: found True, expected"
                         " use_beta_sigmoid_in_kernel=True too")
    for name in "scale", "lower_bound":      # a cached call misses changes of a tensor
        if isinstance(getattr(o, name), torch.Tensor):
            raise ValueError(f"{name}: found a tensor, expected a number, as its"
                             " item()")
    try:
        finite = o.scale is None or \
            isinstance(o.scale, numbers.Real) and math.isfinite(float(o.scale))
    except OverflowError:
        finite = False
    if not finite:
        raise ValueError(f"scale: found {shown(o.scale)}, expected a number")
    if not isinstance(o.form, str) or o.form not in FORMS:
        raise ValueError(f"form: found {o.form!r}, expected one of {', '.join(FORMS)}")
    if o.gate and A_log is None and o.lower_bound is None:
        raise ValueError("A_log: found None, expected [HV] with use_gate_in_kernel")
    if o.gate and A_log is not None:
        parameter("A_log", A_log, (HV,), q)
    if o.gate and dt_bias is not None:
        parameter("dt_bias", dt_bias, (HV,) if o.gdn else (HV, K), q)
    low = o.lower_bound                       # not read if the caller computes the gate
    if low is not None and not (isinstance(low, numbers.Real) and low < 0 and
                                (not o.gate or low >= -5)):
        raise ValueError(f"lower_bound: found {shown(low)}, expected -5 or more, and"
                         " below 0")
    if h0 is not None:
        floating("initial_state", h0, (N, HV) + ((V, K) if o.turned else (K, V)), q)


def parameter(name, x, shape, like):
    """Checks the number of elements, not the shape, because FLA uses several shapes."""
    n = 1
    for m in shape:
        n *= m
    if not isinstance(x, torch.Tensor) or x.numel() != n:
        found = list(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
        raise ValueError(f"{name}: found {found}, expected {list(shape)}")
    floating(name, x, (None,) * x.dim(), like)


def last_paths() -> Tuple[str, ...]:
    """Returns the names of the paths, i.e. kernels, of the last call of `chunk_kda` or
    `chunk_gated_delta_rule`, as `kcp-check --paths` lists them: of forward, and of
    backward if a call of these sizes had one. A call that torch.compile has traced is
    not seen.

    >>> q, beta = torch.ones(1, 3, 1, 2), torch.ones(1, 3, 1)
    >>> _ = chunk_kda(q, q, q, -q, beta)
    >>> last_paths()
    ('forward_ref',)
    """
    lib = library.lib
    lib.kcp_layer_path.restype = C.c_char_p
    names = []
    for (pass_, *_), call in (_last[0].calls if _last else {}).items():
        name = lib.kcp_layer_path(call.layer.at, call.args, int(pass_ == "backward"))
        names.append(name.decode() if name else f"{pass_}_ref")      # on a CPU
    return tuple(dict.fromkeys(names))


_last = groups.Cache()                        # key 0: the Site of the last call
_known = groups.Cache()                       # Sites of calls that passed the checks
_latest = groups.Cache()                      # the last call of each kind


def _site(all_, where, inputs, split):
    """Returns a call's Site (sizes and options). Checks a new Site's arguments."""
    q, k, v, g, beta, A_log, dt_bias, h0 = inputs
    key = site = None
    try:
        key = (all_, where, *(x is None or (x.shape, x.dtype, x.device)
                              for x in inputs))
        site = _known.get(key)
    except (AttributeError, RuntimeError, TypeError):     # an input is no plain tensor
        pass
    if site is None:
        options = Options(all_)
        floating("q", q, (None,) * 4, None, "[B, T, H, K]")
        cu, cuts, group = split_of(q.shape[0], q.shape[1], *split, "q")
        checked(options, *inputs, len(cu) - 1)
        if not options.gate:
            inputs = q, k, v, g, beta, None, None, h0
        site = _known[key] = Site(options, cu, cuts, group, inputs)
    _latest[_kind(all_, where, inputs)] = site
    return site


def _kind(all_, where, inputs):
    """Returns a call's key in the cache. The key records which optional tensors are None,
    because the class Alike compares tensors by position."""
    return all_, where, inputs[5] is None, inputs[6] is None, inputs[7] is None


def _layer(all_, final, q, k, v, g, beta, A_log, dt_bias, h0, cu_seqlens,
           cu_seqlens_cpu, cp_context):
    """Runs a call. Checks the call unless it matches an earlier call. `all_` has the
    values of Options."""
    if ops.wanted():
        return _traced(all_, final, q, k, v, g, beta, A_log, dt_bias, h0, cu_seqlens,
                       cu_seqlens_cpu, cp_context)
    refuse_transforms()
    where = groups.where_of(cu_seqlens, cu_seqlens_cpu, cp_context)
    inputs = q, k, v, g, beta, A_log, dt_bias, h0
    site = places = None
    try:
        site = _latest.get(_kind(all_, where, inputs))
        places = site and site.alike([x for x in inputs if x is not None])
    except (AttributeError, TypeError):       # an input is no tensor
        pass
    if places is None:
        site = _site(all_, where, inputs, (cu_seqlens, cu_seqlens_cpu, cp_context))
        given, inputs = inputs, inputs[:5] + site.parameters(A_log, dt_bias) + (h0,)
        in_memory(**dict(zip(("q", "k", "v", "g", "beta", "A_log", "dt_bias",
                              "initial_state"), inputs)))
        # If no input needs a copy, later calls with tensors like these skip all checks.
        if all(x is y and (x is None or x.dtype is t and x.is_contiguous() and
                           not x.is_neg() and not x.data_ptr() & 15)
               for x, y, t in zip(inputs, given, site.types)):
            site.alike.remember([x for x in inputs if x is not None])
    _last[0] = site
    if torch.is_grad_enabled():
        for x in inputs:
            if x is not None and x.requires_grad:
                out = _apply(site, final, places, *inputs)
                return out if final else (out, None)
    o, ht, _, _ = site.forward(inputs, False, places)
    return o, ht if final else None


def _traced(all_, final, q, k, v, g, beta, A_log, dt_bias, h0, cu_seqlens,
            cu_seqlens_cpu, cp_context):
    """Runs a call that torch.compile traces. The call becomes one custom op."""
    options = Options(all_)
    cu, cuts, group = split_of(q.shape[0], q.shape[1], cu_seqlens, cu_seqlens_cpu,
                               cp_context, "q")
    checked(options, q, k, v, g, beta, A_log, dt_bias, h0, len(cu) - 1)
    if not options.gate:
        A_log = dt_bias = None
    o, ht = ops.chunk(all_, cu, cuts, group, (q, k, v, g, beta, A_log, dt_bias, h0))
    return o, ht if final else None


def _turned(state_v_first, transpose_state_layout, more):
    if more:
        raise TypeError(f"{sorted(more)[0]}: unknown argument")
    if state_v_first is transpose_state_layout is False:
        return False
    return truth("state_v_first", state_v_first) | \
        truth("transpose_state_layout", transpose_state_layout)


def _chunk(n):
    """Returns a chunk size as int. 64.0 and True equal the keys 64 and 1 of the cache,
    so each call checks the type."""
    return n if type(n) is int and 0 < n < 2 ** 31 else \
        count("chunk_size", n, 1, ", less than 2^31")


def _final(x):
    return x if type(x) is bool else truth("output_final_state", x)


def chunk_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor,
              scale: Optional[float] = None, initial_state: Optional[Tensor] = None,
              output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
              use_gate_in_kernel: bool = False,
              use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
              safe_gate: bool = False, lower_bound: Optional[float] = None,
              disable_recompute: bool = False,
              return_intermediate_states: bool = False, state_v_first: bool = False,
              cu_seqlens: Optional[Boundaries] = None,
              cu_seqlens_cpu: Optional[Boundaries] = None,
              cp_context: Optional[groups.CPContext] = None,
              A_log: Optional[Tensor] = None, dt_bias: Optional[Tensor] = None,
              transpose_state_layout: bool = False, chunk_size: int = 64,
              form: str = "all_gather", reduce_gradients: bool = False,
              round_gates: bool = False, save: Optional[str] = None,
              **more: Any) -> Tuple[Tensor, Optional[Tensor]]:
    """Kimi Delta Attention, with one gate per channel. For each head and sequence: `S_t
    = (I - beta_t k_t k_t^T) Diag(exp g_t) S_(t-1) + beta_t k_t v_t^T`, `o_t = scale
    S_t^T q_t`.

    - `q`, `k` [B, T, H, K] and `v` [B, T, HV, V]: float64 (CPU only), float32, bfloat16
      or float16, on one device; HV is a multiple of H. `g` and `beta` may have other
      types; if no fast kernel takes a call, a warning has the reason. With `use_qk_l2norm_in_kernel`
      each row of q and k is divided by `sqrt(sum of squares + 1e-6)`. On GPUs of sm_90
      float16 q, k, v, o and their gradients are converted from and to bfloat16: errors
      are those of bfloat16, and values above 65504 become infinite, as in any cast to
      float16.
    - `g` [B, T, HV, K]: the natural logarithm of the decay, at most 0. With
      `use_gate_in_kernel` the logarithm is computed from g: `-exp(A_log) softplus(g +
      dt_bias)`, or with `lower_bound` (below 0) `lower_bound sigmoid(exp(A_log) (g +
      dt_bias))`. `A_log` has HV numbers, and `dt_bias` HV times K. `safe_gate`
      with `use_gate_in_kernel` needs `lower_bound`.
    - `beta` [B, T, HV]: the step, 0 to 1. With `use_beta_sigmoid_in_kernel` beta is the
      sigmoid of this tensor; `allow_neg_eigval` doubles the sigmoid.
    - `scale`: a number; `None` means `K ** -0.5`.
    - `initial_state` [N, HV, K, V]: one row per sequence of the whole batch. With
      `state_v_first` (formerly `transpose_state_layout`) the shape is [N, HV, V, K].
    - `cu_seqlens` [N + 1], for sequences packed into B = 1: the first token of each
      sequence, then the number of all tokens; a tensor of int32 or int64, or a list. If
      `cu_seqlens_cpu` has these numbers in a list, the call never waits for the GPU.
    - `cp_context`: from `build_cp_context`; the tensors then have only this rank's
      tokens, and `cu_seqlens` is not read. `form`: the algorithm by which ranks exchange
      states, `all_gather` or another name in `kcp_torch.library.forms()`.
    - `save`: what forward keeps for backward: `recompute` (less) or `all`. To keep
      nothing, use torch.utils.checkpoint. `None` means `all` if `disable_recompute` is
      true, else `recompute`.
    - `reduce_gradients`: every rank gets the gradients of `A_log` and `dt_bias` summed
      over ranks. `round_gates`: rounds g and beta of a wider type to bfloat16 if
      q is bfloat16 or float16.
    - `chunk_size`: tokens per chunk; on a GPU a chunk of 64 replaces a smaller one if
      only chunks of 64 have fast kernels.

    Returns `o` [B, T, HV, V] in the type of v and, with `output_final_state`, the final
    states in the shape of `initial_state`, else None. States are float32, or float64 if
    q or the initial state is float64. With `cp_context` each rank returns the final
    states of the sequences that end on this rank; the other rows are zero. Raises
    ValueError for a wrong argument, with the value found and the value expected;
    NotImplementedError if no kernel takes this shape or option, or if torch.func
    transforms the call; RuntimeError if a rank is lost or a second derivative is taken.

    >>> q = k = torch.ones(1, 3, 1, 2)
    >>> v, g = torch.tensor([1., 2., 3.]).view(1, 3, 1, 1), torch.zeros(1, 3, 1, 2)
    >>> o, _ = chunk_kda(q, k, v, g, torch.full((1, 3, 1), 0.5), scale=1.0,
    ...                  use_qk_l2norm_in_kernel=True)
    >>> o.flatten()
    tensor([0.5000, 1.2500, 2.1250])
    """
    if return_intermediate_states:
        raise NotImplementedError("return_intermediate_states: found True, expected"
                                  " False: chunk states are not returned")
    if safe_gate and use_gate_in_kernel and lower_bound is None:
        raise ValueError("lower_bound: found None, expected a number with safe_gate")
    return _layer(("KCP_KDA", scale, use_qk_l2norm_in_kernel, use_gate_in_kernel,
                   use_beta_sigmoid_in_kernel, allow_neg_eigval, lower_bound,
                   _save(save, disable_recompute),
                   _turned(state_v_first, transpose_state_layout, more),
                   _chunk(chunk_size), form, reduce_gradients, round_gates),
                  _final(output_final_state),
                  q, k, v, g, beta, A_log, dt_bias, initial_state, cu_seqlens,
                  cu_seqlens_cpu, cp_context)


def chunk_gated_delta_rule(
        q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor,
        scale: Optional[float] = None, initial_state: Optional[Tensor] = None,
        output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
        use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
        state_v_first: bool = False, cu_seqlens: Optional[Boundaries] = None,
        cu_seqlens_cpu: Optional[Boundaries] = None, chunk_indices: Any = None,
        cp_context: Optional[groups.CPContext] = None, use_gate_in_kernel: bool = False,
        A_log: Optional[Tensor] = None, dt_bias: Optional[Tensor] = None,
        disable_recompute: bool = False, transpose_state_layout: bool = False,
        chunk_size: int = 64, form: str = "all_gather", reduce_gradients: bool = False,
        round_gates: bool = False, save: Optional[str] = None,
        **more: Any) -> Tuple[Tensor, Optional[Tensor]]:
    """Gated DeltaNet: `chunk_kda` with one gate per head.

    - `g` [B, T, HV]: as in `chunk_kda`; `dt_bias` has HV numbers. There is no
      `lower_bound`: if nothing is saved for backward, the one-kernel forward
      (`forward_gdn_one` of `kcp-check --paths`) takes every form of gate.
    - `chunk_indices`: not read; accepted because FLA has this argument.

    All other arguments, the results and the errors are as in `chunk_kda`.

    >>> q = k = torch.ones(1, 3, 1, 2)
    >>> v, g = torch.tensor([1., 2., 3.]).view(1, 3, 1, 1), torch.zeros(1, 3, 1)
    >>> o, state = chunk_gated_delta_rule(q, k, v, g, torch.full((1, 3, 1), 0.5),
    ...                                   cu_seqlens_cpu=[0, 2, 3],
    ...                                   output_final_state=True)
    >>> state.shape
    torch.Size([2, 1, 2, 1])
    """
    return _layer(("KCP_GDN", scale, use_qk_l2norm_in_kernel, use_gate_in_kernel,
                   use_beta_sigmoid_in_kernel, allow_neg_eigval, None,
                   _save(save, disable_recompute),
                   _turned(state_v_first, transpose_state_layout, more),
                   _chunk(chunk_size), form, reduce_gradients, round_gates),
                  _final(output_final_state),
                  q, k, v, g, beta, A_log, dt_bias, initial_state, cu_seqlens,
                  cu_seqlens_cpu, cp_context)
