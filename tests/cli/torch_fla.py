"""torch_fla.py -- tests kcp_torch.fla with wheels of flash-linear-attention from PyPI.

Book: chapter 19.

Usage: torch_fla.py DIR [VERSION...]: downloads wheels to DIR. A VERSION may be "newest".
Each version runs in a separate process, on the CPU. A substitute for Triton's driver lets
FLA be imported without a GPU.
"""
import importlib.util
import os
import subprocess
import sys

RELEASES = "0.5.0", "0.5.2", "0.6.0"


def run(*words, **env):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True,
                          timeout=120, env=dict(os.environ, **env))


def skip(why):
    print(f"torch_fla.py: {why}: skipped")
    sys.exit(0)


def releases(folder, versions):
    import torch
    if not hasattr(torch, "compiler") or any(
            importlib.util.find_spec(n) is None for n in
            ("triton", "einops")):
        skip(f"PyTorch {torch.__version__}, expected 2.7 with triton and"
             " einops")
    for version in versions or RELEASES:
        at = os.path.join(folder, version)
        which = "" if version == "newest" else f"=={version}"
        got = run("-m", "pip", "install", "-q", "--no-deps", "--target", at,
                  f"flash-linear-attention{which}", f"fla-core{which}")
        if got.returncode:
            skip("PyPI not reached")
        got = run(os.path.abspath(__file__), "--one", at)
        line = (got.stderr.strip().splitlines() or [""])[-1]
        if version < "0.6":
            assert got.returncode == 1 and "kcp_torch.fla: found" in line and \
                version in line and "0.6.0" in line, got.stderr
        else:
            assert got.returncode == 0, got.stderr
            without = run(os.path.abspath(__file__), "--one", at,
                          FLA_DISABLE_BACKEND_DISPATCH="1")
            assert without.returncode == 1 and \
                "does not call this backend" in without.stderr, without.stderr
        print(f"torch_fla.py: {version}: {got.stdout.strip() or line}")


class Driver:
    def __getattr__(self, name):
        return lambda *args, **more: None


def left(backend, x):
    """A call with slow kernels is left to FLA, whatever this rank's tokens are."""
    from kcp_torch import paths

    def plain(store, options, chunk):
        o = dict(options)
        fast = store == "KCP_BF16" and o["g_type"] == o["beta_type"]
        return "" if fast else "forward_plain: g is f32, expected bf16"
    paths.plain = plain
    for model in "kda", "gdn":
        for tokens in 40, 7:
            part = {n: t[:, :tokens].bfloat16() for n, t in x.items()}
            assert backend._slow(model, part) is None
            why = backend._slow(model, dict(part, g=part["g"].float()))
            assert "forward_plain" in why and "g is f32, expected bf16" in why, why


def one(path):
    sys.path.insert(0, path)
    from triton.runtime import driver
    driver.set_active(Driver())
    import torch
    import torch.distributed as dist
    import kcp_torch
    import kcp_torch.fla as backend
    from fla.ops.cp import build_cp_context
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.kda import chunk_kda
    torch.manual_seed(7)
    q, k, v = (torch.randn(1, 40, 2, 8) for _ in range(3))
    beta, h0 = torch.rand(1, 40, 2), torch.randn(1, 2, 8, 8)
    for f, ours, g in (
            (chunk_kda, kcp_torch.chunk_kda, -torch.rand(1, 40, 2, 8)),
            (chunk_gated_delta_rule, kcp_torch.chunk_gated_delta_rule,
             -torch.rand(1, 40, 2))):
        outs = []
        for function in f, ours:
            x = [t.clone().requires_grad_() for t in (q, k, v, g, beta)]
            o, ht = function(*x, 0.5, h0, True, True)
            outs.append([o, ht, *torch.autograd.grad(o.sum() + ht.sum(), x)])
        assert all(map(torch.equal, *outs)), f"{f.__name__}: not the same numbers"
        packed = torch.tensor([0, 15, 40])
        assert torch.equal(f(q, k, v, g, beta, cu_seqlens=packed)[0],
                           ours(q, k, v, g, beta, cu_seqlens=packed)[0]), "packed"
    dist.init_process_group("gloo", init_method=f"file://{path}/meet", rank=0,
                            world_size=1)
    x = dict(q=q, k=k, v=v, g=g, beta=beta)
    for layout in "contiguous", "zigzag":
        x["cp_context"] = build_cp_context(torch.tensor([0, 15, 40]), dist.group.WORLD,
                                           layout=layout)
        why = backend._why_not("gdn", x)
        assert bool(why) == (layout == "zigzag") and (not why or layout in why), why
    o, _ = chunk_gated_delta_rule(**dict(x, cp_context=build_cp_context(
        packed, dist.group.WORLD)))
    assert torch.equal(o, ours(q, k, v, g, beta, cu_seqlens=packed)[0]), "cp_context"
    del x["cp_context"]
    for why, more in (("", {}), ("", dict(use_graph=False)), ("use_graph", dict(
            use_graph=True)), ("sparsity", dict(sparsity=3)), ("k is no", dict(k=None)),
            ("is not bfloat16", dict(q=q.double())), ("no tokens, or", dict(v=v[:, :, :1])),
            ("intermediate", dict(return_intermediate_states=True)),
            ("chunk_size 16", dict(chunk_size=16)), ("without use_beta_sigmoid", dict(
                allow_neg_eigval=True)), ("initial_state", dict(initial_state=h0.half())),
            ("lower_bound -7", dict(safe_gate=True, use_gate_in_kernel=True,
                                    lower_bound=-7.0)),
            ("before `import kcp_torch.fla`", dict(cp_context=object()))):
        found = backend._why_not("kda", dict(x, **more))
        assert why in found if why else found is None, f"{why}: {found}"
    try:                                      # FLA's error would name its Triton code
        chunk_kda(**dict(x, sparsity=3))
        raise AssertionError("sparsity: no error")
    except NotImplementedError as e:
        assert "sparsity" in str(e) and "need a GPU" in str(e), e
    left(backend, x)
    kcp_torch.release()
    dist.destroy_process_group()
    print(f"{backend.VERSION}: calls reach kcp_torch, zigzag is refused")


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        one(sys.argv[2])
    else:
        releases(sys.argv[1], sys.argv[2:])
