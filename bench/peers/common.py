"""common.py -- cases, inputs, timing and rows for the programs that time other systems.

Book: chapter 18.

kcp-bench writes the rows of one case to a file. Programs for other systems append rows to
this file, with the system's name in column "peer". Inputs are random numbers with the
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
# Columns that are equal in all rows of a case. The last four columns have the controls.
NUMBERS = "T H HV K V C segments ranks sequences".split()
WORDS = "lengths model gate save walk reuse_M copy product gather_bytes gather_us".split()


def read(path):
    """Returns a file's column names, and its rows as dictionaries."""
    with open(path, newline="") as f:
        rows = csv.DictReader(f, **TSV)
        return list(rows.fieldnames or []), list(rows)


def head(path):
    """Reads the case and the controls from the first row of kcp-bench's file."""
    rows = read(path)[1]
    if not rows or "T" not in rows[0]:
        raise ValueError(f"{path}: found no row, expected kcp-bench's file")
    return {**{n: int(rows[0][n]) for n in NUMBERS}, **{n: rows[0][n] for n in WORDS}}


def append(path, case, rows):
    """Prints rows of a case, and appends them with columns in the file's order."""
    with open(path, "a", newline="") as f:
        out = csv.DictWriter(f, read(path)[0], **TSV)
        for r in rows:
            print(f"{r['stage']:<18}{r['variant']:<31}{r['us']:10.1f}{r['us_p10']:10.1f}"
                  f"{r['us_p90']:10.1f}", flush=True)
            out.writerow({n: value for n, value in {**case, **r}.items() if value != ""})


def write(path, columns, rows):
    """Writes a table. Cells that a row lacks are empty; cells without a column are left out."""
    with open(path, "w", newline="") as f:
        out = csv.DictWriter(f, columns, restval="", extrasaction="ignore",
                             escapechar="\\", **TSV)
        out.writeheader()
        out.writerows(rows)


def version(package, folder=PEERS):
    """Returns a package's name and version, and the commit if an environment variable, e.g.
    FLASH_QLA_COMMIT, names it. For FLA in a folder that fetch.sh made, returns its line."""
    fetched = os.path.join(folder, "FLA_VERSION")
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
    """Returns a row. `us` has the median, then the 10th and 90th percentiles."""
    return {"stage": stage, "variant": variant, "pass": back, "us": round(us[0], 2),
            "us_p10": round(us[1], 2), "us_p90": round(us[2], 2), "bytes": 0,
            "flops": 0, "peer": peer, **more}


def spread(us):
    us, n = sorted(us), len(us)
    return us[n // 2], us[n // 10], us[n - 1 - n // 10]


def time_calls(torch, calls, warmup=20, iters=100):
    """Repeats all calls `iters` times. Returns the median and the 10th and 90th percentiles
    in microseconds of each call, then of the sum of the calls. As in ../bench/time.cu, the
    host waits only at the end."""
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
    """Times the forward without gradients. Returns the median and the percentiles."""
    def inference():
        with torch.no_grad():
            call()
    return time_calls(torch, [inference], warmup, iters)[0]


def time_passes(torch, call, x, learned, warmup=20, iters=100):
    """Times forward, backward, and forward plus backward. call() returns (o, ht), where ht
    may be None. The gradients of o and ht are x["do"] and x["dht"]."""
    kept = {}

    def forward():
        kept["y"] = call()

    def backward():
        outputs = [(y, x[d]) for y, d in zip(kept.pop("y"), ("do", "dht"))
                   if y is not None]
        torch.autograd.grad([y for y, _ in outputs], learned, [d for _, d in outputs])
    return time_calls(torch, [forward, backward], warmup, iters)


def starts(lengths):
    """Returns the boundaries of sequences with these lengths, e.g. 4x8192,1024."""
    cu = [0]
    for word in lengths.split(","):
        times, _, length = word.rpartition("x")
        for _ in range(int(times or 1)):
            cu.append(cu[-1] + int(length))
    return cu


def inputs(torch, case, tokens, seed, states=True):
    """Returns random inputs for the case, with gates as in ../bench/inputs.cu."""
    T, H, HV, K, V = tokens, case["H"], case["HV"], case["K"], case["V"]
    kda = case["model"] == "kda"
    KG = K if kda else 1
    torch.manual_seed(seed)

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
        x["cu"] = torch.tensor(starts(case["lengths"]), dtype=torch.long, device="cuda")
    if states:
        x["h0"] = normal(N, HV, K, V, dtype=torch.float32)
        x["dht"] = normal(N, HV, K, V, dtype=torch.float32)
    x["scale"] = 1 / math.sqrt(K)
    return x


def gone(limit):
    """Returns true if the time limit of this process has passed."""
    return bool(limit) and time.monotonic() - began > limit
