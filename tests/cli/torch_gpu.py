"""torch_gpu.py -- kcp_torch on a GPU against its own double half, which torch_check.py
holds to the token recurrence: values, streams, graphs, threads, torch.compile, ranks.

Book: chapters 08, 13, 14.  Checked by: KCP_PLANT=local, a mistake that it must see.
Next: torch_check.py.

    python tests/cli/torch_gpu.py                             one GPU; or overhead, ..
    torchrun --nproc_per_node=2 tests/cli/torch_gpu.py        a rank a GPU, over NCCL
    torchrun --nproc_per_node=4 ...              more ranks than GPUs: they share them

Without a GPU it says so and ends with 0. The time of the Python layer over the C call
is printed last.
"""
import os
import sys
import threading
import time
import warnings

import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

import kcp_torch

PLANT = os.environ.get("KCP_PLANT", "")
LOCAL = int(os.environ.get("LOCAL_RANK", 0))      # the GPU, by its number
TOKENS = ("q", "k", "v", "g", "beta")
failed, passed = [], 0


def expect(ok, what):
    global passed
    if ok:
        passed += 1
    else:
        failed.append(what)
        print(f"  FAIL  {what}", flush=True)


def error(got, want):
    """Root mean square, relative; NaN is not small."""
    want = want.double()
    size = want.square().mean().sqrt().item() if want.numel() else 0
    off = (got.double() - want).square().mean().sqrt().item() if want.numel() else 0
    return off / size if size else off


def close(got, want, what, bound):
    e = error(got.detach().cpu(), want.detach().cpu())
    expect(got.shape == want.shape and e <= bound, f"{what}: error {e:.2e} > {bound}")
    return e


def draw(seed, cu, H, HV, K, V, act, gates, gdn=False, gate=0, alike=False, vk=False):
    gen = torch.Generator().manual_seed(seed)
    r = lambda *s: torch.randn(*s, generator=gen, dtype=torch.float64)
    T, N, wide = cu[-1], len(cu) - 1, (HV,) if gdn else (HV, K)
    x = dict(q=r(1, T, H, K), k=r(1, T, H, K), v=r(1, T, HV, V), g=r(1, T, *wide),
             beta=r(1, T, HV), A_log=None, dt_bias=None,
             h0=r(N, HV, V, K) if vk else r(N, HV, K, V))
    if alike:
        x["k"] = x["k"][:, :1] + 0.1 * x["k"]
    if gate:
        x["A_log"], x["dt_bias"] = 0.3 * r(HV), r(*wide) - 3
    else:
        x["g"] = -0.05 * x["g"].abs()
    x["do"], x["dht"] = r(1, T, HV, V), r(*x["h0"].shape)
    # Rounded as the device gets them, so that both halves see the same numbers.
    kinds = dict(q=act, k=act, v=act, g=gates, beta=gates, do=act)
    return {n: None if t is None else t.to(kinds.get(n, torch.float32))
            for n, t in x.items()}


def call(x, gdn=False, gate=0, vk=False, **more):
    f = kcp_torch.chunk_gated_delta_rule if gdn else kcp_torch.chunk_kda
    if gate == 2:
        more["lower_bound"] = -5.0
    return f(x["q"], x["k"], x["v"], x["g"], x["beta"], initial_state=x["h0"],
             output_final_state=True, use_qk_l2norm_in_kernel=True,
             use_gate_in_kernel=bool(gate), use_beta_sigmoid_in_kernel=True,
             A_log=x["A_log"], dt_bias=x["dt_bias"], state_v_first=vk, **more)


def learn(x, device, dtype=None, wrap=lambda f, y: f(y), split=None, **o):
    """o, ht and the gradient of every input."""
    y = {n: t if t is None else t.to(device, dtype or t.dtype) for n, t in x.items()}
    y = {n: t if t is None or n in ("do", "dht") else t.clone().requires_grad_()
         for n, t in y.items()}
    h, ht = wrap(lambda z: call(z, **o), y)
    loss = (h.double() * y["do"].double()).sum() + \
        (ht.double() * y["dht"].double()).sum()
    loss.backward()
    got = {"o": h, "ht": ht}
    got.update({"d" + n: t.grad for n, t in y.items()
                if t is not None and n not in ("do", "dht")})
    return got


LIMITS = {"bf16": (6e-3, 8e-3, 2e-2), "f32": (2e-5, 2e-5, 2e-4),
          "rounded": (2e-2, 3e-2, 5e-2), "f16": (2e-3, 2e-3, 2e-3)}


def compare(got, want, name, limits):
    worst = ("", 0.0)
    for n in want:
        rank = 0 if n in ("o", "ht") else 2 if n in ("dg", "dbeta", "dA_log",
                                                     "ddt_bias") else 1
        e = close(got[n], want[n], f"{name} {n}", limits[rank])
        worst = max(worst, (n, e), key=lambda p: p[1])
    print(f"{name}: worst {worst[0]} {worst[1]:.1e}", flush=True)


B, F, S, E = torch.bfloat16, torch.float32, torch.float16, torch.float64
PACKED = (0, 200, 200, 345, 346, 1000)
CASES = [                          # name, sizes, activations, gates, options, limits
    ("bf16, packed", (2, 4, 128, 128), B, B, dict(gate=2), "bf16"),
    ("bf16, heads of 64, V first", (2, 2, 64, 64), B, B, dict(gate=1, vk=True), "bf16"),
    ("bf16, GDN", (2, 4, 128, 128), B, B, dict(gdn=True, gate=1), "bf16"),
    ("bf16, ready gates", (2, 2, 128, 128), B, B, dict(), "bf16"),
    ("bf16, 60 channels", (1, 2, 60, 60), B, B, dict(), "bf16"),
    ("bf16, alike keys", (2, 2, 128, 128), B, B, dict(gate=2, alike=True), "bf16"),
    ("bf16 beside float32 gates", (2, 2, 128, 128), B, F, dict(), "bf16"),
    ("float32", (2, 4, 64, 32), F, F, dict(gate=1), "f32"),
    ("float16", (2, 2, 64, 64), S, S, dict(gate=1), "f16"),
]


def values():
    for i, (name, sizes, act, gates, o, limits) in enumerate(CASES):
        x = draw(i, PACKED, *sizes, act, gates, **o)
        o = {n: t for n, t in o.items() if n != "alike"}
        want = learn(x, "cpu", E, cu_seqlens_cpu=PACKED, **o)
        got = learn(x, "cuda", cu_seqlens_cpu=PACKED, **o)
        if PLANT == "local":
            got["dv"][:, -1:] = 0
        compare(got, want, name, LIMITS[limits])
    x = draw(6, PACKED, 2, 2, 128, 128, B, F)
    compare(learn(x, "cuda", cu_seqlens_cpu=PACKED, round_gates=True),
            learn(x, "cpu", E, cu_seqlens_cpu=PACKED), "float32 gates, rounded",
            LIMITS["rounded"])
    # A view that begins off the boundary of 16 bytes.
    y = draw(7, (0, 100), 1, 1, 64, 64, B, B)
    odd = torch.empty(y["q"].numel() + 1, dtype=B, device="cuda")[1:].view_as(y["q"])
    z = {n: t if t is None else t.cuda() for n, t in y.items()}
    a, _ = call(z)
    b, _ = call(dict(z, q=odd.copy_(z["q"])))
    expect(torch.equal(a, b), "an array off its boundary")


CONV = (0, 17, 17, 19, 20, 300)


def conv_draw(act, states):
    gen = torch.Generator().manual_seed(8)
    r = lambda *s: torch.randn(*s, generator=gen, dtype=E).to(act)
    x = dict(x=r(1, 300, 48), weight=r(48, 4), initial_state=r(len(CONV) - 1, 48, 4))
    if not states:
        del x["initial_state"]
    return x, r(1, 300, 48), r(len(CONV) - 1, 48, 4)


def conv_learn(x, dy, dlast, device, dtype=None, **more):
    """y, the final states and the gradients of the inputs."""
    x = {n: t.to(device, dtype or t.dtype).detach().requires_grad_()
         for n, t in x.items()}
    if "cp_context" not in more:
        more["cu_seqlens_cpu"] = CONV
    y, last = kcp_torch.causal_conv1d(**x, activation="silu", output_final_state=True,
                                      **more)
    grads = torch.autograd.grad([y, last], list(x.values()), [dy.to(y), dlast.to(last)])
    return dict({"d" + n: t for n, t in zip(x, grads)}, y=y, last=last)


def conv_compare(got, want, name, bound):
    for n, t in want.items():
        limit = bound if n == "y" else 4 * bound
        close(got[n], t, f"{name} {n}", 0 if n == "last" else limit)


def conv_values():
    """Packed, a sequence empty and some shorter than the window, states or none."""
    for act, bound in ((F, 2e-5), (B, 6e-3)):
        for states in (True, False):
            case = conv_draw(act, states)
            conv_compare(conv_learn(*case, "cuda"), conv_learn(*case, "cpu", E),
                         f"conv {act}, {'a state' if states else 'none'}", bound)
    # A CUDA graph of a step that takes a state and hands on the next one.
    x, dy, dlast = (case[0], *(t.cuda() for t in case[1:]))
    x = {n: t.cuda() for n, t in conv_draw(B, True)[0].items()}
    want, late = conv_learn(x, dy, dlast, "cuda"), {n: t * 0 for n, t in x.items()}
    graph = torch.cuda.CUDAGraph()
    conv_learn(late, dy, dlast, "cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        got = conv_learn(late, dy, dlast, "cuda")
    for n, t in late.items():
        t.copy_(x[n])
    graph.replay()
    torch.cuda.synchronize()
    expect(all(torch.equal(got[n], t) for n, t in want.items()), "conv in a graph")
    print("convolutions and their states: done", flush=True)


def streams():
    """On the current stream, nothing waited for, a graph captures it."""
    x = draw(20, PACKED, 2, 4, 128, 128, B, B, gate=2)
    x = {n: t if t is None else t.cuda() for n, t in x.items()}
    o = dict(gate=2, cu_seqlens_cpu=PACKED)

    def both(y):
        y = {n: t if t is None or n in ("do", "dht") else t.detach().requires_grad_()
             for n, t in y.items()}
        h, ht = call(y, **o)
        names = [n for n in (*TOKENS, "A_log", "dt_bias", "h0")]
        return [h, ht] + list(torch.autograd.grad([h, ht], [y[n] for n in names],
                                                  [y["do"], y["dht"]]))
    want = [t.clone() for t in both(x)]
    both(x)
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    for _ in range(3):
        both(x)
    torch.cuda.synchronize()
    expect(torch.cuda.memory_allocated() == held, "memory grows from call to call")
    # The inputs arrive late on a stream of our own, which the call must follow.
    late = {n: t if t is None else torch.zeros_like(t) for n, t in x.items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        both(late)
        side.synchronize()
        torch.cuda._sleep(400_000_000)
        for n, t in late.items():
            if t is not None:
                t.copy_(x[n])
        begun = time.perf_counter()
        torch.cuda.set_sync_debug_mode("error")
        got = both(late)
        torch.cuda.set_sync_debug_mode("default")
        host, idle = time.perf_counter() - begun, side.query()
    torch.cuda.synchronize()
    expect(not idle, f"the host waited: {host * 1e3:.1f} ms")
    expect(all(torch.equal(a, b) for a, b in zip(got, want)), "inputs that come late")
    graph, y = torch.cuda.CUDAGraph(), {n: t if t is None else torch.zeros_like(t)
                                        for n, t in x.items()}
    with torch.cuda.graph(graph):
        got = both(y)
    for n, t in y.items():
        if t is not None:
            t.copy_(x[n])
    graph.replay()
    torch.cuda.synchronize()
    expect(all(torch.equal(a, b) for a, b in zip(got, want)), "a captured graph")
    some = learn(x, "cuda", wrap=lambda f, z: checkpoint(
        lambda *t: f(dict(zip(z, t))), *z.values(), use_reentrant=False), **o)
    expect(all(torch.equal(some[n], t) for n, t in zip(("o", "ht", "dq"), want)),
           "checkpointed")
    # Two threads, each with its stream.
    said = [None, None]

    def work(i):
        mine = torch.cuda.Stream()
        with torch.cuda.stream(mine):
            for _ in range(20):
                said[i] = both(x)
            mine.synchronize()
    side.synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for i in range(2):
        expect(said[i] and all(torch.equal(a, b) for a, b in zip(said[i], want)),
               f"thread {i} of two")
    print("streams, graph, checkpoint, threads: done", flush=True)


def compiled():
    if not kcp_torch.ops.available:
        print(f"custom op: needs PyTorch 2.4, this is {torch.__version__}: skipped")
        return
    x = draw(30, (0, 300), 2, 2, 64, 64, B, B, gate=1)
    x = {n: t if t is None else t.cuda() for n, t in x.items()}
    names = [n for n in (*TOKENS, "A_log", "dt_bias")]
    w = torch.randn(128, 4, device="cuda", dtype=B)

    def block(*t):
        y = dict(x, **dict(zip(names, t)), h0=None)
        v, _ = kcp_torch.causal_conv1d(y["v"].reshape(1, 300, 128), w,
                                       activation="silu")
        return call(dict(y, v=v.view_as(y["v"])), gate=1)[0] * 2
    outs = []
    for f in (block, torch.compile(block, fullgraph=True)):
        t = [x[n].detach().requires_grad_() for n in names]
        y = f(*t)
        outs.append([y] + list(torch.autograd.grad(y, t, x["do"])))
    for a, b, n in zip(*outs, ["o"] + names):
        close(b, a, f"torch.compile {n}", 1e-2)
    print("torch.compile traces the custom ops, whole graph", flush=True)


def overhead():
    """Microseconds on the host around the C calls, which are timed from within."""
    from kcp_torch import chunk, conv
    x = draw(40, (0, 64), 1, 1, 128, 128, B, B, gate=2)
    x = {n: t if t is None else t.cuda() for n, t in x.items()}
    o, inside = dict(gate=2, cu_seqlens_cpu=(0, 64)), [0.0]

    def timed(run):
        def through(layer, view):
            begun = time.perf_counter()
            status = run(layer, view)
            inside[0] += time.perf_counter() - begun
            return status
        return through

    def host(f, n=20, rounds=100):
        """The median round of some calls, too few to fill the queue of launches."""
        all_, ours = [], []
        for _ in range(rounds):
            torch.cuda.synchronize()
            inside[0], begun = 0.0, time.perf_counter()
            for _ in range(n):
                f()
            took = time.perf_counter() - begun
            all_.append(took / n * 1e6)
            ours.append((took - inside[0]) / n * 1e6)
        return sorted(all_)[rounds // 2], sorted(ours)[rounds // 2]

    def forward():
        return call(x, **o)

    def pair():
        torch.autograd.grad(call(x, **o), learned, [x["do"], x["dht"]])
    with torch.no_grad():
        forward()
    learned = [x[n].requires_grad_() for n in (*TOKENS, "A_log", "dt_bias", "h0")]
    pair()
    c, weight = torch.randn(1, 64, 128, device="cuda", dtype=B), \
        torch.randn(128, 4, device="cuda", dtype=B)

    def convolved():
        return kcp_torch.causal_conv1d(c, weight, activation="silu",
                                       cu_seqlens_cpu=(0, 64))
    convolved()
    for site in (*chunk._known.values(), *conv._known.values()):
        for made in site.calls.values():
            made.run = timed(made.run)
    with torch.no_grad():
        rows = [("forward, no_grad", host(forward))]
        rows.append(("the same, 4 calls after a wait", host(forward, 4, 200)))
        rows.append(("the short convolution, no_grad", host(convolved)))
    c.requires_grad_()
    weight.requires_grad_()
    rows.append(("the short convolution", host(convolved)))
    rows.append(("forward", host(forward)))
    rows.append(("the same, 4 calls after a wait", host(forward, 4, 200)))
    rows.append(("forward and backward", host(pair)))
    real, spent = chunk.Site.backward, []

    def back(*a):
        begun, before = time.perf_counter(), inside[0]
        got = real(*a)
        spent.append((time.perf_counter() - begun - (inside[0] - before)) * 1e6)
        return got
    chunk.Site.backward = back
    host(pair)
    chunk.Site.backward = real
    mine = sorted(spent)[len(spent) // 2]
    rows.append(("backward, kcp_torch's part of it", (mine, mine)))

    class Empty(torch.autograd.Function):
        """What PyTorch takes itself for a function of as many tensors."""
        @staticmethod
        def forward(ctx, *t):
            ctx.save_for_backward(*t)
            return x["do"].detach(), x["dht"].detach()

        @staticmethod
        def backward(ctx, do, dht):
            return ctx.saved_tensors
    site = next(iter(chunk._known.values()))
    call_, made = site.prepared(), site.made()

    class Least(torch.autograd.Function):
        """What a forward cannot do without: its two outputs, its block and its
        workspace made, its inputs and its block saved."""
        @staticmethod
        def forward(ctx, *t):
            o, ht = made[0](), made[1]()
            saved, _ = call_.block(), call_.work()
            ctx.save_for_backward(saved, *t)
            return o, ht
    least = super(torch.autograd.Function, Least).apply
    rows.append(("the least: a Function that makes and saves what forward does",
                 host(lambda: least(*learned))))
    rows.append(("an empty autograd.Function", host(lambda: Empty.apply(*learned))))
    short = super(torch.autograd.Function, Empty).apply
    rows.append(("the same without torch.func's part", host(lambda: short(*learned))))
    rows.append(("the same, and backward", host(lambda: torch.autograd.grad(
        Empty.apply(*learned), learned, [x["do"], x["dht"]]))))
    made = [*learned[:3], x["h0"]]
    rows.append(("PyTorch's memory for four tensors, as forward needs",
                 host(lambda: [torch.empty_like(t) for t in made])))
    rows.append(("PyTorch's memory for eight gradients",
                 host(lambda: [torch.empty_like(t) for t in learned])))
    for name, (whole, ours) in rows:
        print(f"host us\t{name}\t{whole:.1f}\tbeside the C calls\t{ours:.1f}",
              flush=True)


def conv_ranks(world):
    """Some ranks have fewer tokens than the window: rows and states travel."""
    r, R = dist.get_rank(), dist.get_world_size()
    case = conv_draw(B, True)
    for cuts in ([0] + [300 - R + i for i in range(1, R)] + [300],
                 [0] + [20 + i for i in range(1, R)] + [300]):
        c = kcp_torch.build_cp_context(CONV, world, conv1d_kernel_size=4, cuts=cuts)
        x, dy, dlast = case
        dlast = torch.cat([torch.zeros_like(dlast[:, :, :1]), dlast[:, :, 1:]], 2)
        want = conv_learn(x, dy, dlast, "cpu", E)
        got = conv_learn(dict(x, x=c.shard(x["x"])), c.shard(dy), dlast,
                         torch.device("cuda", LOCAL), cp_context=c)
        got = {n: t.detach().float() for n, t in got.items()}
        for n in ("dweight", "dinitial_state", "last"):
            dist.all_reduce(got[n])
        want = {n: c.shard(t) if n in ("y", "dx") else t for n, t in want.items()}
        want["last"] = torch.cat([torch.zeros_like(want["last"][:, :, :1]),
                                  want["last"][:, :, 1:]], 2)
        conv_compare(got, want, f"conv, cuts {cuts}, rank {r}", 6e-3)


def ranks():
    """Over NCCL, a rank a GPU: every form, two layers on one group, uneven cuts, a
    communicator of our own for a gloo group."""
    r, R = dist.get_rank(), dist.get_world_size()
    world = dist.distributed_c10d._get_default_group()
    gloo = dist.new_group(backend="gloo")
    for name, group, o, form in (
            ("KDA", world, dict(gate=2), "all_gather"),
            ("KDA", world, dict(gate=2), "chain"),
            ("KDA, V first", world, dict(gate=1, vk=True), "scan"),
            ("GDN", world, dict(gate=1, gdn=True), "pipeline"),
            ("KDA, gloo group", gloo, dict(gate=2), "all_gather")):
        x = draw(50, PACKED, 2, 4, 128, 128, B, B, **o)
        want = learn(x, "cpu", E, cu_seqlens_cpu=PACKED, **o)
        cuts = [0] + [700 + (1000 - 700) * i // (R - 1) for i in range(R)]
        c = kcp_torch.build_cp_context(PACKED, group, cuts=cuts)
        mine = {n: c.shard(t) if n in TOKENS + ("do",) else t for n, t in x.items()}
        got = learn(mine, torch.device("cuda", LOCAL), cp_context=c, form=form, **o)
        for n in ("ht", "dA_log", "ddt_bias", "dh0"):
            dist.all_reduce(got[n])
        if PLANT == "local" and r < R - 1:    # what FLA's kernels got wrong once
            got["dv"][:, -1:] = 0
        want = {n: c.shard(t) if n in ("o", "dq", "dk", "dv", "dg", "dbeta") else t
                for n, t in want.items()}
        compare(got, want, f"{name}, {form}, rank {r} of {R}", LIMITS["bf16"])
    conv_ranks(world)
    kcp_torch.release()
    t = torch.ones(1, device="cuda")
    dist.all_reduce(t)
    expect(t.item() == R, "the group's communicator is alive after release")


def own_gpu():
    """A GPU a rank. Where ranks must share one, NCCL takes each for another host."""
    global LOCAL
    gpus = torch.cuda.device_count()
    if int(os.environ["LOCAL_WORLD_SIZE"]) > gpus:
        os.environ.update(NCCL_HOSTID=f"rank{LOCAL}", NCCL_SOCKET_IFNAME="lo")
        LOCAL %= gpus
    torch.cuda.set_device(LOCAL)


def main():
    if not torch.cuda.is_available():
        print("torch_gpu.py: no GPU here: nothing was run")
        return 0
    warnings.simplefilter("ignore", UserWarning)
    if "WORLD_SIZE" in os.environ:
        own_gpu()
        dist.init_process_group("nccl")
        parts = (ranks,)
    else:
        parts = (values, conv_values, streams, compiled, overhead)
        if sys.argv[1:]:                      # some of them, by name
            parts = [p for p in parts if p.__name__ in sys.argv[1:]]
    for part in parts:
        try:
            part()
        except Exception as e:
            import traceback
            traceback.print_exc()
            expect(False, f"{part.__name__}: {e!r}")
    print(f"torch_gpu.py: torch {torch.__version__}, {torch.cuda.get_device_name()}:"
          f" {passed} passed, {len(failed)} failed", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()
    return int(bool(failed) or (passed < 20 and not sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
