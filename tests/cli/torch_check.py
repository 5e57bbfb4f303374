"""torch_check.py -- compares kcp_torch with the token recurrence in plain PyTorch.

Book: chapters 01, 08, 13, 14.

    python tests/cli/torch_check.py [--cuda]             on one rank
    torchrun --nproc_per_node=3 tests/cli/torch_check.py [--cuda]         on three ranks

On CPUs, KCP computes in double and ranks use gloo. With --cuda ranks use NCCL,
and share GPUs if there are fewer GPUs than ranks.
"""
import copy
import inspect
import os
import re
import sys
import threading
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import kcp_torch

CUDA = "--cuda" in sys.argv
DEV = "cuda" if CUDA else "cpu"
D, B16, F32, F16 = torch.float64, torch.bfloat16, torch.float32, torch.float16
TOKENS = ("q", "k", "v", "g", "beta")
FORMS = tuple(kcp_torch.chunk.FORMS)


def tolerances(row):
    """Returns a line of tests/judge/tolerance.def: limits in double, float and bf16."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "../judge/tolerance.def"), encoding="utf-8") as f:
        line = re.search(rf"^TOLERANCE\({row}, (\S+), (\S+), (\S+)\)$", f.read(), re.M)
    return [float(x) for x in line.groups()]


# Limits for o and ht, for most gradients, and for the gradients of gates and beta.
ROWS = [tolerances(row) for row in ("LAYER", "GRADIENTS", "GATES")]
LIMITS = {D: tuple(x[0] for x in ROWS), B16: tuple(x[2] for x in ROWS),
          F32: tuple(2 * x[1] for x in ROWS),
          # on sm_90 tensors of float16 are rounded to bf16
          F16: tuple(x[2] for x in ROWS), "rounded": (2e-2, 3e-2, 5e-2)}
failed, passed, worst = [], 0, [0.0, ""]


def expect(ok, what):
    global passed
    if ok:
        passed += 1
    else:
        failed.append(what)


def error(got, want):
    """Returns the relative error, in the maximum norm if `got` is double, else in RMS."""
    want, off = want.double(), got.double() - want.double()
    if not want.numel():
        return 0
    norm = (lambda t: t.abs().max()) if got.dtype == D else \
        (lambda t: t.square().mean().sqrt())
    return (norm(off) / (norm(want) if norm(want) > 0 else 1)).item()


def close(got, want, what, bound=1e-12):
    got, want = got.detach().cpu(), want.detach().cpu()
    e = error(got, want) if got.shape == want.shape else float("nan")
    expect(e <= bound, f"{what}: error {e:.1e}, at most {bound:.0e}; shape"
           f" {list(got.shape)}, should be {list(want.shape)}")
    if e > worst[0] and (CUDA or bound == 1e-12):
        worst[:] = [e, what]


def recurrence(x, cu, o):
    """Computes o and ht token by token, from eq:step and chapter 02's gates."""
    q, k, v, g, beta = (x[n][0] for n in TOKENS)
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
    return torch.stack(out)[None] if out else v[None] * 0, torch.stack(states)


def options(**o):
    """Returns a case's options. `act` is the type of q, k, v. `gates` is the type of g,
    beta. `fade` and `bias` determine how fast the state decays."""
    return dict(dict(gdn=False, gate=0, beta=0, l2norm=True, vk=False, h0=False, lb=-5.0,
                     scale=None, alike=False, act=D, gates=D, fade=0.3, bias=0), **o)


def draw(seed, cu, H, HV, K, V, o):
    """Draws inputs and the gradients of o and ht, rounded to the types in options `o`."""
    gen = torch.Generator().manual_seed(seed)
    r = lambda *s: torch.randn(*s, generator=gen, dtype=D)
    T, N = cu[-1], len(cu) - 1
    wide = (HV,) if o["gdn"] else (HV, K)
    state = (N, HV, V, K) if o["vk"] else (N, HV, K, V)
    x = dict(q=r(1, T, H, K), k=r(1, T, H, K), v=r(1, T, HV, V), g=r(1, T, *wide),
             beta=r(1, T, HV), A_log=None, dt_bias=None, h0=None)
    if o["alike"]:
        x["k"] = x["k"][:, :1] + 0.1 * x["k"]
    if not o["gate"]:
        x["g"] = -o["fade"] * x["g"].abs()
    else:
        x["A_log"], x["dt_bias"] = 0.3 * r(HV), r(*wide) + o["bias"]
    if not o["beta"]:
        x["beta"] = torch.sigmoid(x["beta"])
    if not o["l2norm"]:
        x["k"] = F.normalize(x["k"], dim=-1)
    if o["h0"]:
        x["h0"] = r(*state)
    rest = D if o["act"] == D else F32
    kinds = dict(q=o["act"], k=o["act"], v=o["act"], g=o["gates"], beta=o["gates"])
    x = {n: None if t is None else t.to(kinds.get(n, rest)) for n, t in x.items()}
    return x, r(1, T, HV, V).to(o["act"]), r(*state).to(rest)


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


def context_of(cu, group, cuts, **more):
    """Returns a context for these cuts, or for layout zigzag."""
    more["layout" if cuts == "zigzag" else "cuts"] = cuts
    return kcp_torch.build_cp_context(cu, group, **more)


def one_case(name, seed, cu, sizes, o, form="all_gather", group=None, cuts=None,
             chunk=64, wrap=lambda f, x: f(x), compare=close, save=False, limits=None,
             **more):
    """Compares this rank's outputs and gradients with the recurrence on the whole batch."""
    x, do, dht = draw(seed, cu, *sizes, o)
    want = {n: t if t is None else t.double().clone().requires_grad_()
            for n, t in x.items()}
    wo, wht = recurrence(want, cu, o)
    ((wo * do).sum() + (wht * dht).sum()).backward()
    part, R = lambda t: t, 1
    if group is not None:
        more["cp_context"] = c = context_of(cu, group, cuts)
        part, R = c.shard, c.size
    else:
        more["cu_seqlens_cpu"] = cu
    got = {n: None if t is None else
           (part(t) if n in TOKENS else t).to(DEV).clone().requires_grad_()
           for n, t in x.items()}
    h, ht = wrap(lambda y: call(y, o, form=form, chunk_size=chunk,
                                disable_recompute=save, **more), got)
    ((h.double() * part(do).to(DEV)).sum() + (ht.double() * dht.to(DEV)).sum()).backward()
    limits = LIMITS[limits or o["act"]]
    compare(h, part(wo), f"{name} o", limits[0])
    whole = {"ht": ht.detach().clone()}
    for n in ("A_log", "dt_bias", "h0"):
        if x[n] is not None:
            whole["d" + n] = got[n].grad.clone()
    for n, t in sorted(whole.items()):        # sums the ranks' parts
        if R > 1:
            dist.all_reduce(t, group=None if CUDA else group)
        compare(t, wht if n == "ht" else want[n[1:]].grad, f"{name} {n}",
                limits[{"ht": 0, "dh0": 1}.get(n, 2)])
    for n in TOKENS:
        compare(got[n].grad, part(want[n].grad), f"{name} d{n}",
                limits[2 if n in ("g", "beta") else 1])


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
if CUDA:
    LONG = (0, 200, 200, 345, 346, 1000)
    gpu = lambda act, gates=None, **o: options(
        act=act, gates=gates or act, beta=1, h0=True, fade=0.05, bias=-3, **o)
    CASES = [
        ("bf16, packed", LONG, (2, 4, 128, 128), gpu(B16, gate=2)),
        ("bf16, K = V = 64, V first", LONG, (2, 2, 64, 64), gpu(B16, gate=1, vk=True)),
        ("bf16, GDN", LONG, (2, 4, 128, 128), gpu(B16, gdn=True, gate=1)),
        ("bf16, ready gates", LONG, (2, 2, 128, 128), gpu(B16)),
        ("bf16, 60 channels", LONG, (1, 2, 60, 60), gpu(B16)),
        ("bf16, alike keys", LONG, (2, 2, 128, 128), gpu(B16, gate=2, alike=True)),
        ("bf16 with float32 gates", LONG, (2, 2, 128, 128), gpu(B16, F32)),
        ("float32", LONG, (2, 4, 64, 32), gpu(F32, gate=1)),
        ("float32, tiles", LONG, (2, 4, 128, 64), gpu(F32, gate=1)),
        ("float32, GDN, tiles", LONG, (2, 4, 64, 128), gpu(F32, gdn=True, gate=1)),
        ("float16", LONG, (2, 2, 64, 64), gpu(F16, gate=1)),
        ("float16, GDN, float32 gates", LONG, (2, 4, 96, 128), gpu(F16, F32, gdn=True)),
    ]


def conv_case(name, group=None, cu=PACKED, cuts=None, W=4, states=True, act=D,
              bound=1e-12):
    """Compares y, states and gradients with PyTorch's convolution. With a group,
    column 0 of the states is 0 and has no gradient, because no window needs it."""
    gen = torch.Generator().manual_seed(5)
    r = lambda *s: torch.randn(*s, generator=gen, dtype=D).to(act)
    x, w, b, dy = r(1, cu[-1], 6), r(6, W), r(6), r(1, cu[-1], 6)
    state, dlast = r(len(cu) - 1, 6, W), r(len(cu) - 1, 6, W)
    want = [t.double().clone().requires_grad_() for t in (x, w, b, state)]
    before = want[3] if states else torch.zeros_like(want[3])
    rows = [torch.cat([before[n], want[0][0, s:e].t()], 1)
            for n, (s, e) in enumerate(zip(cu, cu[1:]))]
    parts = [F.conv1d(t[None, :, 1:], want[1][:, None], want[2], groups=6)
             .transpose(1, 2) for t in rows if t.shape[1] > W]
    wy = F.silu(torch.cat(parts, 1)) + want[0]
    wlast = torch.stack([t[:, -W:] for t in rows])
    part, more = lambda t: t, dict(cu_seqlens_cpu=cu)
    if group is not None:
        c = context_of(cu, group, cuts, conv1d_kernel_size=W)
        part, more = c.shard, dict(cp_context=c)
        wlast = torch.cat([torch.zeros_like(wlast[:, :, :1]), wlast[:, :, 1:]], 2)
    ((wy * dy).sum() + (wlast * dlast).sum()).backward()
    got = [t.to(DEV).clone().requires_grad_() for t in (part(x), w, b, state)]
    y, last = kcp_torch.causal_conv1d(
        *got[:3], residual=got[0], initial_state=got[3] if states else None,
        output_final_state=True, activation="silu", **more)
    ((y.double() * part(dy).to(DEV)).sum() + (last.double() * dlast.to(DEV)).sum()
     ).backward()
    close(y, part(wy), f"{name} y", bound)
    close(got[0].grad, part(want[0].grad), f"{name} dx", 4 * bound)
    for t, u, n in ((got[1].grad, want[1].grad, "dweight"),
                    (got[2].grad, want[2].grad, "dbias"),
                    (last.detach().clone(), wlast, "states"),
                    (got[3].grad, want[3].grad, "dstates")):
        if t is None or u is None:
            expect(not states and t is u, f"{name} {n}: one is None")
            continue
        if group is not None:                 # sums the ranks' parts
            dist.all_reduce(t, group=group)
        close(t, u, f"{name} {n}", 0 if n == "states" else 4 * bound)


def conv_states():
    """Checks that two halves of a sequence, joined by the state, give the results of the
    whole sequence. Also checks decoding."""
    x, w = torch.randn(2, 11, 3, dtype=D), torch.randn(3, 4, dtype=D)
    conv = kcp_torch.causal_conv1d
    y, last = conv(x, w, output_final_state=True)
    y1, s1 = conv(x[:, :2], w, output_final_state=True)
    y2, s2 = conv(x[:, 2:], w, initial_state=s1, output_final_state=True)
    close(torch.cat([y1, y2], 1), y, "conv in two halves")
    close(s2, last, "conv's state")
    close(last, x[:, -4:].transpose(1, 2), "conv's state is the last rows")
    expect(torch.equal(conv(x, w)[0], y), "conv with and without its state")
    layer = kcp_torch.ShortConvolution(3, 4, bias=True, dtype=D)
    expect({n: tuple(t.shape) for n, t in layer.state_dict().items()} ==
           {"weight": (3, 1, 4), "bias": (3,)}, "ShortConvolution's weights")
    want = F.silu(F.conv1d(x.transpose(1, 2), layer.weight, layer.bias, padding=3,
                           groups=3)[..., :11].transpose(1, 2)) + x
    close(layer(x, residual=x)[0], want, "ShortConvolution")
    mask = (torch.arange(11)[None] >= torch.tensor([[3], [0]])).to(D)
    close(layer(x, mask=mask)[0], layer(x * mask[..., None])[0], "conv's mask")
    with torch.no_grad():                     # a prompt of 8, then token by token
        first, cache = layer(x[:, :8], residual=x[:, :8], output_final_state=True)
        parts = [first] + [layer(x[:, t:t + 1], residual=x[:, t:t + 1], cache=cache)[0]
                           for t in range(8, 11)]
    close(torch.cat(parts, 1), want, "ShortConvolution, decoding")
    close(cache, last, "ShortConvolution's cache")
    refuses(ValueError, "mask packed", lambda: layer(
        x[:1], mask=mask[:1], cu_seqlens=[0, 11]))
    expect(torch.equal(copy.deepcopy(layer)(x)[0], layer(x)[0]), "a copied layer")
    half, s = conv(x.bfloat16(), w, output_final_state=True)
    expect(half.dtype == s.dtype == B16, "bfloat16 in, bfloat16 state out")


def refuses(kind, words, f):
    try:
        f()
    except kind as e:
        expect(all(w in str(e) for w in words.split()) and "\n" not in str(e),
               f"{e}: lacks one of {words}, or has more than one line")
    except Exception as e:
        expect(False, f"{words}: {e!r}, expected {kind.__name__}")
    else:
        expect(False, f"{words}: nothing is refused")


def errors():
    x, _, _ = draw(1, (0, 20), 2, 4, 8, 8, options())
    f, two, cu = kcp_torch.chunk_kda, lambda t: torch.cat([t, t]), "cu_seqlens"
    q, k, v, g, beta = (x[n] for n in TOKENS)
    for words, more in (
            ("q int64 floating", dict(q=q.long())),
            ("k [1, 20, 2, 4] [1, 20, 2, 8]", dict(k=k[..., :4])),
            ("v 3 heads multiple", dict(v=v[:, :, :3])),
            ("g [1, 20, 4]", dict(g=g[..., 0])),
            ("beta [1, 19, 4]", dict(beta=beta[:, 1:])),
            ("q 0 channels", dict(q=q[..., :0], k=k[..., :0], g=g[..., :0])),
            ("q NoneType tensor", dict(q=None)), ("q ndarray", dict(q=q.numpy())),
            ("q [20, 2, 8] [B,", dict(q=q[0])), ("k complex128", dict(k=k + 0j)),
            ("v [20, 4, 8] HV", dict(v=v[0])), ("v 1 heads", dict(v=v[:, :, :1])),
            ("beta [20, 4]", dict(beta=beta[0])), ("save 'most' all", dict(save="most")),
            ("save ['all']", dict(save=["all"])), ("form ['ring']", dict(form=["ring"])),
            ("A_log [3] [4]", dict(use_gate_in_kernel=True, A_log=torch.zeros(3))),
            ("A_log list [4]", dict(use_gate_in_kernel=True, A_log=[0, 0, 0, 0])),
            ("A_log int64", dict(use_gate_in_kernel=True, A_log=torch.arange(4))),
            ("dt_bias [5] [4, 8]", dict(use_gate_in_kernel=True, A_log=torch.zeros(4),
                                        dt_bias=torch.zeros(5))),
            ("initial_state list", dict(initial_state=[0])),
            ("lower_bound 'a'", dict(lower_bound="a")),
            ("lower_bound -inf -5", dict(lower_bound=float("-inf"), use_gate_in_kernel=True)),
            ("lower_bound None safe_gate", dict(safe_gate=True, use_gate_in_kernel=True)),
            ("scale 1j", dict(scale=1j)), ("chunk_size 64.0", dict(chunk_size=64.0)),
            (cu + " () 0 first", dict(cu_seqlens=[])), (cu + " (5, 20)", dict(cu_seqlens=[5, 20])),
            (cu + " (2, 2) [N+1]", dict(cu_seqlens=torch.zeros(2, 2, dtype=torch.int64))),
            (cu + "_cpu 21 20", dict(cu_seqlens_cpu=[0, 21])),
            ("q sparse", dict(q=q.to_sparse())), ("v device meta", dict(v=v.to("meta"))),
            ("A_log None", dict(use_gate_in_kernel=True)),
            ("initial_state [1, 4, 8, 8]", dict(initial_state=torch.zeros(2, 4, 8, 8))),
            (cu + " 19 20", dict(cu_seqlens=torch.tensor([0, 19]))),
            (cu + " never less", dict(cu_seqlens=torch.tensor([0, 30, 20]))),
            (cu + " float", dict(cu_seqlens=torch.tensor([0., 20.]))),
            (cu + " whole", dict(cu_seqlens=7)), (cu + " whole", dict(cu_seqlens="0,20")),
            (cu + " whole", dict(cu_seqlens=[0, 7.5, 20])),
            # C would truncate these numbers: to 20 in int64_t, to 64 in int.
            (cu + f" {2 ** 64 + 20}", dict(cu_seqlens=[0, 2 ** 64 + 20])),
            (cu + " -", dict(cu_seqlens=[0, -2 ** 64 + 20])),
            (f"chunk_size {2 ** 32 + 64}", dict(chunk_size=2 ** 32 + 64)),
            ("chunk_size 0", dict(chunk_size=0)), ("chunk_size '64'", dict(chunk_size="64")),
            ("scale 'a'", dict(scale="a")), ("scale 1000000", dict(scale=10 ** 400)),
            ("scale nan", dict(scale=float("nan"))), ("scale inf", dict(scale=float("inf"))),
            ("scale tensor", dict(scale=torch.tensor(-.5))),
            ("lower_bound tensor", dict(lower_bound=torch.tensor(-.5))),
            ("lower_bound below 0", dict(lower_bound=1.0)),
            ("form ring", dict(form="ring")), ("cp_context object", dict(cp_context=object())),
            ("q batch of 2", dict({n: two(x[n]) for n in TOKENS}, cu_seqlens=[0, 20]))):
        refuses(ValueError, words, lambda: f(**dict({n: x[n] for n in TOKENS}, **more)))
    refuses(TypeError, "temperature", lambda: f(q, k, v, g, beta, temperature=1))
    refuses(NotImplementedError, "return_intermediate_states True False",
            lambda: f(q, k, v, g, beta, return_intermediate_states=True))
    for words, call_ in (
            ("hidden_size 0", lambda: kcp_torch.ShortConvolution(0, 4)),
            ("kernel_size 'a'", lambda: kcp_torch.ShortConvolution(8, "a")),
            ("activation 'relu'", lambda: kcp_torch.ShortConvolution(8, 4, activation="relu")),
            ("x [1, 5, 7] 8]", lambda: kcp_torch.ShortConvolution(8, 4)(torch.zeros(1, 5, 7)))):
        refuses(ValueError, words, call_)
    for words, more in (
            ("x [4, 8] [B, T, D]", dict(x=v[0, 0])), ("weight NoneType", dict(weight=None)),
            ("weight [8, 0] column", dict(weight=torch.zeros(8, 0))),
            ("bias [3] [8]", dict(bias=torch.zeros(3))), ("x int64", dict(x=v[0].long())),
            ("residual [1, 3, 8]", dict(residual=torch.zeros(1, 3, 8))),
            ("activation", dict(activation="relu")), ("weight", dict(weight=torch.zeros(7, 4))),
            ("initial_state [20, 8, 3] [20, 8, 4]", dict(initial_state=torch.zeros(20, 8, 3)))):
        refuses(ValueError, words, lambda: kcp_torch.causal_conv1d(
            **dict(dict(x=v[0], weight=torch.zeros(8, 4)), **more)))
    if kcp_torch.ops.available:
        from torch._subclasses import FakeTensorMode
        with FakeTensorMode() as mode:
            fake = [mode.from_tensor(t) for t in (q, k, v, g, beta)]
            refuses(ValueError, "q FakeTensor memory", lambda: f(*fake))
    forward = torch.autograd.forward_ad
    with forward.dual_level():                # without an error the tangent would be lost
        dual = forward.make_dual(v, v)
        refuses(NotImplementedError, "forward-mode", lambda: f(q, k, dual, g, beta))
        refuses(NotImplementedError, "forward-mode",
                lambda: kcp_torch.causal_conv1d(dual[0], torch.zeros(8, 4)))
    if hasattr(torch, "func"):
        refuses(NotImplementedError, "torch.func", lambda: torch.func.vmap(
            lambda y: f(q, k, y, g, beta)[0])(two(v)[:, None]))


FLA = {"chunk_kda": "q k v g beta scale initial_state output_final_state"
       " use_qk_l2norm_in_kernel use_gate_in_kernel use_beta_sigmoid_in_kernel"
       " allow_neg_eigval safe_gate lower_bound disable_recompute"
       " return_intermediate_states state_v_first cu_seqlens cu_seqlens_cpu cp_context",
       "chunk_gated_delta_rule": "q k v g beta scale initial_state output_final_state"
       " use_qk_l2norm_in_kernel use_beta_sigmoid_in_kernel allow_neg_eigval"
       " state_v_first cu_seqlens cu_seqlens_cpu chunk_indices cp_context",
       "causal_conv1d": "x weight bias residual initial_state output_final_state"
       " activation backend cu_seqlens cu_seqlens_cpu chunk_indices cp_context"}


def interfaces():
    """Checks that arguments have FLA 0.5.2's order, and that libkcp.so knows kcp_call."""
    for name, words in FLA.items():
        ours = list(inspect.signature(getattr(kcp_torch, name)).parameters)
        expect(ours[:len(words.split())] == words.split(), f"{name}{ours}")
    x, w = torch.randn(1, 9, 3, dtype=D), torch.randn(3, 4, dtype=D)
    a, b = (kcp_torch.causal_conv1d(x, w, **more)[0] for more in (
        {}, dict(backend="triton", chunk_indices=torch.zeros(2, 2))))
    expect(torch.equal(a, b), "arguments that are not read")
    refuses(ValueError, "backend", lambda: kcp_torch.causal_conv1d(
        x, w, None, None, None, False, None, [0, 4, 9]))
    from kcp_torch import library
    expect(library.size("kcp_call") > 0 and library.member("kcp_call", "T"), "kcp_call")
    refuses(ImportError, "found no", lambda: library.member("kcp_call", "none"))


def second_derivatives():
    """Checks that second derivatives are refused for any loss, even for a sum, whose
    gradient is constant. Tests casts, views and the custom ops."""
    x, _, _ = draw(3, (0, 20), 1, 2, 8, 8, options())
    flat, _, _ = draw(3, (0, 20), 1, 2, 8, 8, options(gdn=True))
    w = torch.linspace(-1, 1, 64, dtype=D).view(16, 4)
    kda = lambda **y: kcp_torch.chunk_kda(**y)[0]
    gdn = lambda **y: kcp_torch.chunk_gated_delta_rule(**y)[0]
    conv = lambda **y: kcp_torch.causal_conv1d(**y)[0]
    calls = [(kda, x, "k", "v"), (gdn, flat, "k", "q"),
             (conv, dict(x=x["v"].reshape(1, 20, 16), weight=w), "x", "weight")]
    if kcp_torch.ops.available:
        layer = ("KCP_KDA", None, False, False, False, False, None, "recompute", False,
                 64, "all_gather", False, False)
        calls += [(lambda **y: kcp_torch.ops.chunk(
            layer, (0, 20), None, None, (*y.values(), None, None, None))[0], x, "k", "v"),
            (lambda x, weight: kcp_torch.ops.conv(
                ((0, 20), None, 4, True, False), None, False, (x, weight, None, None)),
             calls[2][1], "x", "weight")]
    for f, given, first, second in calls:
        for kind, loss in ((D, torch.sum), (F32, lambda o: o.square().sum())):
            y = {n: t.to(kind).clone().requires_grad_()
                 for n, t in given.items() if t is not None}
            o = f(**{n: t.mT.contiguous().mT for n, t in y.items()})
            g, = torch.autograd.grad(loss(o), y[first], create_graph=True)
            last = (g ** 2).sum() + o.sum()
            refuses(RuntimeError, "second derivative first",
                    lambda: torch.autograd.grad(last, y[second]))


def choices():
    """Checks the types and the chunk size that kcp_torch selects on a GPU, and the reason
    why kernels are slow, given a table of paths in which `wide` fast kernels read float32
    gates."""
    from kcp_torch import paths
    old, as_q = paths.plain, kcp_torch.library.value("KCP_AS_Q")

    def table(wide):
        def plain(store, options, chunk):
            o = dict(options)
            need = ["q is f32, expected bf16"] * (store != "KCP_BF16")
            need += ["g is f32, expected bf16"] * (
                not wide and not o["g_type"] == o["beta_type"] == as_q)
            need += [f"C is {chunk}, expected 64"] * (chunk != 64)
            need += [f"K is {o['K']}, expected 128"] * (o["K"] != 128)
            return f"forward_plain: {'; '.join(need)}" if need else ""
        return plain
    bf16 = ("KCP_BF16", B16, B16, B16)
    try:
        for wide, types, C, K, rounded, want, why in (
                (False, (B16, B16, B16), 64, 128, False, (*bf16, 64), ""),
                (False, (B16, B16, B16), 32, 128, False, (*bf16, 64), ""),
                (False, (B16, F16, B16), 64, 128, False, (*bf16, 64), ""),
                (False, (B16, F32, B16), 64, 128, True, (*bf16, 64), ""),
                (False, (B16, F32, B16), 32, 128, False, ("KCP_F32", F32, F32, F32, 32),
                 "forward_plain runs: g is f32, expected bf16; C is 32, .*round_gates"),
                (True, (B16, F32, B16), 64, 128, False, ("KCP_BF16", B16, F32, B16, 64), ""),
                (True, (B16, F32, F32), 16, 128, False, ("KCP_BF16", B16, F32, F32, 64), ""),
                (True, (B16, B16, B16), 64, 96, False, (*bf16, 64), "K is 96, expected 128"),
                (True, (F16, F32, F16), 32, 128, False, ("KCP_BF16", F16, F32, F16, 64), ""),
                (True, (F16, F32, F16), 64, 128, True, ("KCP_BF16", F16, B16, B16, 64), ""),
                (True, (F16, F16, F16), 64, 96, False, ("KCP_F32", F32, F32, F32, 64),
                 "K is 96, expected 128")):
            paths.plain = table(wide)
            paths.choose.cache_clear()
            o = kcp_torch.chunk.Options(("KCP_GDN", 1.0, True, False, False, False, None,
                                         "recompute", False, C, "all_gather", False, rounded))
            got = paths.choose(*types, rounded, o.words(2, 2, K, K), C)
            expect(got[:5] == want and bool(got.why) == bool(why) and
                   re.search(why, got.why), f"choices: {types} {C} {K}: {got}")
    finally:
        paths.plain = old
        paths.choose.cache_clear()


def single():
    choices()
    for i, (name, cu, sizes, o) in enumerate(CASES):
        one_case(name, i, cu, sizes, o, chunk=64 if i % 2 or CUDA else 16, save=i == 2)
    for again in (True, False):               # both kinds of checkpoint
        one_case("checkpoint", 11, *CASES[2][1:],
                 wrap=lambda f, y: checkpoint(lambda *t: f(dict(zip(y, t))),
                                              *y.values(), use_reentrant=again))
    for act, bound in ((F32, LIMITS[F32][0]), (B16, LIMITS[B16][0])) if CUDA else ((D, 1e-12),):
        for W in (4, 1, 2, 5):
            conv_case(f"conv {W}, {act}", W=W, act=act, bound=bound)
            conv_case(f"conv {W}, {act}, no state", W=W, states=False, act=act, bound=bound)
    if CUDA:
        one_case("float32 gates, rounded", 6, LONG, (2, 2, 128, 128), gpu(B16, F32),
                 limits="rounded", round_gates=True)
        return
    # A batch of B rows must equal B packed sequences. On CPUs, KCP computes in double.
    x, _, _ = draw(3, (0, 40), 1, 2, 8, 8, options())
    to = lambda kind: {n: t if t is None else t.to(kind) for n, t in x.items()}
    split = {n: None if t is None else t.reshape(2, 20, *t.shape[2:])
             for n, t in x.items()}
    a, b = call(split, options()), call(x, options(), cu_seqlens_cpu=[0, 20, 40])
    close(a[0].reshape(b[0].shape), b[0], "a batch of two")
    close(a[1], b[1], "a batch of two, states")
    small, half, whole = (call(to(t), options()) for t in (F32, B16, D))
    expect([t.dtype for t in (*small, *half)] == [F32, F32, B16, F32], "types of outputs")
    close(small[0], whole[0], "float32", 1e-5)
    conv_states()
    alike()
    errors()
    interfaces()
    from kcp_torch.library import plan_of
    made = plan_of.cache_info().misses
    call(x, options(), cu_seqlens=torch.tensor([0, 7, 40]))
    call(x, options(), cu_seqlens=torch.tensor([0, 7, 40], dtype=torch.int32))
    call(x, options(), cu_seqlens_cpu=[0, 7, 40])
    expect(plan_of.cache_info().misses == made + 1, "equal cu_seqlens, one plan")
    second_derivatives()
    q = x["q"].clone().requires_grad_()
    with torch.no_grad():
        expect(not call(dict(x, q=q), options())[0].requires_grad, "no_grad")


def some_grads(x, learned=(), mode=torch.enable_grad):
    """Returns outputs, and the gradients of the inputs named in `learned`."""
    x = {n: t if t is None or n not in learned else t.detach().requires_grad_()
         for n, t in x.items()}
    with mode():
        h, ht = call(x, options(gate=1))
    grads = torch.autograd.grad((h.sum() + ht.sum()), [x[n] for n in learned]) \
        if learned and h.requires_grad else ()
    expect(bool(learned) == h.requires_grad or mode is not torch.enable_grad,
           f"gradients of {learned}")
    return [t.detach().clone() for t in (h, ht, *grads)]


def conv_outputs(**x):
    y, last = kcp_torch.causal_conv1d(output_final_state=True, **x)
    learn = any(t.requires_grad for t in x.values() if torch.is_tensor(t))
    expect(y.requires_grad == learn, "gradients of a convolution")
    return [y.detach(), last.detach()]


def false_hits(f, calls):
    """Runs each call alone, which gives its expected result, then each pair of calls in both
    orders. Returns how many results of the pairs are wrong, and the expected results."""
    want = []
    for more in calls:
        kcp_torch.release()                   # empties the cache of calls
        want.append(f(**more))
    return sum(not all(map(torch.equal, f(**calls[i]), want[i]))
               for a in range(len(calls)) for b in range(a) for i in (a, b, b, a)), want


def alike():
    """A call whose cache key equals that of an earlier call skips checks. The calls below
    differ from each other, and none may be a false cache hit."""
    x, _, _ = draw(5, (0, 40), 1, 2, 8, 8, options(gate=1, h0=True))
    odd = torch.empty(x["q"].numel() + 1, dtype=D)[1:].view_as(x["q"]).copy_(x["q"])
    wide = torch.stack([x["q"], x["k"]], -1)[..., 0]
    calls = [
        dict(x=x), dict(x=dict(x, q=wide)), dict(x=dict(x, q=x["q"]._neg_view())),
        dict(x=dict(x, q=odd)), dict(x=dict(x, k=x["q"])), dict(x=dict(x, v=x["v"].float())),
        dict(x=dict(x, h0=None)), dict(x=dict(x, dt_bias=None)),
        dict(x=dict(x, dt_bias=x["dt_bias"].reshape(-1))),
        dict(x=dict(x, A_log=torch.nn.Parameter(x["A_log"])), mode=torch.no_grad),
        dict(x=x, mode=torch.inference_mode), dict(x=x, learned=("v",)),
        dict(x=x, learned=("h0", "A_log")), dict(x=dict(x, q=wide), learned=("k", "g")),
        dict(x={n: t if n in ("A_log", "dt_bias", "h0") else t[:, :39]
                for n, t in x.items()})]
    bad, want = false_hits(some_grads, calls)
    expect(torch.equal(want[2][0], -want[0][0]), "a negated view")
    expect(not bad, f"{bad} calls: false cache hits")
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
    expect(not false_hits(conv_outputs, calls)[0], "convolutions: false cache hits")
    refuses(ValueError, "x batch of 2", lambda: kcp_torch.causal_conv1d(
        x.view(2, 8, 6), w, cu_seqlens=[0, 8, 16]))
    kcp_torch.release()


def compiled(group=None):
    """Checks that torch.compile of a whole graph does not change results on any rank."""
    if not kcp_torch.ops.available:
        return f"torch.compile: needs PyTorch 2.4, this is {torch.__version__}: skipped"
    o = options(gate=1)
    x, do, _ = draw(4, PACKED, 1, 2, 8, 8, o)
    more, part = dict(cu_seqlens_cpu=list(PACKED)), lambda t: t
    if group is not None:
        c = kcp_torch.build_cp_context(PACKED, group, conv1d_kernel_size=4)
        more, part = dict(cp_context=c), c.shard
    x = {n: t if t is None else part(t) if n in TOKENS else t for n, t in x.items()}
    x["w"] = torch.linspace(-1, 1, 64, dtype=D).view(16, 4)
    names = [n for n in x if x[n] is not None]

    def layer(*t):
        y = dict(x, **dict(zip(names, t)))
        v = kcp_torch.causal_conv1d(y["v"].reshape(1, -1, 16), y["w"], **more)[0]
        return call(dict(y, v=v.view_as(y["v"])), o, **more)[0].sin()
    outs = []
    for f in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        t = [x[n].to(DEV).clone().requires_grad_() for n in names]
        y = f(*t)
        outs.append([y] + list(torch.autograd.grad((y * part(do).to(DEV)).sum(), t)))
    for a, b, n in zip(*outs, ["o"] + names):
        close(b, a, f"torch.compile {n}")
    packed = torch.compile(lambda v, cu: kcp_torch.causal_conv1d(
        v, x["w"], cu_seqlens=cu)[0], fullgraph=True, backend="aot_eager")
    refuses(ValueError, "give cu_seqlens_cpu as a list",
            lambda: packed(x["v"].reshape(1, -1, 16), torch.tensor(PACKED)))
    return "torch.compile traces the custom op"


def two_threads(groups):
    """Checks that concurrent calls of two threads with different groups do not mix."""
    lists = [[], []]

    def work(i):
        compare = lambda *t: lists[i].append(t)
        try:
            for n in range(3):
                one_case(f"thread {i}", 20 + n, PACKED, (1, 2, 8, 8),
                         options(gate=1, h0=True), "chain" if i else "all_gather",
                         groups[i], compare=compare)
        except Exception as e:
            failed.append(f"two threads: {e!r}")
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for t in lists[0] + lists[1]:
        close(*t)
    expect(min(map(len, lists)) == 30, "two threads: all compared")


def ranks():
    world = dist.distributed_c10d._get_default_group()
    R, name = world.size(), f"{world.size()} ranks"
    for i, (what, cu, sizes, o) in enumerate(CASES):
        # Two cases (on CPUs KDA and GDN) run with all exchange forms, the others with one.
        for form in FORMS if i in (3, 6) else (FORMS[i % len(FORMS)],):
            one_case(f"{what}, {form}, {name}", 40 + i, cu, sizes, o, form, world,
                     chunk=64 if CUDA else 16)
    uneven = [0] * (R - 1) + [cu[-1] // 2, cu[-1]]
    one_case("ranks without tokens", 50, *CASES[1][1:], group=world,
             cuts=uneven[:-2] + [CASES[1][1][-1] // 2, CASES[1][1][-1]])
    # The convolution's state crosses shards shorter than W rows, and an empty shard.
    act, bound, steps = (B16, LIMITS[B16][0], range(1, R)) if CUDA else (D, 1e-12, range(1, R))
    for W in (4, 1, 7):
        for states in (True, False):
            conv_case(f"conv {W}, {states}, {name}", world, W=W, states=states, act=act,
                      bound=bound)
    for cuts in ([0] * (R - 1) + [2, 77], [0, *(77 - R + i for i in steps), 77],
                 [0, *steps, 77]):
        conv_case(f"conv, cuts {cuts}", world, cuts=cuts, act=act, bound=bound)
    conv_case("conv, zigzag", world, cuts="zigzag", act=act, bound=bound)
    for i in 1, 6, 2:
        one_case(f"zigzag {i}, {name}", 70 + i, *CASES[i][1:], FORMS[i % 4], world, "zigzag",
                 chunk=64 if CUDA else 16)
    if CUDA:                                  # here kcp_torch makes an NCCL communicator
        one_case(f"a gloo group, {name}", 60, *CASES[0][1:],
                 group=dist.new_group(backend="gloo"))
        kcp_torch.release()
        t = torch.ones(1, device="cuda")
        dist.all_reduce(t)
        expect(t.item() == R, "the group's communicator works after release")
        return
    two_threads([dist.new_group(), dist.new_group()])
    # Tests two checkpointed layers on one group. The second layer reads the output of
    # the first layer.
    c, o = kcp_torch.build_cp_context(PACKED, world), options(gate=1, h0=True)
    x, do, _ = draw(60, PACKED, 1, 2, 8, 8, o)
    outs = []
    for part, more in ((c.shard, dict(cp_context=c)),
                       (lambda t: t, dict(cu_seqlens_cpu=PACKED))):
        y = {n: t if t is None else (part(t) if n in TOKENS else t).clone()
             .requires_grad_() for n, t in x.items()}

        def both(*t):
            z = dict(zip(y, t))
            return call(dict(z, v=torch.tanh(call(z, o, **more)[0])), o, **more)[0]
        h = checkpoint(both, *y.values())
        (h * part(do)).sum().backward()
        outs.append([h] + [y[n].grad for n in TOKENS])
    for n, a, b in zip(("o",) + TOKENS, *outs):
        close(a, c.shard(b), f"two layers, checkpointed, {n}")
    # With reduce_gradients, every rank must have A_log's gradient summed over all ranks.
    A = [x["A_log"].clone().requires_grad_() for _ in range(2)]
    for p, whole in zip(A, (False, True)):
        h, _ = call({n: c.shard(t) if n in TOKENS else p if n == "A_log" else t
                     for n, t in x.items()}, o, cp_context=c, reduce_gradients=whole)
        (h * c.shard(do)).sum().backward()
    dist.all_reduce(A[0].grad)
    close(A[0].grad, A[1].grad, "reduce_gradients")
    refuses(ValueError, "q tokens on rank cp_context", lambda: call(x, o, cp_context=c))
    for words, a, more in (
            ("group int", [0, 9], dict(group=5)),
            ("cuts end with T", [0, 9], dict(cuts=[0] * (R + 1))),
            (f"cuts 1 expected {R + 1}", [0, 9], dict(cuts=[0])),
            ("layout 'ring' zigzag", [0, 9], dict(layout="ring")),
            ("layout ['zigzag']", [0, 9], dict(layout=["zigzag"])),
            ("cuts zigzag None", [0, 9], dict(layout="zigzag", cuts=[0, 9])),
            ("conv1d_kernel_size -1", [0, 9], dict(conv1d_kernel_size=-1)),
            ("group str", [0, 9], dict(group="world")),
            ("cu_seqlens None whole", None, {}), ("cu_seqlens 'abc'", "abc", {}),
            ("cu_seqlens () 0 first", [], {}), ("cu_seqlens 2.5 whole", [0, 2.5], {}),
            ("cuts whole numbers", [0, 9], dict(cuts="ab")),
            ("conv1d_kernel_size '4'", [0, 9], dict(conv1d_kernel_size="4")),
            ("conv1d_kernel_size 4294967300", [0, 9], dict(conv1d_kernel_size=2 ** 32 + 4)),
            ("cuts 2^62", [0, 9], dict(cuts=[0] * R + [2 ** 64 + 9])),
            ("cu_seqlens 2^62", [0, 2 ** 70], {})):
        refuses(ValueError, words, lambda: kcp_torch.build_cp_context(a, **more))
    whole = torch.zeros(1, PACKED[-1], 2)
    for words, f in (("x [1, 76, 2], dim 1 77", lambda: c.shard(whole[:, 1:])),
                     ("x dim 4 77", lambda: c.shard(whole, 4)),
                     ("x list tensor", lambda: c.shard([1, 2])),
                     (f"rank {R} {R - 1}", lambda: c.positions(R)),
                     ("group str None", lambda: kcp_torch.release("world"))):
        refuses(ValueError, words, f)
    compiled(world)
    kcp_torch.release()


def own_gpu():
    """Selects a GPU per rank. Ranks that share a GPU get different NCCL host ids."""
    local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if int(os.environ["LOCAL_WORLD_SIZE"]) > gpus:
        os.environ.update(NCCL_HOSTID=f"rank{local}", NCCL_SOCKET_IFNAME="lo")
    torch.cuda.set_device(local % gpus)


def main():
    if CUDA and not torch.cuda.is_available():
        print("torch_check.py: no GPU here: nothing was run")
        return 0
    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    words = ""
    if "WORLD_SIZE" in os.environ:
        if CUDA:
            own_gpu()
        dist.init_process_group("nccl" if CUDA else "gloo")
        ranks()
    if int(os.environ.get("RANK", 0)) == 0:
        single()
        words = compiled() if not CUDA else torch.cuda.get_device_name()
    name = f"torch_check.py: rank {os.environ.get('RANK', 0)}"
    for line in failed[:20]:
        print(f"  FAIL  {name}: {line}")
    if words:
        print(words)
        print(f"{name}: {passed} comparisons, {len(failed)} failed; worst"
              f" {worst[0]:.1e} ({worst[1]})", flush=True)
    bad = torch.tensor([len(failed) + (passed < 20)], device=DEV)
    if dist.is_initialized():
        dist.all_reduce(bad)
        dist.destroy_process_group()
    return int(bad.item() > 0)


if __name__ == "__main__":
    sys.exit(main())
