"""common.py -- code shared by the adapters: cases, inputs, calls, timing, rows.

Book: chapter 18.  Checked by: the columns of the files that it writes.
Next: fla_ops.py.

All rows of one file of kcp-bench have the same case. An adapter appends rows to that file,
with the name of the other system in column "peer". Inputs are random numbers with the
distributions of ../bench/inputs.cu.
"""
import csv
import math
import os
import time
from importlib.metadata import PackageNotFoundError, version as installed

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PEERS = os.path.join(ROOT, ".peers")
TSV = dict(delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n")
began = time.monotonic()
IDLE = "found no GPU, or no package"


CASE = dict(T=8192, H=96, HV=0, K=128, V=128, C=64, segments=1, ranks=1, sequences=1,
            lengths="", model="kda", gate="live")
CONTROLS = ("copy", "product", "gather_bytes", "gather_us")
# The columns of torch.tsv.
OF_TORCH = ("what how n model T H HV K V C gate ranks us us_p10 us_p90 worst error says"
            " peer").split()


def read(path):
    """Returns the names of a file's columns, and its rows by these names."""
    with open(path, newline="") as f:
        rows = csv.DictReader(f, **TSV)
        return list(rows.fieldnames or []), list(rows)


def head(path, words):
    """Returns the case of a file, or, if it does not exist, of words such as T=131072."""
    case = dict(CASE)
    said = dict(word.split("=", 1) for word in words)
    if os.path.exists(path):
        columns, rows = read(path)
        if not rows or "T" not in columns:
            raise ValueError(f"{path}: found no row, expected kcp-bench's file")
        said = {n: rows[0][n] for n in columns
                if n in (*CASE, *CONTROLS, "save", "walk", "reuse_M") and rows[0][n]}
    for name, value in said.items():
        case[name] = int(value) if isinstance(CASE.get(name), int) else value
    case["HV"] = case["HV"] or case["H"]
    if case["lengths"]:
        cu = starts(case["lengths"])
        case["T"], case["sequences"] = cu[-1], len(cu) - 1
    return case


def append(path, rows, columns=None):
    """Appends rows by the file's column names. A new file begins with `columns`, or with
    all names in the rows."""
    new = not os.path.exists(path)
    if not new:
        columns = read(path)[0]
    columns = columns or sorted({n for r in rows for n in r})
    with open(path, "a", newline="") as f:
        out = csv.DictWriter(f, columns, **TSV)
        if new:
            out.writeheader()
        for r in rows:
            out.writerow({n: value for n, value in r.items() if value != ""})


def version(package):
    """The package's version, and its commit by the variable PACKAGE_COMMIT; of FLA's
    sources in .peers/ the line that fetch.sh wrote."""
    fetched = os.path.join(PEERS, "FLA_VERSION")
    if package == "flash-linear-attention" and os.path.exists(fetched):
        with open(fetched) as f:
            return f.read().strip()
    try:
        number = installed(package)
    except PackageNotFoundError:
        number = ""
    commit = os.environ.get(package.upper().replace("-", "_") + "_COMMIT", "")
    return " ".join(f"{package} {number} {commit}".split())


def row(stage, variant, back, us, peer, **more):
    """Returns a row. us: median, 10 % and 90 %. Bytes and flops, not counted, are 0."""
    return {"stage": stage, "variant": variant, "pass": back, "us": round(us[0], 2),
            "us_p10": round(us[1], 2), "us_p90": round(us[2], 2), "bytes": 0,
            "flops": 0, "peer": peer, **more}


def spread(us):
    us, n = sorted(us), len(us)
    return us[n // 2], us[n // 10], us[n - 1 - n // 10]


def time_calls(torch, calls, warmup=20, iters=100):
    """Microseconds of each call, measured by events over iters repetitions without a
    host wait, as by time_calls in ../bench/time.cu; the last element is their sum."""
    n = len(calls)
    at = [torch.cuda.Event(enable_timing=True) for _ in range(n * iters + 1)]
    for _ in range(warmup):
        for call in calls:
            call()
    torch.cuda.synchronize()
    at[0].record()
    for i in range(iters):
        for j, call in enumerate(calls):
            call()
            at[i * n + j + 1].record()
    torch.cuda.synchronize()
    us = [1000 * a.elapsed_time(b) for a, b in zip(at, at[1:])]
    each = [spread(us[j::n]) for j in range(n)]
    return each + [spread([sum(us[i * n:i * n + n]) for i in range(iters)])]


def time_inference(torch, call, warmup=20, iters=100):
    """Times the forward without gradients; returns the median, 10 % and 90 %."""
    def inference():
        with torch.no_grad():
            call()
    return time_calls(torch, [inference], warmup, iters)[0]


def time_passes(torch, call, x, learned, warmup=20, iters=100):
    """Times forward, backward, and both. call() returns (o, ht), where ht may be None;
    the gradients of o and ht are x["do"] and x["dht"]."""
    kept = {}

    def forward():
        kept["y"] = call()

    def backward():
        outputs = [(y, x[d]) for y, d in zip(kept.pop("y"), ("do", "dht"))
                   if y is not None]
        torch.autograd.grad([y for y, _ in outputs], learned, [d for _, d in outputs])
    return time_calls(torch, [forward, backward], warmup, iters)


def layer(f, case, x, context=None):
    """Calls a function with FLA's signature for KDA or GDN; norm, gate and beta are
    inside. context: a cp_context, for one rank's part of the tokens."""
    more = dict(scale=x["scale"], use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                use_beta_sigmoid_in_kernel=True, A_log=x["A_log"], dt_bias=x["dt_bias"])
    if case["model"] == "kda":
        more.update(safe_gate=True, lower_bound=-5.0)
    if context is not None:
        more["cp_context"] = context
    elif "cu" in x:
        more["cu_seqlens"] = x["cu"]
    if context is None and "h0" in x:
        more.update(initial_state=x["h0"], output_final_state=True)
    return f(q=x["q"], k=x["k"], v=x["v"], g=x["g"], beta=x["beta"], **more)


def connect(torch):
    """Under torchrun: connects this rank to the others. Returns this rank and the number
    of ranks."""
    R = int(os.environ.get("WORLD_SIZE", "1"))
    if R > 1:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl")
    return int(os.environ.get("RANK", "0")), R


def slowest(torch, times):
    """Returns the maximum of each number over the ranks. times: tuples, or None."""
    import torch.distributed as dist
    n = [len(t) if t else 0 for t in times]
    flat = torch.tensor([u for t in times for u in t or ()], device="cuda")
    dist.all_reduce(flat, op=dist.ReduceOp.MAX)
    flat = iter(flat.tolist())
    return [tuple(next(flat) for _ in range(k)) for k in n]


def controls(torch):
    """Measures bytes/s (read plus written) of a 2 GiB copy, flop/s of an 8192^3 product."""
    a = torch.empty(1 << 30, dtype=torch.bfloat16, device="cuda").normal_()
    b = torch.empty_like(a)
    copy = time_calls(torch, [lambda: b.copy_(a)], 3, 20)[0][0]
    n = 8192
    x, y = a[:n * n].view(n, n), a[n * n:2 * n * n].view(n, n)
    z = torch.empty_like(x)
    product = time_calls(torch, [lambda: torch.mm(x, y, out=z)], 3, 10)[0][0]
    return {"copy": 2 * (2 << 30) / copy * 1e6, "product": 2 * n ** 3 / product * 1e6}


def starts(lengths):
    """Returns the boundaries cu of a list of lengths such as 4x8192,1024."""
    cu = [0]
    for word in lengths.split(","):
        times, _, length = word.rpartition("x")
        for _ in range(int(times or 1)):
            cu.append(cu[-1] + int(length))
    return cu


def packed(torch, case):
    """Returns the boundaries of sequences, as pack_batch of ../bench/setup.c does."""
    if case["lengths"]:
        return torch.tensor(starts(case["lengths"]), dtype=torch.long, device="cuda")
    T, N, cu, before = case["T"], case["sequences"], [], 0
    total = sum(1 + 3 * n % 5 for n in range(N))
    for n in range(N + 1):
        cu.append(T * before // total)
        before += 1 + 3 * n % 5
    return torch.tensor(cu, dtype=torch.long, device="cuda")


def inputs(torch, case, tokens, seed, states=True):
    """Returns tensors for these tokens; gates and regimes are as in ../bench/inputs.cu."""
    T, H, HV, K, V = tokens, case["H"], case["HV"], case["K"], case["V"]
    kda = case["model"] == "kda"
    KG = K if kda else 1
    torch.manual_seed(seed)
    if case["model"] == "dplr":
        return dplr(torch, case, tokens)

    def normal(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)

    x = {"q": normal(1, T, H, K), "k": normal(1, T, H, K), "v": normal(1, T, HV, V),
         "do": normal(1, T, HV, V)}
    A_log = 0.5 * (torch.arange(HV, device="cuda", dtype=torch.float32) + 0.5) / HV
    i = torch.arange(HV * KG, device="cuda", dtype=torch.float32)
    dt_bias = torch.log(torch.expm1(torch.exp(-6.9 + 4.6 * (i % 17) / 17)))
    z = torch.randn(T, HV, KG, device="cuda", dtype=torch.float32)
    if case["gate"] == "live":
        g = -z.abs() / case["T"] - 1e-7
    elif case["gate"] == "strong":
        g = -torch.log1p(torch.exp(-z))
    else:
        raise ValueError(f"gate: found {case['gate']}, expected live or strong")
    A, dt = torch.exp(A_log).view(HV, 1), dt_bias.view(HV, KG)
    if kda:                                  # bounded: g = -5 sigmoid(A (g_raw + dt))
        p = torch.clamp(g / -5.0, max=0.9995)
        raw = torch.log(p / (1 - p)) / A - dt
    else:                                    # softplus: g = -A softplus(g_raw + dt)
        raw = torch.log(torch.expm1(-g / A)) - dt
    shape = (1, T, HV, K) if kda else (1, T, HV)
    x["g"] = raw.to(torch.bfloat16).reshape(shape).contiguous()
    beta = torch.randn(1, T, HV, device="cuda", dtype=torch.float32)
    x["beta"] = (beta - (3 if case["gate"] == "live" else 0)).to(torch.bfloat16)
    x["A_log"], x["dt_bias"] = A_log, dt_bias
    N = case["sequences"]
    if N > 1:
        x["cu"] = packed(torch, case)
    if states:
        x["h0"] = normal(N, HV, K, V, dtype=torch.float32)
        x["dht"] = normal(N, HV, K, V, dtype=torch.float32)
    x["scale"] = 1 / math.sqrt(K)
    return x


def dplr(torch, case, tokens):
    """Returns inputs of DPLR as in RWKV-7: a = -k normalised, b = -a times a rate, g > -0.61."""
    T, H, K, V = tokens, case["H"], case["K"], case["V"]

    def normal(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.float32)

    unit = torch.nn.functional.normalize(normal(1, T, H, K), dim=-1)
    live = case["gate"] == "live"
    rate = torch.sigmoid(normal(1, T, H, K) - (3 if live else 0))
    g = -normal(1, T, H, K).abs() / case["T"] - 1e-7
    if not live:
        g = -0.6065 * torch.sigmoid(normal(1, T, H, K))
    x = {"q": normal(1, T, H, K), "k": unit, "v": normal(1, T, H, V), "a": -unit,
         "b": unit * rate, "gk": torch.clamp(g, min=-0.6065), "do": normal(1, T, H, V)}
    x = {n: t.to(torch.bfloat16).contiguous() for n, t in x.items()}
    x["h0"], x["dht"] = normal(1, H, K, V), normal(1, H, K, V)
    x["scale"] = 1 / math.sqrt(K)
    return x


def say(row):
    print(f"{row['stage']:<18}{row['variant']:<31}{row['us']:10.1f}"
          f"{row['us_p10']:10.1f}{row['us_p90']:10.1f}", flush=True)


def gone(limit):
    """Returns true if the time limit of this process has passed."""
    return bool(limit) and time.monotonic() - began > limit
