"""torch_check.py -- kcp_torch against the token recurrence, written in plain PyTorch
with autograd: one rank, and several under torchrun, in double.

Book: chapters 01, 08, 13, 14.  Checked by: tests/cli/torch.sh, which plants mistakes.
Next: torch.sh.
"""
import copy
import inspect
import os
import pickle
import sys
import threading
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import kcp_torch

TOL, D = 1e-12, torch.float64
PLANT = os.environ.get("KCP_PLANT", "")      # a mistake that this check must see
failed, passed, worst = [], 0, [0.0, ""]


def recurrence(x, cu, o):
    """o and ht, token by token: eq:step, chapter 02."""
    q, k, v, g, beta = (x[n][0] for n in ("q", "k", "v", "g", "beta"))
    if o["l2norm"]:
        q = q * torch.rsqrt((q * q).sum(-1, keepdim=True) + 1e-6)
        k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    if g.dim() == 2:
        g = g[..., None]
    if o["gate"]:
        y = g + x["dt_bias"].reshape(g.shape[1:])
        A = x["A_log"].exp()[:, None]
        g = -A * F.softplus(y, threshold=1e9) if o["gate"] == 1 else \
            o["lb"] * torch.sigmoid(A * y)
    if o["beta"]:
        beta = torch.sigmoid(beta) * o["beta"]
    many = v.shape[1] // q.shape[1]
    q, k = (t.repeat_interleave(many, 1) for t in (q, k))
    scale = q.shape[-1] ** -0.5 if o["scale"] is None else o["scale"]
    out, states = [], []
    for n, (a, b) in enumerate(zip(cu, cu[1:])):
        S = q.new_zeros(v.shape[1], q.shape[2], v.shape[2])
        if x["h0"] is not None:
            S = x["h0"][n].transpose(1, 2) if o["vk"] else x["h0"][n]
        for t in range(a, b):
            S = g[t].exp()[..., None] * S
            u = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", S, k[t]))
            S = S + k[t][..., None] * u[:, None]
            out.append(torch.einsum("hkv,hk->hv", S, q[t] * scale))
        states.append(S.transpose(1, 2) if o["vk"] else S)
    o_ = torch.stack(out)[None] if out else v[None] * 0
    return o_, torch.stack(states)


def draw(seed, cu, H, HV, K, V, o):
    gen = torch.Generator().manual_seed(seed)
    r = lambda *s: torch.randn(*s, generator=gen, dtype=D)
    T, N = cu[-1], len(cu) - 1
    wide = (HV,) if o["gdn"] else (HV, K)
    x = dict(q=r(1, T, H, K), k=r(1, T, H, K), v=r(1, T, HV, V),
             g=r(1, T, *wide), beta=r(1, T, HV), A_log=None, dt_bias=None, h0=None)
    if not o["gate"]:
        x["g"] = -0.3 * x["g"].abs()
    else:
        x["A_log"], x["dt_bias"] = 0.3 * r(HV), r(*wide)
    if not o["beta"]:
        x["beta"] = torch.sigmoid(x["beta"])
    if not o["l2norm"]:
        x["k"] = F.normalize(x["k"], dim=-1)
    if o["h0"]:
        x["h0"] = r(N, HV, V, K) if o["vk"] else r(N, HV, K, V)
    return x, r(1, T, HV, V), r(N, HV, V, K) if o["vk"] else r(N, HV, K, V)


def close(got, want, what, bound=TOL):
    global passed
    size = want.abs().max().item() if want.numel() else 0
    err = (got - want).abs().max().item() / (size or 1) if want.numel() else 0
    if got.shape != want.shape or not err <= bound:
        failed.append(f"{what}: error {err:.1e} > {bound:.0e}, shape"
                      f" {list(got.shape)}, should be {list(want.shape)}")
        return
    passed += 1
    if err > worst[0] and bound == TOL:
        worst[:] = [err, what]


def expect(ok, what):
    global passed
    if ok:
        passed += 1
    else:
        failed.append(what)


def call(x, o, **more):
    f = kcp_torch.chunk_gated_delta_rule if o["gdn"] else kcp_torch.chunk_kda
    if o["gate"] == 2:
        more["lower_bound"] = o["lb"]
    return f(x["q"], x["k"], x["v"], x["g"], x["beta"], scale=o["scale"],
             initial_state=x["h0"], output_final_state=True,
             use_qk_l2norm_in_kernel=o["l2norm"], use_gate_in_kernel=bool(o["gate"]),
             use_beta_sigmoid_in_kernel=bool(o["beta"]),
             allow_neg_eigval=o["beta"] == 2, state_v_first=o["vk"],
             A_log=x["A_log"], dt_bias=x["dt_bias"], **more)


TOKENS = ("q", "k", "v", "g", "beta")


def one_case(name, seed, cu, sizes, o, form="all_gather", group=None, cuts=None,
             chunk=64, wrap=lambda f, x: f(x), compare=close, save=False):
    """Outputs and all gradients, of this rank's tokens, against the whole batch's."""
    x, do, dht = draw(seed, cu, *sizes, o)
    want = {n: None if t is None else t.clone().requires_grad_() for n, t in x.items()}
    wo, wht = recurrence(want, cu, o)
    ((wo * do).sum() + (wht * dht).sum()).backward()
    more, a, b, R = {}, 0, cu[-1], 1
    if group is not None:
        more["cp_context"] = c = kcp_torch.build_cp_context(cu, group, cuts=cuts)
        a, b, R = c.begin, c.end, c.size
    else:
        more["cu_seqlens"] = torch.tensor(cu)
    got = {n: None if t is None else
           (t[:, a:b] if n in TOKENS else t).clone().requires_grad_()
           for n, t in x.items()}
    h, ht = wrap(lambda y: call(y, o, form=form, chunk_size=chunk,
                                disable_recompute=save, **more), got)
    ((h * do[:, a:b]).sum() + (ht * dht).sum()).backward()
    if PLANT == "local":                      # the last rank's gradient is not added
        got["v"].grad[:, -1:] = 0
    compare(h, wo[:, a:b], f"{name} o")
    whole = {"ht": ht.detach().clone()}
    for n in ("A_log", "dt_bias", "h0"):
        if x[n] is not None:
            whole["d" + n] = got[n].grad.clone()
    for n, t in sorted(whole.items()):        # parts of ranks add up
        if R > 1:
            dist.all_reduce(t, group=group)
        compare(t, wht if n == "ht" else want[n[1:]].grad, f"{name} {n}")
    for n in TOKENS:
        compare(got[n].grad, want[n].grad[:, a:b], f"{name} d{n}")


def options(**o):
    base = dict(gdn=False, gate=0, beta=0, l2norm=True, vk=False, h0=False, lb=-5.0,
                scale=None)
    return dict(base, **o)


PACKED = (0, 9, 9, 40, 41, 77)
CASES = [
    ("plain", (0, 70), (2, 2, 16, 16), options()),
    ("packed, h0, HV > H", PACKED, (2, 4, 16, 24), options(h0=True, scale=0.7)),
    ("softplus gate", PACKED, (1, 2, 16, 8), options(gate=1, beta=1, h0=True)),
    ("bounded gate, V first", PACKED, (2, 2, 8, 24),
     options(gate=2, beta=2, h0=True, vk=True)),
    ("no norm", (0, 33, 50), (1, 1, 24, 16), options(l2norm=False, h0=True)),
    ("GDN", PACKED, (1, 3, 16, 24), options(gdn=True, h0=True)),
    ("GDN softplus, V first", PACKED, (2, 4, 16, 8),
     options(gdn=True, gate=1, beta=1, h0=True, vk=True)),
]


def conv_case(name, group=None, cu=PACKED, cuts=None, W=4, states=True):
    """y, the states and all gradients against PyTorch's own convolution. Under a group
    column 0 of the states is 0 and has no gradient: no window reaches it."""
    gen = torch.Generator().manual_seed(5)
    r = lambda *s: torch.randn(*s, generator=gen, dtype=D)
    x, w, b, dy = r(1, cu[-1], 6), r(6, W), r(6), r(1, cu[-1], 6)
    state, dlast = r(len(cu) - 1, 6, W), r(len(cu) - 1, 6, W)
    want = [t.clone().requires_grad_() for t in (x, w, b, state)]
    before = want[3] if states else torch.zeros_like(state)
    rows = [torch.cat([before[n], want[0][0, s:e].t()], 1)
            for n, (s, e) in enumerate(zip(cu, cu[1:]))]
    parts = [F.conv1d(t[None, :, 1:], want[1][:, None], want[2], groups=6)
             .transpose(1, 2) for t in rows if t.shape[1] > W]
    wy, wlast = F.silu(torch.cat(parts, 1)) + x, torch.stack([t[:, -W:] for t in rows])
    s, e, more = 0, cu[-1], dict(cu_seqlens=cu)
    if group is not None:
        c = kcp_torch.build_cp_context(cu, group, conv1d_kernel_size=W, cuts=cuts)
        s, e, more = c.begin, c.end, dict(cp_context=c)
        wlast = torch.cat([torch.zeros_like(wlast[:, :, :1]), wlast[:, :, 1:]], 2)
    ((wy * dy).sum() + (wlast * dlast).sum()).backward()
    got = [t.clone().requires_grad_() for t in (x[:, s:e], w, b, state)]
    y, last = kcp_torch.causal_conv1d(
        *got[:3], residual=x[:, s:e], initial_state=got[3] if states else None,
        output_final_state=True, activation="silu", **more)
    ((y * dy[:, s:e]).sum() + (last * dlast).sum()).backward()
    if PLANT == "late" and states:            # the state's gradient, a row late
        got[3].grad[:, :, 1:] = got[3].grad[:, :, :-1].clone()
    close(y, wy[:, s:e], f"{name} y")
    close(got[0].grad, want[0].grad[:, s:e], f"{name} dx")
    last = last.detach().clone()
    for t, u, n in ((got[1].grad, want[1].grad, "dweight"),
                    (got[2].grad, want[2].grad, "dbias"), (last, wlast, "states"),
                    (got[3].grad, want[3].grad, "dstates")):
        if t is None or u is None:
            expect(not states and t is u, f"{name} {n}: one is None")
            continue
        if group is not None:                 # parts of ranks add up
            dist.all_reduce(t, group=group)
        close(t, u, f"{name} {n}")


def states_of_conv():
    """Two halves with the state between them are the whole."""
    x, w = torch.randn(2, 11, 3, dtype=D), torch.randn(3, 4, dtype=D)
    y, last = kcp_torch.causal_conv1d(x, w, output_final_state=True)
    y1, s1 = kcp_torch.causal_conv1d(x[:, :2], w, output_final_state=True)
    y2, s2 = kcp_torch.causal_conv1d(x[:, 2:], w, initial_state=s1,
                                     output_final_state=True)
    close(torch.cat([y1, y2], 1), y, "conv in two halves")
    close(s2, last, "conv's state")
    close(last, x[:, -4:].transpose(1, 2), "conv's state is the last rows")
    layer = kcp_torch.ShortConvolution(3, 4, bias=True, dtype=D)
    expect({n: tuple(t.shape) for n, t in layer.state_dict().items()} ==
           {"weight": (3, 1, 4), "bias": (3,)}, "ShortConvolution's weights")
    want = F.silu(F.conv1d(x.transpose(1, 2), layer.weight, layer.bias, padding=3,
                           groups=3)[..., :11].transpose(1, 2)) + x
    close(layer(x, residual=x)[0], want, "ShortConvolution")
    mask = (torch.arange(11)[None] >= torch.tensor([[3], [0]])).to(D)
    close(layer(x, mask=mask)[0], layer(x * mask[..., None])[0], "its mask")
    with torch.no_grad():                     # a prompt of 8, then token by token
        first, cache = layer(x[:, :8], residual=x[:, :8], output_final_state=True)
        parts = [first] + [layer(x[:, t:t + 1], residual=x[:, t:t + 1], cache=cache)[0]
                       for t in range(8, 11)]
    close(torch.cat(parts, 1), want, "ShortConvolution, decoding")
    close(cache, last, "the cache it was given")
    refuses(ValueError, ("mask", "packed"), lambda: layer(
        x[:1], mask=mask[:1], cu_seqlens=[0, 11]))
    none, _ = kcp_torch.causal_conv1d(x, w)
    expect(torch.equal(none, y), "conv with its state asked for, and without")
    copies(x)
    half, s = kcp_torch.causal_conv1d(x.bfloat16(), w, output_final_state=True)
    expect(half.dtype == s.dtype == torch.bfloat16, "bfloat16 in, bfloat16 state out")


def copies(x):
    """The module as others treat one: copied, pickled, its weights put into another."""
    one = kcp_torch.ShortConvolution(x.shape[2], 4, bias=True, dtype=D)
    other = kcp_torch.ShortConvolution(x.shape[2], 4, bias=True, dtype=D)
    want = one(x)[0]
    other.load_state_dict(one.state_dict())
    for name, y in (("state_dict", other), ("deepcopy", copy.deepcopy(one)),
                    ("pickle", pickle.loads(pickle.dumps(one)))):
        expect(torch.equal(y(x)[0], want), f"ShortConvolution by {name}")


def refuses(kind, words, f):
    try:
        f()
    except kind as e:
        expect(all(w in str(e) for w in words), f"{e}: lacks one of {words}")
        return
    except Exception as e:
        expect(False, f"{words}: {e!r}, expected {kind.__name__}")
        return
    expect(False, f"{words}: nothing is refused")


def errors():
    x, _, _ = draw(1, (0, 20), 2, 4, 8, 8, options())
    q, k, v, g, beta = (x[n] for n in TOKENS)
    f, two = kcp_torch.chunk_kda, lambda t: torch.cat([t, t])
    refuses(ValueError, ("q", "int64", "floating"), lambda: f(q.long(), k, v, g, beta))
    refuses(ValueError, ("k", "[1, 20, 2, 4]", "[1, 20, 2, 8]"),
            lambda: f(q, k[..., :4], v, g, beta))
    refuses(ValueError, ("v", "3 heads", "multiple"),
            lambda: f(q, k, v[:, :, :3], g, beta))
    refuses(ValueError, ("g", "[1, 20, 4]"), lambda: f(q, k, v, g[..., 0], beta))
    refuses(ValueError, ("beta", "[1, 19, 4]"), lambda: f(q, k, v, g, beta[:, 1:]))
    refuses(ValueError, ("A_log", "None"),
            lambda: f(q, k, v, g, beta, use_gate_in_kernel=True))
    refuses(ValueError, ("initial_state", "[1, 4, 8, 8]"),
            lambda: f(q, k, v, g, beta, initial_state=torch.zeros(2, 4, 8, 8)))
    refuses(ValueError, ("cu_seqlens", "19", "20"),
            lambda: f(q, k, v, g, beta, cu_seqlens=torch.tensor([0, 19])))
    refuses(ValueError, ("cu_seqlens", "never less"),
            lambda: f(q, k, v, g, beta, cu_seqlens=torch.tensor([0, 30, 20])))
    refuses(ValueError, ("cu_seqlens", "float"),
            lambda: f(q, k, v, g, beta, cu_seqlens=torch.tensor([0., 20.])))
    for bad in (7, "0,20", [0, 7.5, 20]):
        refuses(ValueError, ("cu_seqlens", "whole numbers"),
                lambda: f(q, k, v, g, beta, cu_seqlens=bad))
    # C's int and int64_t would cut these short: to 64, to 20.
    refuses(ValueError, ("cu_seqlens", str(2 ** 64 + 20)),
            lambda: f(q, k, v, g, beta, cu_seqlens=[0, 2 ** 64 + 20]))
    refuses(ValueError, ("cu_seqlens", "-"),
            lambda: f(q, k, v, g, beta, cu_seqlens=[0, -2 ** 64 + 20]))
    for bad in (0, "64", 2 ** 32 + 64):
        refuses(ValueError, ("chunk_size", repr(bad)),
                lambda: f(q, k, v, g, beta, chunk_size=bad))
    for bad in ("a", 10 ** 400, float("nan"), float("inf")):
        refuses(ValueError, ("scale", repr(bad)[:9]),
                lambda: f(q, k, v, g, beta, scale=bad))
    for name in "scale", "lower_bound":
        refuses(ValueError, (name, "tensor"),
                lambda: f(q, k, v, g, beta, **{name: torch.tensor(-.5)}))
    refuses(ValueError, ("q", "0 channels"),
            lambda: f(q[..., :0], k[..., :0], v, g[..., :0], beta))
    refuses(ValueError, ("q", "sparse"), lambda: f(q.to_sparse(), k, v, g, beta))
    refuses(ValueError, ("v", "device meta"), lambda: f(q, k, v.to("meta"), g, beta))
    if kcp_torch.ops.available:
        from torch._subclasses import FakeTensorMode
        with FakeTensorMode() as mode:
            fake = [mode.from_tensor(t) for t in (q, k, v, g, beta)]
            refuses(ValueError, ("q", "FakeTensor", "memory"), lambda: f(*fake))
    forward = torch.autograd.forward_ad
    with forward.dual_level():                # else the derivative would be lost
        dual = forward.make_dual(v, v)
        refuses(NotImplementedError, ("forward-mode",), lambda: f(q, k, dual, g, beta))
        refuses(NotImplementedError, ("forward-mode",),
                lambda: kcp_torch.causal_conv1d(dual[0], torch.zeros(8, 4)))
    if hasattr(torch, "func"):
        refuses(NotImplementedError, ("torch.func",), lambda: torch.func.vmap(
            lambda y: f(q, k, y, g, beta)[0])(two(v)[:, None]))
    refuses(ValueError, ("q", "batch of 2"),
            lambda: f(*map(two, (q, k, v, g, beta)), cu_seqlens=[0, 20]))
    refuses(ValueError, ("form", "ring"), lambda: f(q, k, v, g, beta, form="ring"))
    refuses(ValueError, ("lower_bound", "below 0"),
            lambda: f(q, k, v, g, beta, lower_bound=1.0))
    refuses(ValueError, ("cp_context", "object"),
            lambda: f(q, k, v, g, beta, cp_context=object()))
    refuses(TypeError, ("temperature",), lambda: f(q, k, v, g, beta, temperature=1))
    refuses(ValueError, ("activation",), lambda: kcp_torch.causal_conv1d(
        v[0], torch.zeros(8, 4), activation="relu"))
    refuses(ValueError, ("weight",), lambda: kcp_torch.causal_conv1d(
        v[0], torch.zeros(7, 4)))
    refuses(ValueError, ("initial_state", "[20, 8, 3]", "[20, 8, 4]"),
            lambda: kcp_torch.causal_conv1d(
                v[0], torch.zeros(8, 4), initial_state=torch.zeros(20, 8, 3)))


FLA = {"chunk_kda": "q k v g beta scale initial_state output_final_state"
       " use_qk_l2norm_in_kernel use_gate_in_kernel use_beta_sigmoid_in_kernel"
       " allow_neg_eigval safe_gate lower_bound disable_recompute"
       " return_intermediate_states state_v_first cu_seqlens cu_seqlens_cpu cp_context",
       "chunk_gated_delta_rule": "q k v g beta scale initial_state output_final_state"
       " use_qk_l2norm_in_kernel use_beta_sigmoid_in_kernel allow_neg_eigval"
       " state_v_first cu_seqlens cu_seqlens_cpu chunk_indices cp_context",
       "causal_conv1d": "x weight bias residual initial_state output_final_state"
       " activation backend cu_seqlens cu_seqlens_cpu chunk_indices cp_context"}


def signatures():
    """The arguments of flash-linear-attention 0.5.2's functions, in its order."""
    for name, words in FLA.items():
        ours = list(inspect.signature(getattr(kcp_torch, name)).parameters)
        expect(ours[:len(words.split())] == words.split(), f"{name}{ours}")
    x, w = torch.randn(1, 9, 3, dtype=D), torch.randn(3, 4, dtype=D)
    a, b = (kcp_torch.causal_conv1d(x, w, **more)[0] for more in (
        {}, dict(backend="triton", chunk_indices=torch.zeros(2, 2))))
    expect(torch.equal(a, b), "what is not read")
    refuses(ValueError, ("backend",), lambda: kcp_torch.causal_conv1d(
        x, w, None, None, None, False, None, [0, 4, 9]))


def mirrors():
    """The library says how its structs lie; here the checkout's own list of members."""
    from kcp_torch import library
    path = os.path.join(os.path.dirname(__file__), "../../ref/stages/call.def")
    text = open(path).read()
    text = text[text.index("*/") + 2:]
    while "/*" in text:
        text = text[:text.index("/*")] + text[text.index("*/") + 2:]
    names = [w.strip().split()[-1].lstrip("*") for s in text.split(";") if s.strip()
             for w in s.split(",")]
    expect(len(names) > 30, f"call.def: found {len(names)} members")
    spans = sorted((library.member("kcp_call", n)[0],
                    library.C.sizeof(library.member("kcp_call", n)[1])) for n in names)
    ends = [a + b for a, b in spans] + [0]
    gaps = [a - ends[i - 1] for i, (a, _) in enumerate(spans)]
    expect(all(0 <= x < 8 for x in gaps), f"kcp_call: gaps {gaps}")
    expect(spans[-1][0] + spans[-1][1] == library.size("kcp_call"), "kcp_call's size")
    for bad in (lambda: library.size("kcp_none"), lambda: library.value("KCP_NONE"),
                lambda: library.member("kcp_call", "none")):
        refuses(ImportError, ("found no",), bad)


def single():
    for i, (name, cu, sizes, o) in enumerate(CASES):
        one_case(name, i, cu, sizes, o, chunk=64 if i % 2 else 16, save=i == 2)
    # A batch is that many sequences; float32 on a CPU is computed in double.
    x, _, _ = draw(3, (0, 40), 1, 2, 8, 8, options())
    split = {n: None if t is None else t.reshape(2, 20, *t.shape[2:])
             for n, t in x.items()}
    a, b = call(split, options()), call(x, options(), cu_seqlens_cpu=[0, 20, 40])
    close(a[0].reshape(b[0].shape), b[0], "a batch of two")
    close(a[1], b[1], "a batch of two, states")
    small = call({n: t if t is None else t.float() for n, t in x.items()}, options())
    expect(small[0].dtype == torch.float32 and small[1].dtype == torch.float32,
           "float32 in, float32 out")
    close(small[0].double(), call(x, options())[0], "float32", 1e-5)
    half = call({n: t if t is None else t.bfloat16() for n, t in x.items()}, options())
    expect(half[0].dtype == torch.bfloat16 and half[1].dtype == torch.float32,
           "bfloat16 in, bfloat16 and float32 out")
    for again in (True, False):               # both kinds of checkpoint
        one_case("checkpoint", 11, PACKED, (2, 4, 16, 8), options(gate=1, h0=True),
                 wrap=lambda f, y: checkpoint(lambda *t: f(dict(zip(y, t))),
                                              *y.values(), use_reentrant=again))
    for W in (4, 1, 2, 5):
        conv_case(f"conv {W}", W=W)
        conv_case(f"conv {W}, no state", W=W, states=False)
    states_of_conv()
    alike()
    errors()
    signatures()
    mirrors()
    from kcp_torch.library import plan_of
    made = plan_of.cache_info().misses
    call(x, options(), cu_seqlens=torch.tensor([0, 7, 40]))
    call(x, options(), cu_seqlens=torch.tensor([0, 7, 40], dtype=torch.int32))
    call(x, options(), cu_seqlens_cpu=[0, 7, 40])
    expect(plan_of.cache_info().misses == made + 1, "equal cu_seqlens, one plan")
    q = x["q"].clone().requires_grad_()
    y = call(dict(x, q=q), options())[0]
    grad, = torch.autograd.grad(y.square().sum(), q, create_graph=True)
    refuses(RuntimeError, ("differentiate twice",), lambda: grad.sum().backward())
    with torch.no_grad():
        expect(not call(dict(x, q=q), options())[0].requires_grad, "no_grad")


def some_grads(x, learned=(), mode=torch.enable_grad):
    """Outputs, and the gradients of those that learn."""
    x = {n: t if t is None or n not in learned else t.detach().requires_grad_()
         for n, t in x.items()}
    with mode():
        h, ht = call(x, options(gate=1))
    grads = torch.autograd.grad((h.sum() + ht.sum()), [x[n] for n in learned]) \
        if learned and h.requires_grad else ()
    expect(bool(learned) == h.requires_grad or mode is not torch.enable_grad,
           f"gradients of {learned}")
    return [t.detach().clone() for t in (h, ht, *grads)]


def alike():
    """A call like one before is asked little: it must be like it. Calls of one kind
    that differ in one tensor, in every order of two, each as if it were the first."""
    x, _, _ = draw(5, (0, 40), 1, 2, 8, 8, options(gate=1, h0=True))
    odd = torch.empty(x["q"].numel() + 1, dtype=D)[1:].view_as(x["q"]).copy_(x["q"])
    wide = torch.stack([x["q"], x["k"]], -1)[..., 0]
    calls = [
        dict(x=x), dict(x=dict(x, q=wide)), dict(x=dict(x, q=x["q"]._neg_view())),
        dict(x=dict(x, q=odd)),
        dict(x=dict(x, k=x["q"])), dict(x=dict(x, v=x["v"].float())),
        dict(x=dict(x, h0=None)), dict(x=dict(x, dt_bias=None)),
        dict(x=dict(x, dt_bias=x["dt_bias"].reshape(-1))),
        dict(x=dict(x, A_log=torch.nn.Parameter(x["A_log"])), mode=torch.no_grad),
        dict(x=x, mode=torch.inference_mode), dict(x=x, learned=("v",)),
        dict(x=x, learned=("h0", "A_log")), dict(x=dict(x, q=wide), learned=("k", "g")),
        dict(x={n: t if n in ("A_log", "dt_bias", "h0") else t[:, :39]
                for n, t in x.items()})]
    want = []
    for more in calls:
        kcp_torch.release()                   # nothing is known of any call
        want.append(some_grads(**more))

    def wrong(n):
        return sum(not all(map(torch.equal, some_grads(**calls[i]), want[i]))
                   for a in range(n) for b in range(a) for i in (a, b, b, a))
    expect(torch.equal(want[2][0], -want[0][0]), "a negated view")
    bad = wrong(len(calls))
    expect(not bad, f"{bad} calls are taken for another one")
    from kcp_torch.chunk import Site
    here = Site.here
    Site.here = lambda self, inputs: [t.data_ptr() for t in inputs if t is not None]
    expect(wrong(3) > 0, "strides that nobody asks are not seen")
    Site.here = here
    conv_alike()
    kcp_torch.release()


def conv_alike():
    r = lambda *s: torch.randn(*s, dtype=D)
    x, w, b, s = r(1, 16, 6), r(6, 4), r(6), r(1, 6, 4)
    calls = [
        dict(x=x, weight=w), dict(x=x, weight=w, bias=b), dict(x=x, weight=w[:, :3]),
        dict(x=x, weight=w[:, None]), dict(x=x, weight=w, residual=x + 1),
        dict(x=x, weight=w, initial_state=s), dict(x=x, weight=w, activation="silu"),
        dict(x=x.float(), weight=w), dict(x=torch.stack([x, x], -1)[..., 0], weight=w),
        dict(x=x.view(2, 8, 6), weight=w), dict(x=x[:, :8], weight=w),
        dict(x=x, weight=w, cu_seqlens=[0, 8, 16]),
        dict(x=x, weight=w, cu_seqlens=torch.tensor([0, 4, 16])),
        dict(x=x.clone().requires_grad_(), weight=w),
        dict(x=x, weight=torch.nn.Parameter(w), bias=torch.nn.Parameter(b))]

    def asked(i):
        y, last = kcp_torch.causal_conv1d(output_final_state=True, **calls[i])
        learn = any(t.requires_grad for t in calls[i].values() if torch.is_tensor(t))
        expect(y.requires_grad == learn, "gradients of a convolution")
        return y.detach(), last.detach()
    want = []
    for i in range(len(calls)):
        kcp_torch.release()
        want.append(asked(i))
    bad = sum(not all(map(torch.equal, asked(i), want[i]))
              for a in range(len(calls)) for b in range(a) for i in (a, b, b, a))
    expect(not bad, f"{bad} convolutions are taken for another one")
    refuses(ValueError, ("x", "batch of 2"), lambda: kcp_torch.causal_conv1d(
        x.view(2, 8, 6), w, cu_seqlens=[0, 8, 16]))


def compiled():
    """The custom op under torch.compile, where this PyTorch has it."""
    if not kcp_torch.ops.available:
        return f"custom op: needs PyTorch 2.4, this is {torch.__version__}: skipped"
    x, do, _ = draw(4, (0, 40), 1, 2, 8, 8, options(gate=1))
    x["w"], x["b"] = torch.randn(16, 4, dtype=D), torch.randn(16, dtype=D)
    x["s"] = torch.randn(1, 16, 4, dtype=D)
    x = {n: None if t is None else t.requires_grad_() for n, t in x.items()}
    names = [n for n in x if x[n] is not None]

    def layer(*t):
        y = dict(x, **dict(zip(names, t)))
        v, s = kcp_torch.causal_conv1d(
            y["v"].reshape(1, 40, 16), y["w"], y["b"], initial_state=y["s"],
            output_final_state=True, activation="silu")
        v, _ = kcp_torch.causal_conv1d(v, y["w"], initial_state=s)
        return call(dict(y, v=v.view_as(y["v"])), options(gate=1))[0].sin()
    outs = []
    for f in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        y = f(*(x[n] for n in names))
        outs.append([y] + list(torch.autograd.grad((y * do).sum(),
                                                   [x[n] for n in names])))
    for a, b, n in zip(*outs, ["o"] + names):
        close(b, a, f"torch.compile {n}")
    # Lengths that change: each is compiled for itself, the convolution's too.
    y = draw(6, (0, 40), 1, 2, 8, 8, options())[0]

    def short(T):
        z = {n: None if t is None else t[:, :T] for n, t in y.items()}
        v = kcp_torch.causal_conv1d(z["v"].reshape(1, T, 16), x["w"])[0]
        return call(dict(z, v=v.view_as(z["v"])), options())[0].sin()
    torch._dynamo.reset()
    several = torch.compile(short, backend="aot_eager")
    for T in (40, 39, 38, 40):
        close(several(T), short(T), f"torch.compile, {T} tokens")
    return "torch.compile traces the custom op"


def two_threads(groups):
    """Two threads, a group each: calls of one do not meet those of the other."""
    lists = [[], []]

    def work(i):
        compare = lambda *t: lists[i].append(t)
        try:
            for n in range(3):
                one_case(f"thread {i}", 20 + n, PACKED, (1, 2, 8, 8),
                         options(gate=1, h0=True), "chain" if i else "all_gather",
                         groups[i], compare=compare)
        except Exception as e:
            lists[i].append(e)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for t in lists[0] + lists[1]:
        if isinstance(t, Exception):
            failed.append(f"two threads: {t!r}")
        else:
            close(*t)
    expect(min(map(len, lists)) == 30, "two threads: all compared")


def ranks():
    world = dist.distributed_c10d._get_default_group()
    groups = [dist.new_group(), dist.new_group()]
    forms = ("all_gather", "chain", "pipeline", "scan")
    R, r = world.size(), world.rank()
    for i, (name, cu, sizes, o) in enumerate(CASES):
        # All forms for one KDA and one GDN case, then by turns.
        for form in forms if i in (3, 6) else (forms[i % 4],):
            one_case(f"{name}, {form}, {R} ranks", 40 + i, cu, sizes, o, form, world,
                     chunk=16)
    cuts = [0] * (R - 1) + [cu[-1] // 2, cu[-1]]
    one_case("a rank without tokens", 50, cu, (1, 2, 8, 8), options(h0=True),
             group=world, cuts=cuts)
    for W in (4, 1, 7):
        conv_case(f"conv {W}, {R} ranks", world, W=W)
        conv_case(f"conv {W}, {R} ranks, no state", world, W=W, states=False)
    # Shards shorter than the window, and one without tokens: the state travels.
    steps = range(1, R)
    for cuts in ([0] * (R - 1) + [2, 77], [0, *(77 - R + i for i in steps), 77],
                 [0, *steps, 77]):
        conv_case(f"conv, cuts {cuts}", world, cuts=cuts)
    two_threads(groups)
    # Two layers on one group, checkpointed: the second's input is the first's output.
    def stack(f, x):
        def both(*t):
            y = dict(zip(x, t))
            h, _ = f(y)
            return f(dict(y, v=torch.tanh(h)))
        return checkpoint(both, *x.values())
    gathered, plain = [], []
    c = kcp_torch.build_cp_context(PACKED, world)
    for where, into in ((c, gathered), (None, plain)):
        o = options(gate=1, h0=True)
        x, do, dht = draw(60, PACKED, 1, 2, 8, 8, o)
        x = {n: t if t is None else (c.shard(t) if where and n in TOKENS else t)
             .clone().requires_grad_() for n, t in x.items()}
        more = dict(cp_context=c) if where else dict(cu_seqlens_cpu=PACKED)
        h, _ = stack(lambda y: call(y, o, **more), x)
        (h * (c.shard(do) if where else do)).sum().backward()
        into += [h] + [x[n].grad for n in TOKENS]
    for n, a, b in zip(("o",) + TOKENS, gathered, plain):
        close(a, c.shard(b), f"two layers, checkpointed, {n}")
    # Whole gradients on every rank, when asked for.
    x, do, _ = draw(61, PACKED, 1, 2, 8, 8, options(gate=1))
    A = [x["A_log"].clone().requires_grad_() for _ in range(2)]
    for p, whole in zip(A, (False, True)):
        h, _ = call({n: c.shard(t) if n in TOKENS else p if n == "A_log" else t
                     for n, t in x.items()}, options(gate=1), cp_context=c,
                    reduce_gradients=whole)
        (h * c.shard(do)).sum().backward()
    dist.all_reduce(A[0].grad)
    close(A[0].grad, A[1].grad, "reduce_gradients")
    refuses(ValueError, ("q", "tokens on rank", "cp_context"),
            lambda: call(x, options(gate=1), cp_context=c))
    make = kcp_torch.build_cp_context
    refuses(ValueError, ("group", "int"), lambda: make([0, 9], 5))
    refuses(ValueError, ("cuts", "end with T"),
            lambda: make([0, 9], cuts=[0] * (R + 1)))
    refuses(ValueError, ("cuts", "whole numbers"), lambda: make([0, 9], cuts="ab"))
    refuses(ValueError, ("conv1d_kernel_size", "'4'"),
            lambda: make([0, 9], conv1d_kernel_size="4"))
    refuses(ValueError, ("conv1d_kernel_size", "4294967300"),
            lambda: make([0, 9], conv1d_kernel_size=2 ** 32 + 4))
    refuses(ValueError, ("cuts", "2^62"),
            lambda: make([0, 9], cuts=[0] * R + [2 ** 64 + 9]))
    refuses(ValueError, ("cu_seqlens", "2^62"), lambda: make([0, 2 ** 70]))
    if kcp_torch.ops.available:
        compiled_ranks(world, x, do)
    kcp_torch.release()


def compiled_ranks(world, x, do):
    """torch.compile over ranks, the whole graph: the same as without it."""
    c = kcp_torch.build_cp_context(PACKED, world, conv1d_kernel_size=4)
    w = torch.linspace(-1, 1, x["v"].shape[3] * 4, dtype=D).view(-1, 4)

    def layer(w, *tokens):
        q, k, v, g, beta = tokens
        flat = v.reshape(1, -1, w.shape[0])
        v = kcp_torch.causal_conv1d(flat, w, cp_context=c)[0].view(v.shape)
        return call(dict(x, q=q, k=k, v=v, g=g, beta=beta), options(gate=1),
                    cp_context=c)[0].sin()
    w = w.repeat(x["v"].shape[2], 1)
    outs = []
    for f in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        learned = [t.clone().requires_grad_()
                   for t in (w, *(c.shard(x[n]) for n in TOKENS))]
        h = f(*learned)
        outs.append([h, *torch.autograd.grad((h * c.shard(do)).sum(), learned)])
    for n, a, b in zip(("o", "w") + TOKENS, *outs):
        close(b, a, f"torch.compile over ranks, {n}")


def main():
    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    words = ""
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
        ranks()
    if int(os.environ.get("RANK", 0)) == 0:
        single()
        words = compiled()
    name = f"torch_check.py: rank {os.environ.get('RANK', 0)}"
    for line in failed[:20]:
        print(f"  FAIL  {name}: {line}")
    if words:
        print(words)
        print(f"{name}: {passed} comparisons, {len(failed)} failed; worst"
              f" {worst[0]:.1e} ({worst[1]})", flush=True)
    bad = torch.tensor([len(failed) + (passed < 100)])
    if dist.is_initialized():
        dist.all_reduce(bad)
        dist.destroy_process_group()
    return int(bad.item() > 0)


if __name__ == "__main__":
    sys.exit(main())
