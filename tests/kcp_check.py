r"""kcp_check.py -- judges a PyTorch, Triton or NumPy function on kcp-check's cases.

Book: CONTRIBUTING.md, "Kernels written elsewhere".

  python tests/kcp_check.py my_kernel:fn --stage 08 --shapes 128x128 [--cp 4]
  python tests/kcp_check.py kcp_torch:chunk_kda --stage 13 --as fla
  python tests/kcp_check.py fla.ops.kda:chunk_kda --stage 13 --as fla --device cuda \
      --storage bf16 --shapes 128x128
  python tests/kcp_check.py --solution solution.json     in FlashInfer-Trace's format
  python tests/kcp_check.py --emit-flashinfer DIR        definitions and workloads

fn(case) gets sizes, options and arrays of a case as attributes (case.T, case.q_raw,
case.gate; an absent array is None) and returns the outputs by name, {"o": o, "ht": ht}.
If fn does not support a case, fn returns None or raises NotImplementedError (verdict n/a).
With --as fla, fn has the signature of FLA's chunk functions, and gradients come from
autograd. fn runs in a separate process. With --cp N, fn runs in N processes, each with its
shard, torch.distributed initialized, and case.rank and case.cuts set.
"""
import argparse
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types

import regimes

try:
    import numpy as np
except ImportError as e:
    sys.exit(print(f"kcp_check.py: {e}: install NumPy for this Python", file=sys.stderr)
             or 2)

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
GRID = ("cu", "cn", "sc")


def fields(stage):
    """Returns name -> (io, shape, storage) from a stage's .def and its includes."""
    found = {}

    def read(name):
        for line in open(os.path.join(ROOT, "ref", "stages", name)):
            inner = re.match(r'#include "(.*)"', line)
            if inner:
                read(inner.group(1))
            field = re.match(r'KCP_FIELD\((\w+), *\w+, *(\w+), *"(.*?)", *(\w+)',
                             line)
            if field:
                found[field.group(2).rstrip("_")] = field.group(1, 3, 4)
    read(f"{stage}.def")
    return found


def case_at(path, stage, o):
    """Reads a case's folder into an object; with --cp, only this rank's rows."""
    case = types.SimpleNamespace(path=path, rank=0, cuts=None, cu_seqlens=None)
    for line in open(os.path.join(path, "case.txt")):
        name, x = line.split()
        setattr(case, name, float(x) if "." in x or "e" in x or "n" in x else int(x))
    case.form, options = None, os.path.join(path, "options.txt")
    if os.path.exists(options):               # the stage runs on several ranks
        _, case.form, _, cuts = open(options).read().split()
        case.cuts = [int(x) for x in cuts.split(",")]
    case.backward = path.endswith("backward") or stage == "13"
    case.fields = fields(stage)
    for name, (io, shape, _) in case.fields.items():
        file = os.path.join(path, f"{name}.npy")
        ranks = os.path.exists(os.path.join(path, "cu_seqlens.npy")) and name in GRID
        x = np.load(file) if os.path.exists(file) and not ranks else None
        if x is not None and o.cp > 1 and shape.split()[0] == "T":
            x = x[case.cuts[o.rank]:case.cuts[o.rank + 1]]
        setattr(case, name, x)
    if os.path.exists(os.path.join(path, "cu_seqlens.npy")):
        case.cu_seqlens = np.load(os.path.join(path, "cu_seqlens.npy"))
    case.rank = o.rank
    return case


def as_torch(case, o):
    """Converts arrays to tensors. With bf16, states and parameters are float32."""
    import torch
    kind = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
    acc = torch.float64 if o.storage == "f64" else torch.float32
    types = [kind[o.storage], torch.float64, torch.float32, torch.bfloat16,
             torch.float16] if o.storage != "f64" else [torch.float64] * 5
    types[0] = types[case.q_type]
    kind = {"KCP_ACTV": types[0], "KCP_G": types[case.g_type],
            "KCP_BETA": types[case.beta_type]}
    for name in list(case.fields) + ["cu_seqlens"]:
        x = getattr(case, name)
        if x is not None:
            x = torch.from_numpy(np.ascontiguousarray(x))
            if x.dtype.is_floating_point:
                store = case.fields[name][2] if name in case.fields else ""
                x = x.to(o.device, kind.get(store, acc))
            setattr(case, name, x)


def fla_context(case):
    """Makes the context of FLA's context parallelism, or says what FLA does not take."""
    import torch.distributed as dist
    from fla.ops.cp import build_cp_context
    parts = [b - a for a, b in zip(case.cuts, case.cuts[1:])]
    if min(parts) != max(parts):
        raise NotImplementedError(f"equal parts only, found cuts {case.cuts}")
    for name in ("h0", "dht"):
        if getattr(case, name, None) is not None:
            raise NotImplementedError("no initial or final states")
    case.withheld = ("ht", "dh0")
    return build_cp_context(case.cu_seqlens.to(case.q_raw.device),
                            group=dist.group.WORLD)


def by_fla(fn, case, o):
    """Calls fn with FLA's arguments. Returns outputs, or gradients from autograd."""
    import torch
    theirs = o.cp > 1 and getattr(fn, "__module__", "").startswith("fla.")
    gdn = "gated_delta" in getattr(fn, "__name__", "")
    if case.model != int(gdn) or not hasattr(case, "q_raw"):
        return None
    if gdn and case.gate == 2:                  # FLA's GDN has no bounded gate
        return None
    names = ("q_raw", "k_raw", "v", "g_raw", "beta_raw", "A_log", "dt_bias", "h0")
    x = {n: getattr(case, n) for n in names}
    for n in names[:5]:
        x[n] = x[n][None]
    if gdn:
        x["g_raw"] = x["g_raw"][..., 0]
    if not case.gate:
        x["A_log"] = x["dt_bias"] = None
    if case.backward and x["h0"] is None and not theirs:    # dh0 is an output even without h0
        state = (case.V, case.K) if case.layout else (case.K, case.V)
        acc = torch.float64 if x["q_raw"].dtype == torch.float64 else torch.float32
        case.h0 = x["h0"] = torch.zeros(len(case.cu_seqlens) - 1, case.HV, *state,
                                        dtype=acc, device=x["q_raw"].device)
    x = {n: None if t is None else t.requires_grad_(case.backward)
         for n, t in x.items()}
    more = dict(cu_seqlens=case.cu_seqlens.to(case.q_raw.device))
    if theirs:
        more = dict(cp_context=fla_context(case))
    elif o.cp > 1:
        import kcp_torch
        more = dict(cp_context=kcp_torch.build_cp_context(case.cu_seqlens,
                                                          cuts=case.cuts))
    if case.gate:
        bias = x["dt_bias"]                     # FLA's is flat: [HV K]
        more.update(use_gate_in_kernel=True, A_log=x["A_log"],
                    dt_bias=None if bias is None else bias.reshape(-1))
    if case.gate == 2:
        more.update(lower_bound=case.lower_bound)
    if case.beta_form:
        more.update(use_beta_sigmoid_in_kernel=True,
                    allow_neg_eigval=case.beta_form == 2)
    if case.layout:
        more.update(state_v_first=True)
    out, ht = fn(x["q_raw"], x["k_raw"], x["v"], x["g_raw"], x["beta_raw"],
                 scale=case.scale, initial_state=x["h0"], output_final_state=not theirs,
                 use_qk_l2norm_in_kernel=bool(case.l2norm), **more)
    if not case.backward:
        return {"o": out[0]} if theirs else {"o": out[0], "ht": ht}
    loss = (out * case.do[None]).sum()
    if case.dht is not None:
        loss = loss + (ht * case.dht).sum()
    loss.backward()
    grads = {}
    for n in names:
        given = getattr(case, n)
        if x[n] is not None:
            grad = torch.zeros_like(x[n]) if x[n].grad is None else x[n].grad
            grads["d" + n] = grad.reshape(given.shape)
        elif given is not None:                     # not read: its gradient is 0
            grads["d" + n] = torch.zeros_like(given)
    return grads


def numbers(name, x):
    """Converts an output to a NumPy array of real numbers."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = x.double().numpy() if not x.is_complex() else x.numpy()
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "fiu":
        kind = getattr(x, "dtype", type(x).__name__)
        raise ValueError(f"{name}: found {kind}, expected an array of real numbers")
    return x


def changed(case, before):
    """Returns the name of an input that differs from its copy, or None."""
    for name, copy in before.items():
        x = getattr(case, name)
        x = x.detach() if hasattr(x, "detach") else x
        same = x.shape == copy.shape and \
            ((x == copy) | ((x != x) & (copy != copy))).all()
        if not bool(same):
            return name
    return None


def compute(fn, path, o):
    """Runs fn on one case and writes the outputs. Returns "done" or "n/a" (and why)."""
    case = case_at(path, o.stage, o)
    if o.shapes and f"{case.K}x{case.V}" not in o.shapes:
        return "n/a"
    if o.cp > 1 and case.R != o.cp:
        return "n/a"
    if not o.numpy:
        as_torch(case, o)
    inputs = {n: getattr(case, n) for n, f in case.fields.items() if "IN" in f[0]}
    before = {n: x.clone() if hasattr(x, "clone") else x.copy()
              for n, x in inputs.items() if x is not None}
    try:
        out = by_fla(fn, case, o) if o.style == "fla" else fn(case)
    except NotImplementedError as e:
        return f"n/a {e}"
    except RuntimeError as e:                   # FLA names the versions that it refuses
        if not str(e).startswith("Triton >="):
            raise
        return f"n/a {e}"
    wrong = changed(types.SimpleNamespace(**inputs), before)
    if wrong:
        raise ValueError(f"{wrong}: the function changed its input")
    if out is None:
        return "n/a"
    for n in out:                               # inputs are the judge's
        if n not in case.fields or "OUT" not in case.fields[n][0]:
            raise ValueError(f"{n} is not an output of this stage")
    out = {n: x if x is None else numbers(n, x) for n, x in out.items()}
    for n, x in out.items():                    # a rank's rows, if it has a part of them
        letters = case.fields[n][1].split()
        if o.cp > 1 and x is not None and letters[0] == "T":
            want = (case.cuts[o.rank + 1] - case.cuts[o.rank],
                    *(getattr(case, letter, None) for letter in letters[1:]))
            if x.shape != want and None not in want:
                raise ValueError(f"{n}: found shape {x.shape}, expected {want}")
    open(os.path.join(path, f"answered.{o.rank}"), "w").close()
    if o.cp > 1:
        import torch.distributed as dist
        parts = [None] * o.cp
        dist.all_gather_object(parts, out)
        for n in out:
            cut = case.fields[n][1].split()[0] == "T"
            every = [p[n] for p in parts]
            out[n] = None if every[0] is None else \
                np.concatenate(every) if cut else sum(every)
    for n in getattr(case, "withheld", ()):
        open(os.path.join(path, n + ".na"), "w").close()
    for n, x in out.items():
        if o.rank == 0 and x is not None:
            if x.dtype not in (np.float32, np.float64):
                x = x.astype(np.float64)
            np.save(os.path.join(path, f"{n}.npy"), x)
    return "done"


def keep_error(path, e, who):
    """Writes the exception (one line) and its position in fn's files to error.txt. If
    several ranks fail, the first one writes."""
    frames = [f for f in traceback.extract_tb(e.__traceback__)
              if os.path.abspath(f.filename) != os.path.abspath(__file__)]
    lines = traceback.format_exception_only(type(e), e)
    try:
        with open(os.path.join(path, "error.txt"), "x") as f:
            f.write(who + " ".join(" ".join(lines).split())[:400] + "\n")
            f.writelines(traceback.format_list(frames[-8:]))
    except FileExistsError:
        pass


def own_gpu(o):
    """Selects a GPU per rank. Ranks that share a GPU get different NCCL host ids."""
    import torch
    gpus = torch.cuda.device_count()
    if o.cp > gpus:
        os.environ.update(NCCL_HOSTID=f"rank{o.rank}", NCCL_SOCKET_IFNAME="lo")
    torch.cuda.set_device(o.rank % gpus)


def worker(o):
    """Runs fn in this process on the cases of o.paths, in order."""
    if not o.numpy:
        import torch
        torch.set_num_threads(1)
    if o.cp > 1:
        import torch.distributed as dist
        if o.device == "cuda":
            own_gpu(o)
        dist.init_process_group("nccl" if o.device == "cuda" else "gloo",
                                init_method=f"file://{o.meet}", rank=o.rank,
                                world_size=o.cp)
    module, name = o.function.split(":")
    fn = getattr(importlib.import_module(module), name)
    for path in o.paths:
        if o.rank == 0:
            open(os.path.join(path, "begun"), "w").close()
        try:
            word = compute(fn, path, o)
        except Exception as e:
            word = "error"
            keep_error(path, e, f"rank {o.rank}: " if o.cp > 1 else "")
            if o.cp > 1:                            # the other ranks wait for this one
                return 1
            if o.device == "cuda":                  # raises if the context is lost
                sys.modules["torch"].cuda.synchronize()
        if o.rank == 0:
            if word.startswith("n/a"):
                with open(os.path.join(path, "na.txt"), "w") as f:
                    f.write(word[4:])
            open(os.path.join(path, "ended"), "w").close()
    if o.cp > 1:                    # waits until rank 0 has written all outputs
        dist.barrier()
        dist.destroy_process_group()
    return 0


def run_workers(o, paths, here):
    """Starts processes until each case has finished or has crashed or hung."""
    lost, env = {}, dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join([os.getcwd(), env.get("PYTHONPATH", "")])
    while paths:
        meet = tempfile.mktemp(dir=here)
        text = dict(vars(o), paths=paths, meet=meet)
        ranks = []
        for r in range(o.cp):
            log = open(os.path.join(here, f"log.{r}"), "w")
            words = [sys.executable, os.path.abspath(__file__), "--worker",
                     json.dumps(dict(text, rank=r))]
            ranks.append(subprocess.Popen(words, stdout=log, stderr=log, env=env,
                                          stdin=subprocess.DEVNULL))
        last, at, why = time.monotonic(), -1, None
        while why is None and any(p.poll() is None for p in ranks):
            time.sleep(0.02)
            done = sum(os.path.exists(os.path.join(p, "ended")) for p in paths)
            if done != at:
                last, at = time.monotonic(), done
            started = at > 0 or os.path.exists(os.path.join(paths[0], "begun"))
            if time.monotonic() - last > o.limit + (0 if started else 60):
                why = f"no answer in {o.limit:g} s"
            if any(p.poll() for p in ranks):
                why = "its process ended"
        for p in ranks:
            if p.poll() is None and why:
                p.kill()
        codes = [p.wait() for p in ranks]
        left = [p for p in paths if not os.path.exists(os.path.join(p, "ended"))]
        if not left:
            return lost
        tail = ""
        for r in range(o.cp):
            lines = open(os.path.join(here, f"log.{r}")).read().strip().splitlines()
            tail = tail or (lines[-1] if lines else "")
        silent = [r for r in range(o.cp)
                  if not os.path.exists(os.path.join(left[0], f"answered.{r}"))]
        who = f"rank {', '.join(map(str, silent))}: " if o.cp > 1 and silent else ""
        words = f"{who}{why or 'its process ended'}, status {codes}: {tail}"
        if not os.path.exists(os.path.join(left[0], "begun")):
            raise SystemExit(fail(f"{o.function}: not a function that can be imported: {words}"))
        if not os.path.exists(os.path.join(left[0], "error.txt")):
            lost[left[0]] = words
        paths = left[1:]
    return lost


def fail(line):
    print(f"kcp_check.py: {line}", file=sys.stderr)
    return 2


def report(o, rows, status):
    """Writes the verdicts to the file of --json."""
    if not o.json:
        return
    try:
        with open(o.json, "w") as f:
            json.dump({"function": o.function, "stage": o.stage, "seed": o.seed,
                       "storage": o.storage, "status": status, "cases": rows}, f,
                      indent=1)
    except OSError as e:
        fail(f"{o.json}: cannot write: {e.strerror}")


def row_of(path, lost, lines):
    """Returns the verdict on a case's forward or backward, from kcp-check's lines."""
    case, pass_ = path.split(os.sep)[-2:]
    with open(os.path.join(path, "..", "words.txt")) as f:
        row = {"case": f"{case} {pass_}", "verdict": "fail", "why": "",
               "words": f.read().strip(), "worst": ""}
    mine = [x for x in lines if re.search(f"{case}/{pass_}[: /]", x)]
    failed = [x.split(f"{case}/{pass_}", 1)[1].lstrip(": /") for x in mine
              if "FAIL" in x]
    error, na = (os.path.join(path, n) for n in ("error.txt", "na.txt"))
    if os.path.exists(na):
        row["verdict"] = "n/a"
        with open(na) as f:
            row["why"] = " ".join(f.read().split())
    elif os.path.exists(error):
        with open(error) as f:
            row["why"] = f.read().rstrip()
    elif path in lost or failed:
        row["why"] = lost.get(path) or failed[0]
    elif mine:
        row["verdict"] = "pass"
        row["worst"] = mine[0].split("worst", 1)[-1].strip()
    else:
        row["why"] = "no output"
    return row


MOST_SHOWN = 10


def show(rows):
    """Prints the first reasons for failures, with one case each."""
    reasons = {}
    for row in rows:
        if row["verdict"] == "fail":
            reasons.setdefault(row["why"], []).append(row)
    last = None
    for why, same in list(reasons.items())[:MOST_SHOWN]:
        first, *more = why.splitlines()
        also = f" (and {len(same) - 1} more)" if len(same) > 1 else ""
        print(f"  FAIL  {same[0]['case']}{also}: {first}")
        for line in more:
            print(f"      {line}")
        if same[0]["words"] != last:
            print(f"        --case '{same[0]['words']}'")
        last = same[0]["words"]
    if len(reasons) > MOST_SHOWN:
        print(f"  ... {len(reasons) - MOST_SHOWN} more failure reasons: --json FILE has all")


def judge(o, here):
    words = ["--stage", o.stage, "--seed", str(o.seed), "--storage", o.storage]
    if o.case is not None:
        words += ["--case", o.case]
    elif o.small:
        words += ["--small"]
    if o.shapes and o.case is None:
        words += ["--shapes", ",".join(o.shapes)]
    if o.cp > 1:
        words += ["--ranks", str(o.cp)]
    try:
        made = subprocess.run([o.check, "--emit", os.path.join(here, "e"), *words],
                              capture_output=True, text=True)
    except OSError as e:
        return fail(f"--check: cannot run {o.check}: {e.strerror}")
    if made.returncode and made.stderr.strip():
        print(made.stderr.strip(), file=sys.stderr)
        return 2
    if made.returncode or not os.path.isdir(os.path.join(here, "e")):
        return fail(f"--check: {o.check} writes no cases; it must be kcp-check")
    paths = []
    for case in sorted(os.listdir(os.path.join(here, "e"))):
        for pass_ in ("forward", "backward"):
            path = os.path.join(here, "e", case, pass_)
            if os.path.isdir(path):
                paths.append(path)
    lost = run_workers(o, paths, here)
    verdict = subprocess.run([o.check, "--foreign", os.path.join(here, "e")],
                             capture_output=True, text=True)
    if verdict.returncode not in (0, 1) and "no outputs" not in verdict.stderr:
        print(verdict.stderr.strip(), file=sys.stderr)
        return 2
    rows = [row_of(path, lost, verdict.stdout.splitlines()) for path in paths]
    names = dict(enumerate(getattr(o, "names", [])))
    for i, row in enumerate(rows):
        row["case"] = names.get(i, row["case"])
    show(rows)
    count = [sum(r["verdict"] == v for r in rows) for v in ("pass", "fail", "n/a")]
    status = int(count[1] > 0 or not count[0])
    report(o, rows, status)
    print(f"kcp_check.py: {getattr(o, 'name', o.function)}, stage {o.stage},"
          f" seed {o.seed}: {count[0]} passed, {count[1]} failed, {count[2]} n/a"
          + ("" if count[0] + count[1] else "; nothing was judged")
          + (" (--small: no alike keys, no wide heads)" if o.small else ""))
    return status


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(fail(f"{message.removeprefix('argument ')}; see --help"))


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)      # "| head" ends it silently
    if sys.argv[1:2] == ["--worker"]:
        return worker(types.SimpleNamespace(**json.loads(sys.argv[2])))
    p = Parser(prog="kcp_check.py", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("function", nargs="?", help="module:function, importable in this folder")
    p.add_argument("--stage", help="a stage, e.g. 08")
    p.add_argument("--shapes", default="", help="KxV,KxV: judge these, others are n/a")
    p.add_argument("--case", help="one case alone, in kcp-check's words")
    p.add_argument("--regimes", choices=("kda", "gdn"),
                   help="a case per regime in which public kernels were wrong")
    p.add_argument("--small", action="store_true",
                   help="only small random cases, which miss many mistakes")
    p.add_argument("--cp", type=int, default=1, help="processes, a shard each")
    p.add_argument("--as", dest="style", choices=("case", "fla"), default="case")
    p.add_argument("--numpy", action="store_true", help="fn gets NumPy arrays, not tensors")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--storage", choices=("f64", "f32", "bf16"), default="f64")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--limit", type=float, default=30, help="seconds a case may take")
    p.add_argument("--json", help="a file for the verdicts")
    p.add_argument("--solution", help="judge a solution of FlashInfer-Trace")
    p.add_argument("--emit-flashinfer", metavar="DIR",
                   help="write stages 08 and 13 as definitions and workloads")
    p.add_argument("--check", default=os.path.join(ROOT, "build", "kcp-check"),
                   help="where kcp-check is")
    o = p.parse_args()
    is_trace = bool(o.solution or o.emit_flashinfer)
    if bool(o.function) == is_trace or (o.solution and o.emit_flashinfer):
        return fail("module:function, --solution or --emit-flashinfer: give exactly one")
    if not (o.stage or is_trace):
        return fail("--stage is required, e.g. 08")
    if is_trace and not os.path.isfile(o.check):
        return fail(f"--check: no file {o.check}: build it with make {o.check}")
    if is_trace:
        import kcp_flashinfer
        return kcp_flashinfer.main(o)
    if o.regimes:
        o.case, o.names = regimes.words(o.regimes), list(regimes.REGIMES)
    o.shapes = [x for x in o.shapes.split(",") if x]
    if not all(re.fullmatch(r"\d+x\d+", x) for x in o.shapes):
        return fail(f"--shapes: found {','.join(o.shapes)}, expected 128x128,64x64")
    if not re.fullmatch(r"[\w.]+:\w+", o.function):
        return fail(f"{o.function!r}: expected module:function")
    if not re.fullmatch(r"\d\d", o.stage) or \
            not os.path.exists(os.path.join(ROOT, "ref", "stages", o.stage + ".def")):
        return fail(f"--stage: found {o.stage}, expected a stage with arrays, e.g. 08")
    if not 0 < o.limit <= 1e6:
        return fail(f"--limit: found {o.limit}, expected seconds, up to a million")
    where = os.path.dirname(o.json or "") or "."
    if o.json is not None and (not o.json or os.path.isdir(o.json) or
                               not os.access(where, os.W_OK)):
        return fail(f"--json: cannot write {o.json!r}")
    if not 1 <= o.cp <= 8:
        return fail(f"--cp: found {o.cp}, expected 1 to 8")
    if o.cp > 1 and o.stage not in ("08", "13", "14", "15", "16"):
        return fail(f"--cp: stage {o.stage} has no ranks; 08 and 13 to 16 have")
    if o.device == "cuda":
        import torch
        if not torch.cuda.is_available():
            return fail("--device cuda: PyTorch finds no GPU")
    if not os.path.isfile(o.check):
        return fail(f"--check: no file {o.check}: build it with make {o.check}")
    with tempfile.TemporaryDirectory() as here:
        return judge(o, here)


if __name__ == "__main__":
    sys.exit(main())
