"""test_refused.py -- calls that kcp_torch must refuse with one line that names the values.

Book: chapters 08, 13, 14.
"""
import numpy as np
import pytest
import torch

import kcp_torch
from oracle import D, F32, TOKENS, draw, on_cpu, options, refuses

pytestmark = on_cpu
x, _, _ = draw(1, (0, 20), 2, 4, 8, 8, options())
f, two, cu = kcp_torch.chunk_kda, lambda t: torch.cat([t, t]), "cu_seqlens"
q, k, v, g, beta = (x[n] for n in TOKENS)
short = kcp_torch.ShortConvolution(8, 4)
nested = getattr(torch, "nested_tensor", None) or torch.nested.nested_tensor
EIGHT = getattr(torch, "float8_e4m3fn", torch.int8)   # from PyTorch 2.1 on


@pytest.mark.parametrize("words, more", [
    ("q int64 floating", dict(q=q.long())),
    (f"q {EIGHT} 16", dict(q=q.to(EIGHT))), (f"g {EIGHT} 16", dict(g=g.to(EIGHT))),
    (f"beta {EIGHT} 16", dict(q=q.half(), k=k.half(), beta=beta.to(EIGHT))),
    (f"initial_state {EIGHT} 16", dict(initial_state=torch.zeros(1, 4, 8, 8).to(EIGHT))),
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
    ("chunk_size -32 1", dict(chunk_size=-32)), ("chunk_size 0", dict(chunk_size=0)), ("chunk_size '64'", dict(chunk_size="64")),
    ("scale 'a'", dict(scale="a")), ("scale 1000000", dict(scale=10 ** 400)),
    ("scale nan", dict(scale=float("nan"))), ("scale inf", dict(scale=float("inf"))),
    ("scale tensor", dict(scale=torch.tensor(-.5))),
    ("lower_bound tensor", dict(lower_bound=torch.tensor(-.5))),
    ("lower_bound below 0", dict(lower_bound=1.0)),
    ("form ring", dict(form="ring")), ("cp_context object", dict(cp_context=object())),
    # Words, lists and sets that Python takes for a truth, a number or a sequence.
    ("use_qk_l2norm_in_kernel 'no' True", dict(use_qk_l2norm_in_kernel="no")),
    ("use_qk_l2norm_in_kernel 2 True", dict(use_qk_l2norm_in_kernel=2)),
    ("use_gate_in_kernel 'yes'", dict(use_gate_in_kernel="yes", A_log=torch.zeros(4))),
    ("use_beta_sigmoid_in_kernel [0] True", dict(use_beta_sigmoid_in_kernel=[0])),
    ("allow_neg_eigval True use_beta_sigmoid", dict(allow_neg_eigval=True)),
    ("output_final_state array([1, 0])", dict(output_final_state=np.array([1, 0]))),
    ("state_v_first [1]", dict(state_v_first=[1])),
    ("transpose_state_layout 'no'", dict(transpose_state_layout="no")),
    ("disable_recompute 'no'", dict(disable_recompute="no")),
    ("save '' all", dict(save="")),
    ("round_gates 'no'", dict(round_gates="no")),
    ("reduce_gradients 'no'", dict(reduce_gradients="no")),
    ("chunk_size True whole", dict(chunk_size=True)),
    ("chunk_size None", dict(chunk_size=None)),
    ("scale '0.5' number", dict(scale="0.5")),
    ("scale array([0.5])", dict(scale=np.array([.5]))),
    ("scale b'1'", dict(scale=b"1")),
    ("lower_bound nan", dict(lower_bound=float("nan"))),
    (cu + " {0, 20} list", dict(cu_seqlens={0, 20})),
    (cu + " {0: 1, 20: 2} list", dict(cu_seqlens={0: 1, 20: 2})),
    (cu + " generator list", dict(cu_seqlens=(n for n in (0, 20)))),
    (cu + r" b'\x00\x14' list", dict(cu_seqlens=b"\x00\x14")),
    (cu + " array([[ 0], [20]])", dict(cu_seqlens=np.array([[0], [20]]))),
    (cu + " meta", dict(cu_seqlens=torch.zeros(2, dtype=torch.int64, device="meta"))),
    (cu + "_cpu (0, 20) (0, 5, 20)",
     dict(cu_seqlens=[0, 5, 20], cu_seqlens_cpu=[0, 20])),
    ("q nested dense", dict(q=nested([q[0]]))),
    ("q batch of 2", dict({n: two(x[n]) for n in TOKENS}, cu_seqlens=[0, 20]))])
def test_layer(words, more):
    refuses(ValueError, words, lambda: f(**dict({n: x[n] for n in TOKENS}, **more)))


def test_after_a_good_call():
    """64.0 and True have the cache keys of 64 and 1; a float must not reach the call
    that the cache has. NumPy's numbers are taken."""
    for n in 64, 1, np.int64(64):
        f(q, k, v, g, beta, chunk_size=n)
    for n in 64.0, True, 1.0, torch.tensor(64):
        refuses(ValueError, f"chunk_size {str(n)[:4]} whole",
                lambda: f(q, k, v, g, beta, chunk_size=n))
    f(q, k, v, g, beta, lower_bound=np.float32(-5), use_gate_in_kernel=np.bool_(True),
      A_log=torch.zeros(4), use_qk_l2norm_in_kernel=None, scale=np.float32(.5))
    f(q, k, v, g, beta, A_log="not read", dt_bias=[0])


@pytest.mark.parametrize("kind, words, more", [
    (TypeError, "temperature", dict(temperature=1)),
    (NotImplementedError, "return_intermediate_states True False",
     dict(return_intermediate_states=True))])
def test_options(kind, words, more):
    refuses(kind, words, lambda: f(q, k, v, g, beta, **more))


@pytest.mark.parametrize("words, call", [
    ("hidden_size 0", lambda: kcp_torch.ShortConvolution(0, 4)),
    ("kernel_size 'a'", lambda: kcp_torch.ShortConvolution(8, "a")),
    ("hidden_size True", lambda: kcp_torch.ShortConvolution(True, 4)),
    ("bias 'no' True", lambda: kcp_torch.ShortConvolution(8, 4, bias="no")),
    ("dtype int32", lambda: kcp_torch.ShortConvolution(8, 4, dtype=torch.int32)),
    ("mask list [1, 5]", lambda: short(torch.zeros(1, 5, 8), mask=[1])),
    ("mask [1, 4] [1, 5]", lambda: short(torch.zeros(1, 5, 8), mask=torch.ones(1, 4))),
    ("cache list", lambda: short(torch.zeros(1, 5, 8), cache=[0])),
    ("cache [1, 8, 3] 8, 4]",
     lambda: short(torch.zeros(1, 5, 8), cache=torch.zeros(1, 8, 3))),
    ("activation 'relu'", lambda: kcp_torch.ShortConvolution(8, 4, activation="relu")),
    ("x [1, 5, 7] 8]", lambda: kcp_torch.ShortConvolution(8, 4)(torch.zeros(1, 5, 7)))])
def test_short_convolution(words, call):
    refuses(ValueError, words, call)


@pytest.mark.parametrize("words, more", [
    ("x [4, 8] [B, T, D]", dict(x=v[0, 0])), ("weight NoneType", dict(weight=None)),
    ("weight [8, 0] column", dict(weight=torch.zeros(8, 0))),
    ("bias [3] [8]", dict(bias=torch.zeros(3))), ("x int64", dict(x=v[0].long())),
    (f"x {EIGHT} 16", dict(x=v[0].to(EIGHT))),
    ("residual [1, 3, 8]", dict(residual=torch.zeros(1, 3, 8))),
    ("output_final_state 'no'", dict(output_final_state="no")),
    ("reduce_gradients 'no'", dict(reduce_gradients="no")),
    ("activation", dict(activation="relu")), ("weight", dict(weight=torch.zeros(7, 4))),
    ("initial_state [20, 8, 3] [20, 8, 4]", dict(initial_state=torch.zeros(20, 8, 3)))])
def test_convolution(words, more):
    refuses(ValueError, words, lambda: kcp_torch.causal_conv1d(
        **dict(dict(x=v[0], weight=torch.zeros(8, 4)), **more)))


def test_transforms():
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
    refuses(NotImplementedError, "torch.jit.trace", lambda: torch.jit.trace(
        lambda y: f(q, k, y, g, beta)[0], v))
    if hasattr(torch, "func"):
        refuses(NotImplementedError, "torch.func", lambda: torch.func.vmap(
            lambda y: f(q, k, y, g, beta)[0])(two(v)[:, None]))


def test_second_derivatives():
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
