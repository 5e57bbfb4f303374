"""reach.py -- times calls of real models with kcp_torch and with FLA, in one run.

Book: chapter 18.

    python3 bench/peers/reach.py --fla DIR [--rows WORD...] [--seconds S] [--record FILE]
    torchrun --nproc-per-node 2 bench/peers/reach.py --fla DIR ...    rows named cp-

DIR contains FLA's package (fetch.sh makes .peers, or unpack FLA's wheels). For each row the
program prints the medians of the forward without gradients and of forward plus backward in
ms, and bytes per token and head: kept from forward to backward, and the peak of a step, each
without inputs. The record has both in MiB. A row runs in a child process, so that a row
that fails, hangs (--row-seconds) or breaks the GPU's context costs one line. --seconds
limits the whole run; rows that find no time are printed. --record writes a table, which
records.py adds as reach.tsv. Words of --rows select rows by parts of names. Triton's tuner
runs as in ahead.py. Without a GPU the program prints one line, and the exit status is 2.
"""
import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time

import common
from reach_rows import ROWS, inputs, options

SYSTEMS = "kcp_torch", "fla"
SHOWN = "model T H HV K V C q g beta gate deep ranks".split()
COLUMNS = ["row", "peer", *SHOWN, "path", "forward_ms", "both_ms", "kept_mib", "peak_mib",
           "differs", "copy_tb_s", "says"]


def arguments():
    take = argparse.ArgumentParser(prog="reach.py")
    take.add_argument("--fla", metavar="DIR", default=common.PEERS)
    take.add_argument("--rows", nargs="+", metavar="WORD", default=[""])
    take.add_argument("--seconds", type=float, default=540)
    take.add_argument("--row-seconds", type=float, default=150)
    take.add_argument("--record", metavar="FILE")
    take.add_argument("--only", choices=SYSTEMS, help="time one system")
    take.add_argument("--untuned", action="store_true", help="compile FLA's kernels once,"
                      " for their memory, and leave out their times")
    take.add_argument("--list", action="store_true", help="print the rows")
    take.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    o = take.parse_args()
    o.systems = [o.only] if o.only else list(SYSTEMS)
    return o


# ---- the child: times rows, prints JSON lines

class Timer:
    """Times calls. `wait`: cycles for which the GPU is busy before each call, so that the
    host is ahead of the GPU and the time of its work does not count."""
    def __init__(self, torch, wait=0):
        self.torch, self.cuda, self.wait = torch, torch.cuda, wait

    def median(self, step, n=9, most=1.5):
        """Returns the median of n calls in ms; fewer calls if they take long."""
        step()
        self.cuda.synchronize()
        ms, ends = [], time.monotonic() + most
        for i in range(3 + n):
            a, b = (self.cuda.Event(enable_timing=True) for _ in range(2))
            self.cuda._sleep(self.wait) if self.wait else None
            a.record()
            step()
            b.record()
            self.cuda.synchronize()
            if i >= 3 or time.monotonic() > ends:
                ms.append(a.elapsed_time(b))
                if time.monotonic() > ends:
                    break
        return sorted(ms)[len(ms) // 2]

    def copy(self):
        """Returns the rate of a copy on the device in TB/s, bytes read and written."""
        x = self.torch.empty(1 << 30, dtype=self.torch.uint8, device="cuda")
        y = self.torch.empty_like(x)
        return 2 * x.numel() / self.median(lambda: y.copy_(x)) / 1e9

    def times(self, call, x, do, out):
        """Writes a row's columns to `out`. Returns the output and the gradients. If the
        backward fails, `out` has the forward's time."""
        torch, learned = self.torch, [t.requires_grad_() for t in x.values()]

        def forward():
            with torch.no_grad():
                return call(x)

        def both():
            return torch.autograd.grad(call(x), learned, do)
        out["forward_ms"] = round(self.median(forward), 4)
        out["both_ms"] = round(self.median(both), 4)
        self.cuda.synchronize()
        self.cuda.reset_peak_memory_stats()
        before = self.cuda.memory_allocated()
        o = call(x)
        kept = self.cuda.memory_allocated() - before - o.numel() * o.element_size()
        grads = torch.autograd.grad(o, learned, do)
        self.cuda.synchronize()
        peak = self.cuda.max_memory_allocated() - before
        out.update(kept_mib=round(kept / 2 ** 20, 1), peak_mib=round(peak / 2 ** 20, 1))
        return [o.detach(), *grads]


def differs(a, b):
    """Returns the largest relative difference of two systems' tensors; infinity if only one
    system has a tensor, or if a number is NaN."""
    worst = 0.0
    for x, y in zip(a, b):
        if x is None and y is None:
            continue
        if x is None or y is None:
            return float("inf")
        scale = y.float().norm().item()
        off = (x.float() - y.float()).norm().item() / scale if scale else 0.0
        worst = max(worst, off if off == off else float("inf"))
    return worst


def functions(system, model):
    if system == "fla":
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        from fla.ops.kda import chunk_kda
        return chunk_kda if model == "kda" else chunk_gated_delta_rule
    import kcp_torch
    return kcp_torch.chunk_kda if model == "kda" else kcp_torch.chunk_gated_delta_rule


def context_of(system, torch, row):
    import torch.distributed as dist
    cu = torch.tensor([0, row["T"]], dtype=torch.long, device="cuda")
    if system == "fla":
        from fla.ops.cp import build_cp_context
        return build_cp_context(cu, group=dist.group.WORLD)
    import kcp_torch
    return kcp_torch.build_cp_context([0, row["T"]], dist.group.WORLD,
                                      layout=row["layout"])


def run_row(torch, timer, name, systems, rank, R):
    """Yields a dictionary per system."""
    row, first = ROWS[name], None
    for system in systems:
        found = dict(row=name, peer=system)
        try:
            x, do = inputs(torch, row, row["T"] // R, 1 + rank)
            more, function = options(row), functions(system, row["model"])
            if R > 1:
                more["cp_context"] = context_of(system, torch, row)
            out = timer.times(lambda x: function(**x, **more)[0], x, do, found)
            if system == "kcp_torch":
                import kcp_torch
                found["path"] = " ".join(kcp_torch.last_paths())
            if first is not None and row["layout"] == "contiguous":
                found["differs"] = float(f"{differs(out, first):.2g}")
            first, out, x, do = out, None, None, None
        except Exception as e:
            found["says"] = f"{type(e).__name__}: {' '.join(str(e).split())[:160]}"
            found["broken"] = "CUDA" in str(e) or "illegal" in str(e)
        torch.cuda.empty_cache()
        yield found


def child(o):
    import warnings
    warnings.simplefilter("ignore")
    import torch
    sys.path.insert(0, o.fla)
    if "fla" in o.systems:
        os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "1")
        import ahead
        ahead.install(first=o.untuned)
    timer = Timer(torch)
    print(json.dumps(dict(copy_tb_s=round(timer.copy(), 2))), flush=True)
    for name in o.child:
        print(json.dumps(dict(start=name)), flush=True)
        for found in run_row(torch, timer, name, o.systems, 0, 1):
            broken = found.pop("broken", False)
            for n in ("forward_ms", "both_ms") if o.untuned and found["peer"] == "fla" else ():
                found.pop(n, None)
            print(json.dumps(found), flush=True)
            if broken:
                sys.exit(3)


# ---- the parent: starts children, prints the table

class Table:
    def __init__(self, o, peers):
        self.o, self.rows, self.copy, self.peers = o, [], "", peers

    def title(self):
        print(f"{'row':<22}{'ours f':>9}{'f + b':>9}{'kept':>7}{'peak':>7}{'FLA f':>9}"
              f"{'f + b':>9}{'kept':>7}{'peak':>7}{'differs':>9}  note", flush=True)

    def show(self, name, found):
        """Prints and records a row; `found` maps a system to its columns."""
        cells, note, row = "", [], ROWS[name]
        self.rows += [{**{n: row[n] for n in SHOWN}, **x, "copy_tb_s": self.copy,
                       "peer": self.peers[x["peer"]]} for x in found.values()]
        head = 2 ** 20 * row["ranks"] / row["T"] / row["HV"]  # of a MiB, per token and head
        for system in SYSTEMS:
            x = found.get(system, {})
            cells += "".join(f"{x[n] * by:>{w}.{d}f}" if n in x else " " * (w - 1) + "-"
                             for n, w, d, by in (
                                 ("forward_ms", 9, 3, 1), ("both_ms", 9, 3, 1),
                                 ("kept_mib", 7, 0, head), ("peak_mib", 7, 0, head)))
            if x.get("says"):
                note.append(f"{system}: {x['says']}")
        ours, fla = (found.get(s, {}) for s in SYSTEMS)
        for n, word in (("forward_ms", "f"), ("both_ms", "f + b"), ("peak_mib", "peak")):
            if n in ours and n in fla and ours[n] > fla[n]:
                note.append(f"FLA ahead in {word} ({ours[n] / fla[n]:.2f})")
        for n, limit in zip(("forward_ms", "both_ms"), row["to"]):
            if limit and ours.get(n, 0) > limit:
                note.append(f"{n} above {limit}")
        note += [ours["path"]] if ours.get("path") else []
        off = fla.get("differs")
        print(f"{name:<22}{cells}{off if off is not None else '-':>9}  "
              f"{'; '.join(note)}", flush=True)
        self.write()

    def write(self):
        if self.o.record:
            common.write(self.o.record, COLUMNS, self.rows)


def lines(run, ends):
    """Yields the child's lines until it ends; yields None once if `ends()` passes."""
    buffer, at = b"", run.stdout.fileno()
    while True:
        left = ends() - time.monotonic()
        if left <= 0 or not select.select([at], [], [], left)[0]:
            yield None
            return
        more = os.read(at, 65536)
        if not more:
            return
        *whole, buffer = (buffer + more).split(b"\n")
        yield from (json.loads(x) for x in whole if x.startswith(b"{"))


def parent(o, names, peers):
    table, todo = Table(o, peers), list(names)
    stop = time.monotonic() + o.seconds
    began = time.monotonic()
    shown, idle = False, 0
    while todo and time.monotonic() < stop:
        words = [sys.executable, os.path.abspath(__file__), "--fla", o.fla]
        words += ["--only", o.only] if o.only else []
        words += ["--untuned"] if o.untuned else []
        log = tempfile.TemporaryFile("w+", errors="replace")
        run = subprocess.Popen(words + ["--child", *todo], stdout=subprocess.PIPE,
                               stderr=log, start_new_session=True)
        name, found, began, before = None, {}, time.monotonic(), len(todo)

        def finish(why=None):
            if name is None:
                return
            for system in o.systems:
                if system not in found:
                    found[system] = dict(row=name, peer=system, says=why or "not run")
            table.show(name, found)
            todo.remove(name)
        why = None
        for x in lines(run, lambda: min(stop, began + o.row_seconds)):
            if x is None:
                why = "the time limit"
                os.killpg(run.pid, 9)
                break
            if "copy_tb_s" in x:
                table.copy = x["copy_tb_s"]
                if not shown:
                    print(f"# copy {table.copy} TB/s; {'; '.join(peers.values())}")
                    table.title()
                shown = True
            elif "start" in x:
                finish()
                name, found, began = x["start"], {}, time.monotonic()
            else:
                found[x["peer"]] = {n: y for n, y in x.items()}
        run.wait()
        log.seek(0)
        said = " ".join((log.read().split("\n")[-2:])).strip()[-160:]
        finish(why or f"the process ended with status {run.returncode}: {said}")
        idle = idle + 1 if len(todo) == before else 0
        if idle == 2:
            print(f"reach.py: a child process ends before its first row: {said}")
            break
    for name in todo:
        print(f"{name:<22}no time left")
    table.write()
    return 0 if table.rows else 1


def ranks(o, names, peers):
    """Under torchrun: times the rows cp-, the slowest rank's medians."""
    import torch
    import torch.distributed as dist
    import warnings
    warnings.simplefilter("ignore")
    rank, R = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    sys.path.insert(0, o.fla)
    dist.init_process_group("nccl")
    timer, table = Timer(torch), Table(o, peers)
    table.copy = round(timer.copy(), 2)
    if rank == 0:
        print(f"# {R} ranks, copy {table.copy} TB/s; {'; '.join(peers.values())}")
        table.title()
    ends = time.monotonic() + o.seconds
    for name in names:
        late = torch.tensor([float(time.monotonic() > ends)], device="cuda")
        dist.all_reduce(late)
        if late.item():
            print(f"{name:<22}no time left") if rank == 0 else None
            continue
        found = {}
        for x in run_row(torch, timer, name, o.systems, rank, R):
            x.pop("broken", None)
            every = [None] * R
            dist.all_gather_object(every, x)
            for n in "forward_ms", "both_ms", "kept_mib", "peak_mib", "differs":
                if all(n in y for y in every):
                    x[n] = max(y[n] for y in every)
            x["says"] = next((y["says"] for y in every if y.get("says")), "")
            found[x["peer"]] = x
        if rank == 0:
            table.show(name, found)
    import kcp_torch
    kcp_torch.release()
    dist.destroy_process_group()
    return 0


def versions(o):
    """Returns the names of both systems, with versions and commit."""
    import kcp_torch
    import torch
    sys.path.insert(0, o.fla)                 # unpacked wheels have their version there
    return {"kcp_torch": f"kcp_torch {kcp_torch.__version__} torch {torch.__version__}",
            "fla": common.version("flash-linear-attention", o.fla)}


def main():
    o = arguments()
    many = int(os.environ.get("WORLD_SIZE", "1")) > 1
    names = [n for n in ROWS if any(w in n for w in o.rows)
             and (ROWS[n]["ranks"] > 1) == many]
    if o.child:
        return child(o)
    if o.list:
        for n in names:
            print(f"{n:<22}" + " ".join(f"{c}={ROWS[n][c]}" for c in SHOWN),
                  ROWS[n]["who"])
        return 0
    import torch
    if not torch.cuda.is_available() or not names:
        found = "no GPU found" if names else f"--rows: found {o.rows}, expected parts of" \
            " names that --list prints"
        print(f"reach.py: {found}", file=sys.stderr)
        return 2
    return (ranks if many else parent)(o, names, versions(o))


if __name__ == "__main__":
    sys.exit(main())
