"""test_ranks.py -- compares kcp_torch over ranks with the token recurrence.

Book: chapters 07, 08, 13, 14.

Every test takes the fixture `world`, so that conftest.py runs the tests under torchrun.
"""
import threading

import pytest
import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

import kcp_torch
from oracle import (B16, CASES, CUDA, D, FORMS, LIMITS, PACKED, TOKENS, call, close, compiled,
                    conv_case, draw, on_cpu, on_gpu, one_case, options, refuses)

CHUNK = 64 if CUDA else 16
ACT, BOUND = (B16, LIMITS[B16][0]) if CUDA else (D, 1e-12)


def convolution(world, name, **more):
    """The convolution's state crosses shards shorter than W rows, and an empty shard."""
    close(*conv_case(name, world, act=ACT, bound=BOUND, **more))


# Two cases (on CPUs KDA and GDN) run with all exchange forms, the others with one.
@pytest.mark.parametrize("i, form", [
    (i, form) for i in range(len(CASES))
    for form in (FORMS if i in (3, 6) else (FORMS[i % len(FORMS)],))])
def test_layer(world, i, form):
    close(*one_case(CASES[i][0], 40 + i, *CASES[i][1:], form, world, chunk=CHUNK))


def test_ranks_without_tokens(world):
    T = CASES[1][1][-1]
    close(*one_case("ranks without tokens", 50, *CASES[1][1:], group=world,
                    cuts=[0] * (world.size() - 1) + [T // 2, T]))


@pytest.mark.parametrize("states", (True, False))
@pytest.mark.parametrize("W", (4, 1, 7))
def test_convolution(world, W, states):
    convolution(world, f"conv {W}", W=W, states=states)


@pytest.mark.parametrize("cuts", ("last", "ends", "starts", "zigzag"))
def test_convolution_cuts(world, cuts):
    R = world.size()
    convolution(world, f"conv, cuts {cuts}", cuts=dict(
        last=[0] * (R - 1) + [2, 77], ends=[0, *(77 - R + i for i in range(1, R)), 77],
        starts=[0, *range(1, R), 77], zigzag="zigzag")[cuts])


@pytest.mark.parametrize("i", (1, 6, 2))
def test_zigzag(world, i):
    close(*one_case(f"zigzag {i}", 70 + i, *CASES[i][1:], FORMS[i % 4], world, "zigzag",
                    chunk=CHUNK))


def test_store_rows(world):
    """On GPUs the ranks compare their calls through the store, also from two threads."""
    made = [kcp_torch.groups.StoreRows(dist.new_group()) for _ in range(2)]
    found = [[], []]
    if not hasattr(made[0].store, "check"):
        pytest.skip("needs PyTorch 2")

    def work(i):
        for n in range(20):
            found[i].append(made[i].gather(bytes([world.rank(), i, n])))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for i in range(2):
        assert found[i] == [[bytes([r, i, n]) for r in range(world.size())]
                            for n in range(20)]


@on_gpu
def test_gloo_group(world):
    """kcp_torch makes an NCCL communicator; after release the group's own works."""
    close(*one_case("a gloo group", 60, *CASES[0][1:],
                    group=dist.new_group(backend="gloo")))
    kcp_torch.release()
    t = torch.ones(1, device="cuda")
    dist.all_reduce(t)
    assert t.item() == world.size()


@on_cpu
def test_two_threads(world):
    """Concurrent calls of two threads with different groups do not mix."""
    groups, rows = [dist.new_group(), dist.new_group()], [[], []]

    def work(i):
        for n in range(3):
            rows[i] += one_case(f"thread {i}", 20 + n, PACKED, (1, 2, 8, 8),
                                options(gate=1, h0=True), "chain" if i else "all_gather",
                                groups[i])
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert list(map(len, rows)) == [30, 30]
    close(*rows[0], *rows[1])


@pytest.fixture
def sharded(world):
    """A context, options and whole inputs that have as many tokens."""
    o = options(gate=1, h0=True)
    x, do, _ = draw(60, PACKED, 1, 2, 8, 8, o)
    return kcp_torch.build_cp_context(PACKED, world), o, x, do


@on_cpu
def test_two_layers(sharded):
    """Two checkpointed layers on one group, of which the second reads the first's output."""
    c, o, x, do = sharded
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
    close(*((a, c.shard(b), f"two layers, {n}", 1e-12)
            for n, a, b in zip(("o",) + TOKENS, *outs)))


@on_cpu
def test_reduce_gradients(sharded):
    """Every rank has A_log's gradient summed over all ranks."""
    c, o, x, do = sharded
    A = [x["A_log"].clone().requires_grad_() for _ in range(2)]
    for p, whole in zip(A, (False, True)):
        h, _ = call({n: c.shard(t) if n in TOKENS else p if n == "A_log" else t
                     for n, t in x.items()}, o, cp_context=c, reduce_gradients=whole)
        (h * c.shard(do)).sum().backward()
    dist.all_reduce(A[0].grad)
    close((A[0].grad, A[1].grad, "reduce_gradients", 1e-12))


@on_cpu
@pytest.mark.parametrize("words, cu, more", [
    ("group int", [0, 9], dict(group=5)),
    ("cuts 0) 9 last", [0, 9], lambda R: dict(cuts=[0] * (R + 1))),
    ("cuts 1 expected R+1", [0, 9], dict(cuts=[0])),
    ("layout 'ring' zigzag", [0, 9], dict(layout="ring")),
    ("layout ['zigzag']", [0, 9], dict(layout=["zigzag"])),
    ("cuts zigzag None", [0, 9], dict(layout="zigzag", cuts=[0, 9])),
    ("conv1d_kernel_size -1", [0, 9], dict(conv1d_kernel_size=-1)),
    ("group str", [0, 9], dict(group="world")),
    ("cu_seqlens None whole", None, {}), ("cu_seqlens 'abc'", "abc", {}),
    ("cu_seqlens () 0 first", [], {}), ("cu_seqlens 2.5 whole", [0, 2.5], {}),
    ("cuts whole numbers", [0, 9], dict(cuts="ab")),
    ("cuts (1, 0 first", [0, 9], lambda R: dict(cuts=[1] + [9] * R)),
    ("conv1d_kernel_size True", [0, 9], dict(conv1d_kernel_size=True)),
    ("conv1d_kernel_size '4'", [0, 9], dict(conv1d_kernel_size="4")),
    ("conv1d_kernel_size 4294967300", [0, 9], dict(conv1d_kernel_size=2 ** 32 + 4)),
    ("cuts 2^62", [0, 9], lambda R: dict(cuts=[0] * R + [2 ** 64 + 9])),
    ("cu_seqlens 2^62", [0, 2 ** 70], {})])
def test_wrong_contexts(world, words, cu, more):
    R = world.size()
    refuses(ValueError, words.replace("R+1", str(R + 1)), lambda: kcp_torch.build_cp_context(
        cu, **(more(R) if callable(more) else more)))


@on_cpu
def test_wrong_tensors(sharded, world):
    c, o, x, _ = sharded
    R, whole = world.size(), torch.zeros(1, PACKED[-1], 2)
    for words, f in (("q tokens on rank cp_context", lambda: call(x, o, cp_context=c)),
                     ("x [1, 76, 2], dim 1 77", lambda: c.shard(whole[:, 1:])),
                     ("x dim 4 77", lambda: c.shard(whole, 4)),
                     ("x dim True 77", lambda: c.shard(whole, True)),
                     ("x list tensor", lambda: c.shard([1, 2])),
                     (f"rank {R} {R - 1}", lambda: c.positions(R)),
                     ("group str None", lambda: kcp_torch.release("world"))):
        refuses(ValueError, words, f)


@on_cpu
def test_compiled(world):
    compiled(world)
