"""oracle.py -- the token recurrence and convolution in plain PyTorch, and cases of both, with
which the tests of this folder compare kcp_torch.

Book: chapters 01, 08, 13, 14.

On CPUs, KCP computes in double and ranks use gloo. With --cuda ranks use NCCL,
and share GPUs if there are fewer GPUs than ranks.
"""
import copy
import os
import re
import sys

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

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
worst = [0.0, ""]                # the largest error of this process, and its name
on_cpu = pytest.mark.skipif(CUDA, reason="for CPUs")
on_gpu = pytest.mark.skipif(not CUDA, reason="for --cuda")


def error(got, want):
    """Returns the relative error, in the maximum norm if `got` is double, else in RMS."""
    want, off = want.double(), got.double() - want.double()
    if not want.numel():
        return 0
    norm = (lambda t: t.abs().max()) if got.dtype == D else \
        (lambda t: t.square().mean().sqrt())
    return (norm(off) / (norm(want) if norm(want) > 0 else 1)).item()


def close(*rows):
    """Compares each row (computed, expected, name, limit)."""
    bad = []
    for got, want, what, limit in rows:
        got, want = got.detach().cpu(), want.detach().cpu()
        e = error(got, want) if got.shape == want.shape else float("nan")
        if not e <= limit:
            bad.append(f"{what}: error {e:.1e}, at most {limit:.0e}; shape"
                       f" {list(got.shape)}, should be {list(want.shape)}")
        if e > worst[0] and (CUDA or limit == 1e-12):
            worst[:] = [e, what]
    assert not bad, "\n".join(bad)


def equal(got, want):
    """Requires equal bits of all tensors."""
    assert len(got) == len(want) and all(map(torch.equal, got, want))


def refuses(kind, words, f):
    """Requires an error of one line that contains all words."""
    with pytest.raises(kind) as e:
        f()
    assert all(w in str(e.value) for w in words.split()) and "\n" not in str(e.value)


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
             chunk=64, wrap=lambda f, x: f(x), save=False, limits=None, **more):
    """Computes this rank's outputs and gradients. Returns rows for `close`, whose expected
    values are those of the recurrence on the whole batch."""
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
    rows = [(h, part(wo), f"{name} o", limits[0])]
    whole = {"ht": ht.detach().clone()}
    for n in ("A_log", "dt_bias", "h0"):
        if x[n] is not None:
            whole["d" + n] = got[n].grad.clone()
    for n, t in sorted(whole.items()):        # sums the ranks' parts
        if R > 1:
            dist.all_reduce(t, group=None if CUDA else group)
        rows.append((t, wht if n == "ht" else want[n[1:]].grad, f"{name} {n}",
                     limits[{"ht": 0, "dh0": 1}.get(n, 2)]))
    return rows + [(got[n].grad, part(want[n].grad), f"{name} d{n}",
                    limits[2 if n in ("g", "beta") else 1]) for n in TOKENS]


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
        ("bf16, K = 256", (0, 150, 183), (1, 1, 256, 256), gpu(B16, F32)),
        ("bf16, GDN, K = 256, V = 512", (0, 130, 163), (1, 1, 256, 512),
         gpu(B16, gdn=True, gate=1)),
        ("float32", LONG, (2, 4, 64, 32), gpu(F32, gate=1)),
        ("float32, tiles", LONG, (2, 4, 128, 64), gpu(F32, gate=1)),
        ("float32, GDN, tiles", LONG, (2, 4, 64, 128), gpu(F32, gdn=True, gate=1)),
        ("float16", LONG, (2, 2, 64, 64), gpu(F16, gate=1)),
        ("float16, GDN, float32 gates", LONG, (2, 4, 96, 128), gpu(F16, F32, gdn=True)),
    ]


def conv_case(name, group=None, cu=PACKED, cuts=None, W=4, states=True, act=D,
              bound=1e-12):
    """Returns rows for `close`: y, states and gradients, expected from PyTorch's
    convolution. With a group, column 0 of the states is 0 and has no gradient, because no
    window needs it."""
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
    rows = [(y, part(wy), f"{name} y", bound),
            (got[0].grad, part(want[0].grad), f"{name} dx", 4 * bound)]
    for t, u, n in ((got[1].grad, want[1].grad, "dweight"),
                    (got[2].grad, want[2].grad, "dbias"),
                    (last.detach().clone(), wlast, "states"),
                    (got[3].grad, want[3].grad, "dstates")):
        if t is None or u is None:
            assert not states and t is u, f"{name} {n}: one is None"
            continue
        if group is not None:                 # sums the ranks' parts
            dist.all_reduce(t, group=group)
        rows.append((t, u, f"{name} {n}", 0 if n == "states" else 4 * bound))
    return rows


def compiled(group=None):
    """Checks that torch.compile of a whole graph, and make_fx with other numbers, do not
    change results on any rank."""
    if not kcp_torch.ops.available:
        pytest.skip("torch.compile: needs PyTorch 2.4")
    o = options(gate=1)
    x, do, _ = draw(4, PACKED, 1, 2, 8, 8, o)
    more, part = dict(cu_seqlens_cpu=list(PACKED)), lambda t: t
    if group is not None:
        c = kcp_torch.build_cp_context(PACKED, group, conv1d_kernel_size=4)
        more, part = dict(cp_context=copy.deepcopy(c)), c.shard
    x = {n: t if t is None else part(t) if n in TOKENS else t for n, t in x.items()}
    x["w"] = torch.linspace(-1, 1, 64, dtype=D).view(16, 4)
    names = [n for n in x if x[n] is not None]

    def layer(*t):
        y = dict(x, **dict(zip(names, t)))
        v = kcp_torch.causal_conv1d(y["v"].reshape(1, -1, 16), y["w"], **more)[0]
        return call(dict(y, v=v.view_as(y["v"])), o, **more)[0].sin()
    from torch.fx.experimental.proxy_tensor import make_fx
    outs = []
    for f in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager"),
              lambda *t: make_fx(layer)(*((y / 2).detach().requires_grad_() for y in t))(*t)):
        t = [x[n].to(DEV).clone().requires_grad_() for n in names]
        y = f(*t)
        outs.append([y] + list(torch.autograd.grad((y * part(do).to(DEV)).sum(), t)))
    close(*((b, outs[0][i], f"{how} {n}", 1e-12)
            for how, out in zip(("torch.compile", "make_fx"), outs[1:])
            for i, (b, n) in enumerate(zip(out, ["o"] + names))))
    packed = torch.compile(lambda v, cu: kcp_torch.causal_conv1d(
        v, x["w"], cu_seqlens=cu)[0], fullgraph=True, backend="aot_eager")
    refuses(ValueError, "give cu_seqlens_cpu as a list",
            lambda: packed(x["v"].reshape(1, -1, 16), torch.tensor(PACKED)))
