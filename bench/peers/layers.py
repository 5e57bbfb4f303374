"""layers.py -- runs delta-rule layers of other projects on kcp_torch.

Book: users.md.

    python3 bench/peers/layers.py [--rows WORD...]           on the CPU, tiny layers
    python3 bench/peers/layers.py --device cuda [--time]     on a GPU, layers of real size

The layers come from transformers, flash-linear-attention (FLA) and Megatron-core
(layers.txt) and have random weights. A layer's output and all gradients are compared with
the same layer on plain PyTorch, its fallback: for a batch, for packed sequences, with
padding, and with a cache (two prefills, then 32 tokens decoded one by one). In these
columns, after `import kcp_torch.fla`, FLA's function calls kcp_torch. For column "line",
one assignment replaces the function that the layer calls. Numbers are the largest relative
error |a - b| / |b| over tensors; "-" marks a mode that the layer does not have. For column
"planted", kcp_torch gets a wrong beta, and the error must exceed the limit. With --time, a
layer's forward, forward plus backward and peak memory are printed with kcp_torch, with
FLA's kernels and with the fallback, or with some of them (--only), and the error of kcp_torch's
output and gradients beside the fallback's; the GPU is busy while the host enqueues a step, so
the host's time does not count. --record writes a table, which
records.py adds as layers.tsv. FLA's kernels are tuned first, a minute or two per layer;
earlier processes with --only FLA, one per layer at once, leave compiled candidates in Triton's
cache. The exit status is 1 if a row fails, or with --all if a package is missing.
"""
import argparse
import contextlib
import os
import sys
import warnings

import torch
import torch.nn.functional as F

import common
from layer_rows import ROWS, replaced
from reach import Timer, differs

CUTS = 0, 17, 81, 150                         # packed sequences; their length is T
T, PADS = CUTS[-1], (0, 53)                   # padding of each sequence of a batch
TINY = dict(width=64, H=2, HV=4, K=16)
SMALL = dict(width=256, H=2, HV=4, K=128)     # on a GPU
REAL = dict(width=2048, H=16, HV=32, K=128)
PEERS = "kcp_torch", "FLA", "PyTorch"
WAIT = 100_000_000                            # cycles, about 0.05 s: longer than the host
COLUMNS = "layer", "peer", "forward_ms", "both_ms", "peak_mib", "error", "says"


class Driver:
    """Replaces Triton's driver, so that FLA can be imported without a GPU."""
    def __getattr__(self, name):
        return lambda *args, **more: None


FUNCTIONS = {"kda": "chunk_kda", "gdn": "chunk_gated_delta_rule"}


class Served:
    """Counts the calls that reach kcp_torch, and can plant a mistake in them."""
    def __init__(self):
        import kcp_torch
        self.calls, self.factor = 0, 1.0
        for name in FUNCTIONS.values():
            made = self.wrapper(getattr(kcp_torch.chunk, name))
            setattr(kcp_torch.chunk, name, made)     # kcp_torch.fla calls it
            setattr(kcp_torch, name, made)

    def wrapper(self, function):
        def call(q, k, v, g, beta, **more):
            self.calls += 1
            return function(q, k, v, g, beta if self.factor == 1 else beta * self.factor,
                            **more)
        return call


def gradients(layer, x, y, w):
    return torch.autograd.grad((y.float() * w).sum(), [x, *layer.parameters()],
                               allow_unused=True)


def mask_of(row, x):
    """Returns the padding mask of a batch, and each sequence's first token and end."""
    mask, spans = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device), []
    for b, n in enumerate(PADS):
        spans.append((n, T) if row.left else (0, T - n))
        mask[b, slice(*spans[-1])] = 1
    return mask, spans


def outputs(row, layer, mode, x, w, reference):
    """Returns the output of a mode, then the gradients of the input and of all parameters.
    With `reference`, packed and padded sequences are separate calls, and cached tokens are
    one call."""
    if mode == "cache":
        with torch.no_grad():
            if reference:
                return [row.call(layer, x)]
            cache, at, out = row.cache(), 0, []
            for n in [80, 38] + [1] * 32:     # prefill, prefill, decode
                out.append(row.call(layer, x[:, at:at + n], cache=cache))
                at += n
            return [torch.cat(out, 1)]
    x = x.clone().requires_grad_()
    if mode == "packed":
        cu = torch.tensor(CUTS, device=x.device)
        if reference:
            y = torch.cat([row.call(layer, x[:, a:b]) for a, b in zip(CUTS, CUTS[1:])], 1)
        else:
            with row.convolution(cu):
                y = row.call(layer, x, cu=cu)
    elif mode == "padded":
        mask, spans = mask_of(row, x)
        if reference:
            rows = [row.call(layer, x[b:b + 1, i:j]) for b, (i, j) in enumerate(spans)]
            rows = [F.pad(y, (0, 0, i, T - j)) for y, (i, j) in zip(rows, spans)]
            y = torch.cat(rows)
        else:
            y = row.call(layer, x, mask=mask) * mask[..., None]
    else:
        y = row.call(layer, x)
    return [y.detach(), *gradients(layer, x, y, w)]


class Checker:
    def __init__(self, device):
        self.device, self.cpu = device, device == "cpu"
        self.dtype = torch.float32 if self.cpu else torch.bfloat16
        self.limit = 2e-5 if self.cpu else 4e-2
        self.served, self.bad = Served(), 0

    def made(self, row, sizes):
        torch.manual_seed(5)
        layer = row.build(sizes).to(self.device, self.dtype)
        if self.cpu and hasattr(row, "on_cpu"):
            row.on_cpu(layer)
        return layer.eval()

    def one(self, row, layer, mode, x, w, line):
        import kcp_torch
        decode = contextlib.nullcontext()
        if self.cpu and mode == "cache":      # FLA decodes by a Triton kernel
            decode = replaced(row.place, row.step, row.plain_step)
        function = getattr(row.place, row.name)
        if line:
            function = getattr(kcp_torch, FUNCTIONS[row.model])
        before = self.served.calls
        with decode, replaced(row.place, row.name, function):
            found = outputs(row, layer, mode, x, w, False)
        if self.served.calls > before:
            return found
        if self.cpu or line:
            raise RuntimeError("kcp_torch was not called")
        return None                           # kcp_torch.fla left the call to FLA

    def row(self, row, sizes):
        cells = {"modes": {}}
        layer = self.made(row, sizes)
        for mode in row.modes:
            B = 1 if mode == "packed" else 2
            x = torch.randn(B, T, sizes["width"], device=self.device, dtype=self.dtype)
            w = torch.randn(B, T, sizes["width"], device=self.device)
            with replaced(row.place, row.name, row.plain):
                wanted = outputs(row, layer, mode, x, w, True)
            for line in (False, True):
                found = self.one(row, layer, mode, x, w, line)
                off = None if found is None else differs(found, wanted)
                self.bad += off is not None and not off <= self.limit
                cells["modes"][mode, line] = off
            if mode == "batch":
                self.served.factor = 1.01 if self.cpu else 1.5
                off = differs(self.one(row, layer, mode, x, w, True), wanted)
                self.served.factor = 1.0
                self.bad += not off > self.limit
                cells["planted"] = off
        return cells


def text(cells, limit):
    """Returns a row of the table."""
    def number(x, good):
        return f"{x:.1e}{'' if good else ' FAIL'}"

    words = []
    for mode in "batch", "packed", "padded", "cache":
        x = cells["modes"].get((mode, False), "-")
        x = "left to FLA" if x is None else x
        words.append(x if isinstance(x, str) else number(x, x <= limit))
    line = max(x for (_, how), x in cells["modes"].items() if how)
    planted = cells["planted"]
    return words + [number(line, line <= limit), number(planted, planted > limit)]


def timed(checker, name, row, peer, ours):
    """Times a layer with kcp_torch, with FLA's kernels, or with the layer's own fallback
    in PyTorch, and prints a line. If FLA refuses the backward, only the forward has a
    time. The fallback's line has the error of `ours`, kcp_torch's output and gradients."""
    os.environ["KCP_FLA"] = str(int(peer == "kcp_torch"))
    before, found = checker.served.calls, dict(layer=name, peer=peer)
    try:
        layer = checker.made(row, REAL).train()
        x = torch.randn(1, 8192, REAL["width"], device="cuda", dtype=torch.bfloat16)
        plain = row.plain if peer == "PyTorch" else getattr(row.place, row.name)
        with replaced(row.place, row.name, plain):
            found["out"] = Timer(torch, WAIT).times(
                lambda x: row.call(layer, x["x"]),
                dict(layer.named_parameters(), x=x), torch.randn_like(x), found)
        if ours and peer == "PyTorch":
            found["error"] = float(f"{differs(ours, found['out']):.2g}")
        if (checker.served.calls > before) != (peer == "kcp_torch"):
            found["says"] = "left to FLA"
    except Exception as e:                    # other rows are still timed
        found["says"] = f"{type(e).__name__}: {' '.join(str(e).split())[:100]}"
    cells = "".join(f"{found.get(n, '-'):>10}" for n in COLUMNS[2:6])
    print(f"{name:<28}{peer:<12}{cells}  {found.get('says', '')}", flush=True)
    torch.cuda.empty_cache()
    return found


def main():
    take = argparse.ArgumentParser(prog="layers.py")
    take.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    take.add_argument("--rows", nargs="+", metavar="WORD", default=[""])
    take.add_argument("--time", action="store_true")
    take.add_argument("--only", nargs="+", choices=PEERS, default=PEERS)
    take.add_argument("--record", metavar="FILE")
    take.add_argument("--all", action="store_true")
    o = take.parse_args()
    rows = {n: r for n, r in ROWS.items() if any(w in n for w in o.rows)}
    if not rows or (o.device == "cuda" or o.time) and not torch.cuda.is_available():
        what = "--rows: found no row with these words" if not rows else \
            "--device cuda, --time: no GPU found"
        print(f"layers.py: {what}", file=sys.stderr)
        sys.exit(2)
    warnings.simplefilter("ignore")
    if o.device == "cpu" and not o.time:
        from triton.runtime import driver
        driver.set_active(Driver())
        torch.compiler.set_stance("force_eager")
    else:                                     # Triton's candidates compile on all cores
        import ahead
        ahead.install(first=not o.time)
    import kcp_torch.fla
    checker = Checker("cuda" if o.time else o.device)
    missing = 0
    print(f"# FLA {kcp_torch.fla.VERSION}, torch {torch.__version__}, {checker.device},"
          f" {checker.dtype}, limit {checker.limit:g}")
    titles = ["batch", "packed", "padded", "cache", "line", "planted"]
    if not o.time:
        print(f"{'layer':<28}" + "".join(f"{t:>13}" for t in titles))
    else:
        print(f"{'layer':<28}{'kernels':<12}{'forward':>10}{'f + b ms':>10}{'peak MiB':>10}"
              f"{'error':>10}")
    found = []
    for name, row in rows.items():
        if o.time:
            ours = None
            for peer in o.only:
                found.append(timed(checker, name, row, peer, ours))
                out = found[-1].pop("out", None)
                ours = ours or out
            if o.record:
                common.write(o.record, COLUMNS, found)
            continue
        try:
            words = text(checker.row(row, TINY if checker.cpu else SMALL), checker.limit)
            print(f"{name:<28}" + "".join(f"{w:>13}" for w in words), flush=True)
        except ImportError as e:
            missing += 1
            print(f"{name:<28}not installed: {e.name or e}")
        except Exception as e:
            checker.bad += 1
            print(f"{name:<28}FAIL {type(e).__name__}: {str(e)[:200]!r}", flush=True)
    if not o.time:
        print(f"layers.py: {len(rows) - missing} layers, {checker.bad} failures,"
              f" {missing} not installed")
        sys.exit(bool(checker.bad or o.all and missing))


if __name__ == "__main__":
    main()
