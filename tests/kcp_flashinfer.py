"""kcp_flashinfer.py -- writes stages 08 and 13 in FlashInfer-Trace's format; judges solutions.

Book: users.md, "Prove your kernel in an hour".

  python tests/kcp_check.py --emit-flashinfer DIR
  python tests/kcp_check.py --solution solution.json [--device cuda] [--case WORDS]

A definition holds a PyTorch reference, the token recurrence in double.
--emit-flashinfer judges this reference before writing it. A workload is a kind of
input, e.g. nearly equal keys. Inputs that a random generator cannot give are in a
.safetensors file. A solution is judged on kcp-check's cases. Languages: python and triton.
"""
import importlib.util
import inspect
import json
import os
import re
import sys
import tempfile
import types

import kcp_check
import regimes

TENSORS = {     # name: field of the stage, shape, dtype, what it is
    "q": ("q_raw", "T H D", "bfloat16", "queries, normalised by the kernel"),
    "k": ("k_raw", "T H D", "bfloat16", "keys, normalised by the kernel"),
    "v": ("v", "T HV D", "bfloat16", "values"),
    "g": ("g_raw", "T HV D", "bfloat16", "gate before its activation"),
    "beta": ("beta_raw", "T HV", "bfloat16", "logits of beta"),
    "A_log": ("A_log", "HV", "float32", "logarithm of the gate's factor A"),
    "dt_bias": ("dt_bias", "HV D", "float32", "bias of the gate"),
    "h0": ("h0", "N HV D D", "float32", "initial states, [V,K]"),
    "cu_seqlens": ("cu_seqlens", "N1", "int64", "where sequences begin, and T"),
    "do": ("do", "T HV D", "bfloat16", "gradient of o"),
    "dht": ("dht", "N HV D D", "float32", "gradient of ht"),
    "o": ("o", "T HV D", "bfloat16", "output"),
    "ht": ("ht", "N HV D D", "float32", "final states, [V,K]"),
}
SCALARS = {"scale": "factor of the queries", "lower_bound": "of the gate (KDA)",
           "beta_max": "1 or 2: beta = beta_max sigmoid(logit)"}
GRADIENTS = ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "h0")
AXES = {"T": "tokens of all sequences", "N": "sequences", "N1": "N + 1",
        "H": "heads of queries and keys", "HV": "heads of values, a multiple of H"}
RANDOM = ("v", "h0", "do", "dht")               # the format may draw these at random
NAMES = [r for r in regimes.REGIMES if r != "beta 0 and 1"]      # no logit gives these
STAGES = {"forward": "08", "backward": "13"}


# ---- the references: their source is the text in the definition

def forward(q, k, v, g, beta, A_log, dt_bias, h0, cu_seqlens, scale, lower_bound,
            beta_max):
    """Computes the token recurrence in double. activate() computes the gate."""
    q, k, v, beta, h0 = (x.double() for x in (q, k, v, beta, h0))
    q, k = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
    q, k = (x.repeat_interleave(v.shape[1] // q.shape[1], 1) for x in (q, k))
    g = activate(g.double(), A_log.double(), dt_bias.double(), lower_bound)
    beta = beta_max * torch.sigmoid(beta)
    o, ht = [], []
    for n in range(len(cu_seqlens) - 1):
        S = h0[n].transpose(1, 2)                                  # [HV,K,V]
        for t in range(int(cu_seqlens[n]), int(cu_seqlens[n + 1])):
            S = g[t].exp()[..., None] * S
            error = v[t] - torch.einsum("hk,hkv->hv", k[t], S)
            S = S + k[t][..., None] * (beta[t][:, None] * error)[:, None]
            o.append(scale * torch.einsum("hk,hkv->hv", q[t], S))
        ht.append(S.transpose(1, 2))
    return torch.stack(o), torch.stack(ht)


ACTIVATE = {"kda": '''def activate(g, A_log, dt_bias, lower_bound):
    return lower_bound * torch.sigmoid(A_log.exp()[:, None] * (g + dt_bias))
''', "gdn": '''def activate(g, A_log, dt_bias, lower_bound):
    y = g + dt_bias
    return (-A_log.exp() * torch.logaddexp(y, torch.zeros_like(y)))[..., None]
'''}
RUN = {"forward": '''def run(q, k, v, g, beta, A_log, dt_bias, h0, cu_seqlens, scale,
        lower_bound, beta_max):
    o, ht = forward(q, k, v, g, beta, A_log, dt_bias, h0, cu_seqlens, scale,
                    lower_bound, beta_max)
    return o.to(v.dtype), ht.float()
''', "backward": '''def run(q, k, v, g, beta, A_log, dt_bias, h0, cu_seqlens, scale,
        lower_bound, beta_max, do, dht):
    x = [t.detach().requires_grad_() for t in (q, k, v, g, beta, A_log, dt_bias, h0)]
    with torch.enable_grad():
        o, ht = forward(*x, cu_seqlens, scale, lower_bound, beta_max)
        loss = (o * do.double()).sum() + (ht * dht.double()).sum()
    return torch.autograd.grad(loss, x)
'''}


def reference(model, way):
    return "\n\n".join(["import torch\n", ACTIVATE[model], inspect.getsource(forward),
                        RUN[way]])


# ---- definitions and workloads

def shape_of(name, model):
    """Returns a shape. For GDN, gates and their bias have one number per head."""
    return TENSORS[name][1].removesuffix(" D" if model == "gdn" and
                                         name in ("g", "dt_bias") else "").split()


def spec(name, model, title=""):
    _, _, dtype, what = TENSORS[name]
    return {"shape": shape_of(name, model), "dtype": dtype,
            "description": title + what}


def names_of(way):
    """Returns the names of a definition's inputs and of its outputs, in order."""
    inputs = list(GRADIENTS) + ["cu_seqlens", *SCALARS]
    if way == "forward":
        return inputs, ["o", "ht"]
    return inputs + ["do", "dht"], ["d" + n for n in GRADIENTS]


def definition(model, way):
    inputs, outputs = names_of(way)
    axes = {n: {"type": "var", "description": d} for n, d in AXES.items()}
    axes["D"] = {"type": "const", "value": 128, "description": "K and V of a head"}
    out = {n: spec(n, model) if way == "forward" else
           spec(n[1:], model, "gradient: ") for n in outputs}
    return {"name": f"{model}_{way}_d128", "op_type": model,
            "description": f"{model.upper()}, {way}, packed sequences with initial and "
                           "final states; computes norm, gate and beta too",
            "tags": ["status:verified"], "axes": axes,
            "inputs": {n: {"shape": None, "dtype": "float32", "description": SCALARS[n]}
                       if n in SCALARS else spec(n, model) for n in inputs},
            "outputs": out, "constraints": ["HV % H == 0", "N1 == N + 1"],
            "reference": reference(model, way)}


def values(case, way):
    """Returns a case's inputs by their names in the definition."""
    if case.q_type or case.g_type or case.beta_type:
        raise NotImplementedError("the definition has g and beta in bfloat16, as q")
    x = {n: getattr(case, TENSORS[n][0]) for n in names_of(way)[0] if n in TENSORS}
    if case.model:
        x["g"], x["dt_bias"] = x["g"][..., 0], x["dt_bias"][..., 0]
    x.update(scale=case.scale, lower_bound=case.lower_bound,
             beta_max=float(case.beta_form))
    return {n: x[n] for n in names_of(way)[0]}


def workload(root, folder, o, name, regime):
    """Saves a case's tensors. Returns the line of workloads/*.jsonl that names them."""
    from safetensors.torch import save_file
    model, way, _ = name.split("_")
    case = kcp_check.case_at(folder, o.stage, o)
    kcp_check.as_torch(case, o)
    x = values(case, way)
    uuid = f"{name}-{re.sub('[^a-z0-9.]+', '-', regime.lower())}"
    blob = os.path.join("blob", "workloads", model, name, uuid + ".safetensors")
    is_large = "1e4" in regime
    kept = {n: t.contiguous() for n, t in x.items()
            if n in TENSORS and (n not in RANDOM or is_large)}
    os.makedirs(os.path.dirname(os.path.join(root, blob)), exist_ok=True)
    save_file(kept, os.path.join(root, blob))
    inputs = {n: {"type": "random"} for n in x}
    inputs.update({n: {"type": "scalar", "value": x[n]} for n in SCALARS})
    inputs.update({n: {"type": "safetensors", "path": blob, "tensor_key": n}
                   for n in kept})
    axes = {"T": case.T, "N": case.N, "N1": case.N + 1, "H": case.H, "HV": case.HV}
    return {"definition": name, "solution": None, "evaluation": None,
            "workload": {"uuid": uuid, "axes": axes, "inputs": inputs}}


def emit(root, o):
    """Writes definitions and workloads after the judge has passed each reference."""
    for model in regimes.LAYER:
        for way, stage in STAGES.items():
            d = definition(model, way)
            o.stage, o.case, o.names = stage, regimes.words(model, NAMES), NAMES
            text = {"definition": d["name"], "name": "reference", "author": "kcp",
                    "spec": {"language": "python", "entry_point": "main.py::run",
                             "destination_passing_style": False},
                    "sources": [{"path": "main.py", "content": d["reference"]}]}
            with tempfile.TemporaryDirectory() as here:
                status = judge_solution(text, o, here)
                if status:
                    return status
                cases = os.path.join(here, "e")
                folders = [os.path.join(cases, c, "forward") for c in
                           sorted(os.listdir(cases)) if c.startswith("case_")]
                lines = [workload(root, folder, o, d["name"], regime)
                         for folder, regime in zip(folders, NAMES)]
            for kind, ext, rows in (("definitions", "json", [d]),
                                    ("workloads", "jsonl", lines)):
                path = os.path.join(root, kind, model)
                os.makedirs(path, exist_ok=True)
                with open(os.path.join(path, f"{d['name']}.{ext}"), "w") as f:
                    for row in rows:
                        json.dump(row, f, indent=2 if ext == "json" else None)
                        f.write("\n")
    return 0


# ---- solutions

def entry(text, folder):
    """Returns the function of a solution, from its sources in `folder`."""
    file, function = text["spec"]["entry_point"].split("::")
    sys.path.insert(0, folder)
    made = importlib.util.spec_from_file_location("kcp_solution",
                                                  os.path.join(folder, file))
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return getattr(module, function)


def run(case):
    """Runs the solution named by KCP_SOLUTION on a case. kcp_check.py calls this."""
    import torch
    folder = os.environ["KCP_SOLUTION"]
    with open(os.path.join(folder, "solution.json")) as f:
        text = json.load(f)
    model, way, _ = text["definition"].split("_")
    given, names = values(case, way), names_of(way)[1]
    call = run.entry = getattr(run, "entry", None) or entry(text, folder)
    if text["spec"].get("destination_passing_style", True):
        sizes = {"T": case.T, "N": case.N, "H": case.H, "HV": case.HV, "D": 128}
        out = []
        for n in names:
            base = n if way == "forward" else n[1:]
            out.append(torch.full([sizes[a] for a in shape_of(base, model)], torch.nan,
                                  dtype=getattr(torch, TENSORS[base][2]),
                                  device=given["q"].device))
        call(*given.values(), *out)
    else:
        out = call(*given.values())
        out = [out[n] for n in names] if isinstance(out, dict) else list(out)
    fields = [TENSORS[n][0] if way == "forward" else "d" + TENSORS[n[1:]][0]
              for n in names]
    out = dict(zip(fields, out))
    for n in ("dg_raw", "ddt_bias"):
        if case.model and n in out:
            out[n] = out[n][..., None]
    return out


def judge_solution(text, o, here):
    folder = os.path.join(here, "solution")
    for source in text["sources"]:
        path = os.path.normpath(os.path.join(folder, source["path"]))
        if not path.startswith(folder + os.sep):
            return kcp_check.fail(f"{source['path']}: outside the solution's folder")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(source["content"])
    with open(os.path.join(folder, "solution.json"), "w") as f:
        json.dump(text, f)
    os.environ["KCP_SOLUTION"] = folder
    o.name = f"{text['name']} of {text['definition']}"
    return kcp_check.judge(o, here)


def solution(path, o):
    try:
        with open(path) as f:
            text = json.load(f)
        model, way, size = text["definition"].split("_")
        known = model in regimes.LAYER and way in STAGES and size == "d128"
        language, sources = text["spec"]["language"], text["sources"]
        text["spec"]["entry_point"].split("::")[1], sources[0]["content"]
    except (OSError, ValueError, KeyError, IndexError, TypeError) as e:
        return kcp_check.fail(f"--solution {path}: not a solution: {e!r}")
    if not known:
        return kcp_check.fail(f"--solution {path}: definition {text['definition']},"
                             " expected one that --emit-flashinfer writes")
    if language not in ("python", "triton"):
        return kcp_check.fail(f"--solution {path}: language {language},"
                             " expected python or triton; build others as a .so")
    o.stage = STAGES[way]
    if o.case is None:
        o.case, o.names = regimes.words(model, NAMES), NAMES
    with tempfile.TemporaryDirectory() as here:
        return judge_solution(text, o, here)


def main(o):
    o = types.SimpleNamespace(**{**vars(o), "function": "kcp_flashinfer:run",
                                 "storage": "bf16", "shapes": [], "cp": 1, "rank": 0,
                                 "small": False, "style": "case", "numpy": False})
    if o.solution:
        return solution(o.solution, o)
    if os.path.exists(os.path.join(o.emit_flashinfer, "definitions")):
        return kcp_check.fail(f"--emit-flashinfer {o.emit_flashinfer}: has definitions:"
                             " choose another directory")
    if not importlib.util.find_spec("safetensors"):
        return kcp_check.fail("--emit-flashinfer: install safetensors for this Python")
    return emit(o.emit_flashinfer, o)
