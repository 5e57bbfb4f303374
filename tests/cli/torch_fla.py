"""torch_fla.py -- kcp_torch.fla without FLA: a stand-in has the interface through which
FLA chooses a backend, and says which function of "FLA" was left to itself.

Book: chapter 19.  Checked by: KCP_PLANT=order, a signature that changed unseen.
Next: ../../bench/peers/fla_tests.py, FLA's own tests on a GPU.

Run as one process, or as ranks of torchrun: cp_context is looked at by two and more.
"""
import atexit
import dataclasses
import functools
import os
import sys
import types
import warnings
import weakref

import torch
import torch.distributed as dist

PLANT = os.environ.get("KCP_PLANT", "")
failed, passed = [], 0


def expect(ok, what):
    global passed
    if ok:
        passed += 1
    else:
        failed.append(what)


# ---- what fla.ops.backends, fla.ops.cp.context and the two functions are to a backend

class BaseBackend:
    backend_type, package_name, env_var, priority = "base", None, None, 5

    def is_enabled(self):
        return self.env_var is None or os.environ.get(self.env_var, "1") != "0"

    def verify(self, name, *args, **more):
        try:
            return getattr(self, name + "_verifier")(*args, **more)
        except Exception as e:
            return False, str(e)


class BackendRegistry:
    _registries = {}

    def __init__(self, operation):
        self.backends = {}
        BackendRegistry._registries[operation] = self

    def register(self, backend):
        self.backends[backend.backend_type] = backend

    @classmethod
    def ensure_initialized(cls, operation):
        cls._registries.get(operation) or cls(operation)


left_to_fla = []


def dispatch(operation):
    def decorator(f):
        @functools.wraps(f)
        def wrapper(*args, **more):
            BackendRegistry.ensure_initialized(operation)
            registry = BackendRegistry._registries[operation]
            for backend in sorted(registry.backends.values(),
                                  key=lambda b: b.priority):
                if backend.is_enabled() and \
                        backend.verify(f.__name__, *args, **more)[0]:
                    return getattr(backend, f.__name__)(*args, **more)
            left_to_fla.append(f.__name__)
            return None, None
        return wrapper
    return decorator


@dataclasses.dataclass
class Context:
    group: object = None
    cu_seqlens: object = None
    conv1d_kernel_size: object = None


def get_cp_cu_seqlens(cu_seqlens, cu_seqlens_cpu=None, world_size=None, rank=None,
                      group=None, conv1d_kernel_size=None):
    R, r = dist.get_world_size(group), dist.get_rank(group)
    part = int(cu_seqlens[-1]) // R
    mine = (cu_seqlens.clamp(r * part, (r + 1) * part) - r * part).unique_consecutive()
    return Context(group, mine, conv1d_kernel_size)


def stand_in():
    def chunk_kda(*args, **more): ...
    def chunk_gated_delta_rule(*args, **more): ...
    kda = dispatch("kda")(chunk_kda)
    gdn = dispatch("gated_delta_rule")(chunk_gated_delta_rule)
    held = {"fla": {}, "fla.ops": {}, "fla.ops.kda": {"chunk_kda": kda},
            "fla.ops.gated_delta_rule": {"chunk_gated_delta_rule": gdn},
            "fla.ops.backends": {"BackendRegistry": BackendRegistry,
                                 "BaseBackend": BaseBackend, "dispatch": dispatch},
            "fla.ops.cp.context": {"get_cp_cu_seqlens": get_cp_cu_seqlens}}
    held["fla.ops.cp"] = {}
    for name, has in held.items():
        module = sys.modules[name] = types.ModuleType(name)
        module.__dict__.update(has)
        module.__path__ = []
    for name in list(held):
        above, _, last = name.rpartition(".")
        if above:
            setattr(sys.modules[above], last, sys.modules[name])
    return kda, gdn


def build_cp_context(cu_seqlens, group):
    return sys.modules["fla.ops.cp.context"].get_cp_cu_seqlens(cu_seqlens, group=group)


# ---- what is asked of the backend

def draw(gdn, B=1, T=40, H=2, HV=4, K=8, V=6, kind=torch.float32):
    gen = torch.Generator().manual_seed(7)
    r = lambda *s: torch.randn(*s, generator=gen)
    wide = (HV,) if gdn else (HV, K)
    return dict(q=r(B, T, H, K).to(kind), k=r(B, T, H, K).to(kind),
                v=r(B, T, HV, V).to(kind), g=-0.3 * r(B, T, *wide).abs().to(kind),
                beta=torch.sigmoid(r(B, T, HV)).to(kind))


def same(a, b):
    return all(x is y is None or torch.equal(x, y) for x, y in zip(a, b))


def learn(f, x, do, **more):
    y = {n: t.clone().requires_grad_() for n, t in x.items()}
    o, ht = f(**y, use_qk_l2norm_in_kernel=True, **more)
    return [o, ht] + list(torch.autograd.grad(o, list(y.values()), do))


def taken(kda, gdn, ours):
    """The same bits as kcp_torch's own functions, by position and by name."""
    for f, mine, x in ((kda, ours.chunk_kda, draw(False)),
                       (gdn, ours.chunk_gated_delta_rule, draw(True))):
        name, do = mine.__name__, torch.ones(1, 40, 4, 6)
        N = (1, 4, 8, 6)
        h0 = torch.linspace(-1, 1, 192).view(N)
        more = dict(scale=0.5, initial_state=h0, output_final_state=True)
        want = learn(mine, x, do, **more)
        expect(same(learn(f, x, do, **more), want), f"{name} by name")
        words = [0.5, h0, True, True]
        if PLANT == "order":
            words = [0.5, h0, True, False]
        got = f(*x.values(), *words)
        expect(same(got, want[:2]), f"{name} by position")
        got = f(**x, cu_seqlens=torch.tensor([0, 15, 40]), chunk_size=32)
        expect(same(got, mine(**x, cu_seqlens_cpu=(0, 15, 40), chunk_size=32)),
               f"{name}, packed")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = f(**x, transpose_state_layout=True, output_final_state=True)
        expect(same(got, mine(**x, state_v_first=True, output_final_state=True)),
               f"{name}, the old name of the layout")
    x = draw(False)
    bias, A = torch.zeros(4, 8), torch.zeros(4)
    gate = dict(use_gate_in_kernel=True, A_log=A, dt_bias=bias.view(-1), safe_gate=True,
                lower_bound=-5.0, use_beta_sigmoid_in_kernel=True)
    expect(same(kda(**x, **gate), ours.chunk_kda(**x, **gate)), "KDA's bounded gate")
    # FLA takes a lower_bound beside a gate that is ready, and does not read it.
    expect(same(kda(**x, lower_bound=-5.0, safe_gate=True), ours.chunk_kda(**x)),
           "a lower_bound beside a ready gate")
    os.environ["KCP_ROUND_KEYS"] = "1"
    half = {n: t.bfloat16() for n, t in x.items()}
    unit = {n: torch.nn.functional.normalize(half[n].float(), dim=-1).bfloat16()
            for n in ("q", "k")}
    got = kda(**half, use_qk_l2norm_in_kernel=True)[0].float()
    want = ours.chunk_kda(**dict(half, **unit))[0].float()
    exact = ours.chunk_kda(**half, use_qk_l2norm_in_kernel=True)[0].float()
    off = [(y - want).square().mean().sqrt().item() for y in (got, exact)]
    expect(off[0] < 0.2 * off[1], f"KCP_ROUND_KEYS=1: {off}")
    del os.environ["KCP_ROUND_KEYS"]
    gate = dict(use_gate_in_kernel=True, A_log=A, dt_bias=torch.zeros(4))
    x = draw(True)
    expect(same(gdn(**x, **gate, chunk_indices=torch.zeros(1, 2)),
                ours.chunk_gated_delta_rule(**x, **gate)), "GDN's gate in the kernel")
    expect(not left_to_fla, f"{left_to_fla} went to FLA")


def refused(kda, gdn):
    """What goes to FLA, and the word that says why."""
    x, y = draw(False), draw(True)
    state = torch.zeros(1, 4, 8, 6)
    rows = [                          # once a reason, however often it is met
        (kda, x, dict(sparsity=3), "sparsity is not known"),
        (kda, dict(x, k=None), {}, "k is no tensor"),
        (kda, draw(False, kind=torch.float64), {}, "none of bfloat16"),
        (kda, draw(False, K=264), {}, "wider than 256"),
        (kda, draw(False, T=0), {}, "no tokens"),
        (kda, dict(x, v=x["v"][:, :, :3]), {}, ""),
        (kda, x, dict(return_intermediate_states=True), "states of chunks"),
        (kda, x, dict(chunk_size=16), "chunk_size 16"),
        (kda, x, dict(initial_state=state.half()), "initial_state is torch.float16"),
        (gdn, y, dict(initial_state=state.double()), "initial_state is torch.float64"),
        (kda, x, dict(allow_neg_eigval=True), "without sigmoid"),
        (kda, x, dict(state_v_first=True, transpose_state_layout=True), "both names"),
        (kda, x, dict(safe_gate=True, use_gate_in_kernel=True, lower_bound=-7.0),
         "lower_bound -7"),
        (gdn, y, dict(lower_bound=-5.0), "a lower_bound of GDN"),
        (kda, x, dict(cp_context=Context(group=1)), "built before kcp_torch.fla"),
        (kda, draw(False, B=2), dict(cu_seqlens=torch.tensor([0, 80])),
         "more than one batch"),
    ]
    for f, tensors, more, why in rows:
        del left_to_fla[:]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            f(**tensors, **more)
            f(**tensors, **more)
        said = [str(w.message) for w in said if "FLA's own" in str(w.message)]
        expect(left_to_fla == [f.__name__] * 2, f"{why}: not left to FLA")
        once = [w for w in said if why in w] if why else []     # "": was said before
        expect(len(said) == bool(why) == len(once), f"{why}: said {said}")
    del left_to_fla[:]
    os.environ["KCP_FLA"] = "0"
    kda(**x)
    expect(left_to_fla == ["chunk_kda"], "KCP_FLA=0 does not turn it off")
    del os.environ["KCP_FLA"]


def over_ranks(kda, gdn, ours):
    """FLA's context, built after the import: each rank's part of the whole."""
    R, r = dist.get_world_size(), dist.get_rank()
    T = 40 * R
    cu = torch.tensor([0, 25, T - 11, T])
    context = build_cp_context(cu, dist.group.WORLD)
    mine = slice(40 * r, 40 * r + 40)
    for f, whole, x in ((kda, ours.chunk_kda, draw(False, T=T)),
                        (gdn, ours.chunk_gated_delta_rule, draw(True, T=T))):
        do = torch.ones(1, T, 4, 6)
        want = learn(whole, x, do, cu_seqlens=cu)
        got = learn(f, {n: t[:, mine] for n, t in x.items()}, do[:, mine],
                    cp_context=context)
        for a, b in zip(got, want):
            if a is not None and b is not None:
                expect((a - b[:, mine]).abs().max() < 1e-5, f"{f.__name__}, {R} ranks")
    expect(not left_to_fla, "a call under cp_context went to FLA")


group_of_ranks = lambda: None


@atexit.register                          # before kcp_torch, so that it comes after it
def nobody_holds_the_group():
    """As nobody called kcp_torch.release: a gloo group's threads must not outlive
    Python."""
    if group_of_ranks():
        print("  FAIL  the group outlives destroy_process_group", flush=True)
        os._exit(1)


def main():
    global group_of_ranks
    kda, gdn = stand_in()
    import kcp_torch
    import kcp_torch.fla                    # by it alone the functions are ours
    kcp_torch.fla.install()                 # once is enough, twice does no harm
    taken(kda, gdn, kcp_torch)
    if "WORLD_SIZE" in os.environ and int(os.environ["WORLD_SIZE"]) > 1:
        dist.init_process_group("gloo")
        group_of_ranks = weakref.ref(dist.group.WORLD)
        over_ranks(kda, gdn, kcp_torch)
        dist.destroy_process_group()
    refused(kda, gdn)
    for what in failed:
        print(f"  FAIL  {what}")
    if os.environ.get("RANK", "0") == "0":
        print(f"torch_fla.py: {passed} passed, {len(failed)} failed", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
