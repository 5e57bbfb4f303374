"""test_one_rank.py -- compares kcp_torch on one rank with the token recurrence and with
PyTorch's convolution, and calls with each other.

Book: chapters 08, 13, 14.
"""
import copy
import inspect
import re

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import kcp_torch
from kcp_torch import library, paths
from oracle import (B16, CASES, CUDA, D, F16, F32, LIMITS, TOKENS, call, close, compiled,
                    conv_case, draw, equal, on_cpu, on_gpu, one_case, options, refuses)

if CUDA:
    from oracle import LONG, gpu


@pytest.mark.parametrize("i", range(len(CASES)), ids=[c[0] for c in CASES])
def test_layer(i):
    close(*one_case(CASES[i][0], i, *CASES[i][1:], chunk=64 if i % 2 or CUDA else 16,
                    save=i == 2))


@pytest.mark.parametrize("again", (True, False))          # both kinds of checkpoint
def test_checkpoint(again):
    close(*one_case("checkpoint", 11, *CASES[2][1:],
                    wrap=lambda f, y: checkpoint(lambda *t: f(dict(zip(y, t))),
                                                 *y.values(), use_reentrant=again)))


@on_gpu
def test_rounded_gates():
    close(*one_case("float32 gates, rounded", 6, LONG, (2, 2, 128, 128), gpu(B16, F32),
                    limits="rounded", round_gates=True))


@pytest.mark.parametrize("states", (True, False))
@pytest.mark.parametrize("W", (4, 1, 2, 5))
@pytest.mark.parametrize("act", (F32, B16) if CUDA else (D,), ids=str)
def test_convolution(act, W, states):
    close(*conv_case(f"conv {W}, {act}", W=W, states=states, act=act,
                     bound=1e-12 if act == D else LIMITS[act][0]))


@on_cpu
def test_batch():
    """A batch of B rows must equal B packed sequences."""
    x, _, _ = draw(3, (0, 40), 1, 2, 8, 8, options())
    split = {n: None if t is None else t.reshape(2, 20, *t.shape[2:])
             for n, t in x.items()}
    a, b = call(split, options()), call(x, options(), cu_seqlens_cpu=[0, 20, 40])
    close((a[0].reshape(b[0].shape), b[0], "a batch of two", 1e-12),
          (a[1], b[1], "a batch of two, states", 1e-12))


@on_cpu
def test_types():
    x, _, _ = draw(3, (0, 40), 1, 2, 8, 8, options())
    to = lambda kind: {n: t if t is None else t.to(kind) for n, t in x.items()}
    small, half, whole = (call(to(t), options()) for t in (F32, B16, D))
    assert [t.dtype for t in (*small, *half)] == [F32, F32, B16, F32]
    close((small[0], whole[0], "float32", 1e-5))
    q = x["q"].clone().requires_grad_()
    with torch.no_grad():
        assert not call(dict(x, q=q), options())[0].requires_grad


@on_cpu
def test_plans():
    """Calls with equal cu_seqlens use one plan."""
    x, _, _ = draw(3, (0, 40), 1, 2, 8, 8, options())
    made = library.plan_of.cache_info().misses
    call(x, options(), cu_seqlens=torch.tensor([0, 7, 40]))
    call(x, options(), cu_seqlens=torch.tensor([0, 7, 40], dtype=torch.int32))
    call(x, options(), cu_seqlens_cpu=[0, 7, 40])
    assert library.plan_of.cache_info().misses == made + 1


@on_cpu
def test_conv_states():
    """Checks that two halves of a sequence, joined by the state, give the results of the
    whole sequence. Also checks decoding."""
    x, w = torch.randn(2, 11, 3, dtype=D), torch.randn(3, 4, dtype=D)
    conv = kcp_torch.causal_conv1d
    y, last = conv(x, w, output_final_state=True)
    y1, s1 = conv(x[:, :2], w, output_final_state=True)
    y2, s2 = conv(x[:, 2:], w, initial_state=s1, output_final_state=True)
    close((torch.cat([y1, y2], 1), y, "conv in two halves", 1e-12))
    close((s2, last, "conv's state", 1e-12))
    close((last, x[:, -4:].transpose(1, 2), "conv's state is the last rows", 1e-12))
    assert torch.equal(conv(x, w)[0], y)
    layer = kcp_torch.ShortConvolution(3, 4, bias=True, dtype=D)
    assert {n: tuple(t.shape) for n, t in layer.state_dict().items()} == \
        {"weight": (3, 1, 4), "bias": (3,)}
    want = F.silu(F.conv1d(x.transpose(1, 2), layer.weight, layer.bias, padding=3,
                           groups=3)[..., :11].transpose(1, 2)) + x
    close((layer(x, residual=x)[0], want, "ShortConvolution", 1e-12))
    mask = (torch.arange(11)[None] >= torch.tensor([[3], [0]])).to(D)
    close((layer(x, mask=mask)[0], layer(x * mask[..., None])[0], "conv's mask", 1e-12))
    with torch.no_grad():                     # a prompt of 8, then token by token
        first, cache = layer(x[:, :8], residual=x[:, :8], output_final_state=True)
        parts = [first] + [layer(x[:, t:t + 1], residual=x[:, t:t + 1], cache=cache)[0]
                           for t in range(8, 11)]
    close((torch.cat(parts, 1), want, "ShortConvolution, decoding", 1e-12))
    close((cache, last, "ShortConvolution's cache", 1e-12))
    refuses(ValueError, "mask packed", lambda: layer(
        x[:1], mask=mask[:1], cu_seqlens=[0, 11]))
    assert torch.equal(copy.deepcopy(layer)(x)[0], layer(x)[0])
    half, s = conv(x.bfloat16(), w, output_final_state=True)
    assert half.dtype == s.dtype == B16


# ---- the cache of calls

def some_grads(x, learned=(), mode=torch.enable_grad):
    """Returns outputs, and the gradients of the inputs named in `learned`."""
    x = {n: t if t is None or n not in learned else t.detach().requires_grad_()
         for n, t in x.items()}
    with mode():
        h, ht = call(x, options(gate=1))
    grads = torch.autograd.grad((h.sum() + ht.sum()), [x[n] for n in learned]) \
        if learned and h.requires_grad else ()
    assert bool(learned) == h.requires_grad or mode is not torch.enable_grad
    return [t.detach().clone() for t in (h, ht, *grads)]


def conv_outputs(**x):
    y, last = kcp_torch.causal_conv1d(output_final_state=True, **x)
    learn = any(t.requires_grad for t in x.values() if torch.is_tensor(t))
    assert y.requires_grad == learn
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


@on_cpu
def test_alike_calls():
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
    equal(want[2][:1], [-want[0][0]])         # a negated view
    assert not bad
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
    assert not false_hits(conv_outputs, calls)[0]
    refuses(ValueError, "x batch of 2", lambda: kcp_torch.causal_conv1d(
        x.view(2, 8, 6), w, cu_seqlens=[0, 8, 16]))
    kcp_torch.release()


FLA = {"chunk_kda": "q k v g beta scale initial_state output_final_state"
       " use_qk_l2norm_in_kernel use_gate_in_kernel use_beta_sigmoid_in_kernel"
       " allow_neg_eigval safe_gate lower_bound disable_recompute"
       " return_intermediate_states state_v_first cu_seqlens cu_seqlens_cpu cp_context",
       "chunk_gated_delta_rule": "q k v g beta scale initial_state output_final_state"
       " use_qk_l2norm_in_kernel use_beta_sigmoid_in_kernel allow_neg_eigval"
       " state_v_first cu_seqlens cu_seqlens_cpu chunk_indices cp_context",
       "causal_conv1d": "x weight bias residual initial_state output_final_state"
       " activation backend cu_seqlens cu_seqlens_cpu chunk_indices cp_context"}


@on_cpu
@pytest.mark.parametrize("name", FLA)
def test_order_of_arguments(name):
    """Arguments have FLA 0.5.2's order."""
    ours = list(inspect.signature(getattr(kcp_torch, name)).parameters)
    assert ours[:len(FLA[name].split())] == FLA[name].split()


@on_cpu
def test_unread_arguments():
    x, w = torch.randn(1, 9, 3, dtype=D), torch.randn(3, 4, dtype=D)
    equal(*([kcp_torch.causal_conv1d(x, w, **more)[0]] for more in (
        {}, dict(backend="triton", chunk_indices=torch.zeros(2, 2)))))
    refuses(ValueError, "backend", lambda: kcp_torch.causal_conv1d(
        x, w, None, None, None, False, None, [0, 4, 9]))


@on_cpu
def test_structs():
    """The library knows its structs."""
    assert library.size("kcp_call") > 0 and library.member("kcp_call", "T")
    refuses(ImportError, "found no", lambda: library.member("kcp_call", "none"))


def test_choices():
    """Checks the types and the chunk size that kcp_torch selects on a GPU, and the reason
    why kernels are slow, given a table of paths in which `wide` fast kernels read float32
    gates."""
    old, as_q = paths.plain, library.value("KCP_AS_Q")

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
            assert got[:5] == want and bool(got.why) == bool(why) and \
                re.search(why, got.why), f"{types} {C} {K}: {got}"
    finally:
        paths.plain = old
        paths.choose.cache_clear()


@on_cpu
def test_compiled():
    compiled()


def test_last_paths():
    """The last call's paths: of forward, and of backward after it; another call of sizes
    that are known replaces them."""
    x, _, _ = draw(1, (0, 20), 2, 4, 8, 8, options())
    y = [x[n].clone().requires_grad_() for n in TOKENS]
    kinds = lambda: [n.split("_")[0] for n in kcp_torch.last_paths()]
    kcp_torch.chunk_kda(*y)[0].sum().backward()
    assert kinds() == ["forward", "backward"]
    with torch.no_grad():
        kcp_torch.chunk_kda(*(t[:, :7] for t in y))
    assert kinds() == ["forward"]
    kcp_torch.chunk_kda(*y)
    assert kinds() == ["forward", "backward"]
