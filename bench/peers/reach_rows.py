"""reach_rows.py -- the calls that reach.py times, and their inputs.

Book: chapter 18.

A row is a call that real models make: sizes, types and gate. `to` has the times that the
call must reach in ms, forward and forward plus backward, where known, on an H200. In
rows with layout zigzag, FLA has contiguous tokens, so outputs are not compared.
"""
import math

BASE = dict(T=8192, H=32, HV=32, K=128, V=128, C=64, q="bf16", g="bf16", beta="bf16",
            gate="raw", deep=0, ranks=1, layout="contiguous", to=(None, None), who="")


def kda(**more):
    return {**BASE, "model": "kda", **more}


def gdn(**more):
    return {**BASE, "model": "gdn", "H": 16, **more}


ROWS = {
    "gdn-8k": gdn(),
    "gdn-8k-g32": gdn(g="f32", to=(0.25, 0.85), who="Megatron"),
    "gdn-8k-g32-b32": gdn(g="f32", beta="f32", to=(0.25, 0.85)),
    "gdn-8k-32x32-g32": gdn(H=32, g="f32", who="Qwen3-Next, Qwen3.5: q, k expanded"),
    "gdn-32k": gdn(T=32768),
    "gdn-32k-g32": gdn(T=32768, g="f32", to=(0.75, 2.6)),
    "gdn-softplus": gdn(gate="softplus", who="FLA GatedDeltaNet, head_dim 128"),
    "kda-32": kda(),
    "kda-32-g32": kda(g="f32", beta="f32", to=(0.40, 1.45), who="Kimi-Linear"),
    "kda-32-g32-b16": kda(g="f32", to=(0.40, 1.45)),
    "kda-32-bounded": kda(gate="bounded", who="FlashKDA, K3"),
    "kda-32-softplus": kda(gate="softplus", who="FLA KimiDeltaAttention"),
    "kda-32-softplus-b32": kda(gate="softplus", beta="f32"),
    "kda-96-bounded": kda(H=96, HV=96, gate="bounded", who="README"),
    "kda-96-softplus": kda(H=96, HV=96, gate="softplus", to=(None, None)),
    "kda-96-deep1": kda(H=96, HV=96, gate="softplus", deep=1),
    "kda-96-deep48": kda(H=96, HV=96, gate="softplus", deep=48),
    "kda-96-deep96": kda(H=96, HV=96, gate="softplus", deep=96),
    "kda-f16": kda(q="f16", g="f16", beta="f16", gate="bounded", to=(0.42, 1.5)),
    "gdn-f16-g32": gdn(q="f16", g="f32", beta="f16", to=(0.35, 1.2)),
    "kda-chunk32": kda(C=32, gate="bounded"),
    "gdn-v256": gdn(H=6, HV=6, V=256, to=(0.30, 1.2), who="expand_v = 2"),
    "gdn-v256-g32": gdn(H=6, HV=6, V=256, g="f32", to=(0.30, 1.2)),
    "kda-v256": kda(H=16, HV=16, V=256, gate="softplus", who="expand_v = 2"),
    "kda-96x96": kda(H=16, HV=16, K=96, V=96, gate="softplus", to=(0.35, 1.2)),
    "kda-f32": kda(q="f32", g="f32", beta="f32"),
    "gdn-k256": gdn(H=6, HV=6, K=256, V=256),
    "gdn-k256-v512": gdn(H=6, HV=6, K=256, V=512, gate="softplus",
                         who="FLA GatedDeltaNet by default"),
    "kda-k256": kda(H=6, HV=6, K=256, V=256),
    "kda-512x16": kda(T=512, H=16, HV=16, gate="bounded", to=(0.10, 0.30)),
    "kda-1x32": kda(T=1, gate="bounded"),
    "cp-kda": kda(T=131072, ranks=2),
    "cp-kda-g32": kda(T=131072, g="f32", beta="f32", ranks=2),
    "cp-kda-zigzag": kda(T=131072, ranks=2, layout="zigzag"),
    "cp-gdn": gdn(T=131072, H=32, ranks=2),
    "cp-gdn-g32": gdn(T=131072, H=32, g="f32", ranks=2),
    "cp-gdn-zigzag": gdn(T=131072, H=32, ranks=2, layout="zigzag"),
}


def inputs(torch, row, tokens, seed):
    """Returns q, k, v, g, beta, the gate's parameters and do. Gates are as FLA's layers
    initialise them: A = exp(A_log) from 1 to 16, dt from 0.001 to 0.1. In `deep` heads one
    channel decays by much more than 2^-100 per 32 tokens."""
    types = dict(bf16=torch.bfloat16, f16=torch.float16, f32=torch.float32)
    T, H, HV, K, V = tokens, row["H"], row["HV"], row["K"], row["V"]
    torch.manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.float32)
    KG = (K,) if row["model"] == "kda" else ()
    A_log = torch.empty(HV, device="cuda").uniform_(1, 16).log()
    dt = torch.exp(torch.rand(HV, *KG, device="cuda") * math.log(100) + math.log(1e-3))
    dt_bias = dt + torch.log(-torch.expm1(-dt))
    if row["deep"]:
        dt_bias[-row["deep"]:, 5] = 20
    raw, beta = 0.33 * normal(1, T, HV, *KG), normal(1, T, HV)
    x = {n: normal(1, T, *s).to(types[row["q"]]) for n, s in dict(
        q=(H, K), k=(H, K), v=(HV, V)).items()}
    if row["gate"] == "raw":                  # computed outside, as transformers does
        A = A_log.exp().view(HV, *(1 for _ in KG))
        raw = -A * torch.nn.functional.softplus(raw + dt_bias)
        beta = beta.sigmoid()
    x.update(g=raw.to(types[row["g"]]), beta=beta.to(types[row["beta"]]))
    if row["gate"] != "raw":
        x.update(A_log=A_log, dt_bias=dt_bias.reshape(-1))
    return x, normal(1, T, HV, V).to(types[row["q"]])


def options(row):
    """Returns the arguments of a call that are not tensors."""
    o = dict(use_qk_l2norm_in_kernel=True)
    if row["gate"] != "raw":
        o.update(use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True)
    if row["gate"] == "bounded":
        o.update(lower_bound=-5.0, safe_gate=True)
    if row["C"] != 64:
        o["chunk_size"] = row["C"]
    return o
