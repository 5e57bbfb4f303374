"""flashkda.py -- times the forward of FlashKDA.

Book: chapter 18.  Checked by: its controls, measured in the same run.
Next: ../gpu_bench.sh.

    python3 bench/peers/flashkda.py FILE.tsv... [T=8192 H=96 gate=live]

Files as for fla_ops.py. FlashKDA takes KDA with K = V = 128 and HV = H; its states are
[V,K]. If it is not installed, one line says so and the exit status is 0.
"""
import os
import sys

import common

try:
    import torch
    if not torch.cuda.is_available():
        raise ImportError("no GPU")
    import flash_kda
except ImportError as e:
    print(f"flashkda.py: {common.IDLE} ({e}): FlashKDA was not timed")
    sys.exit(0)

peer = ("FlashKDA " + os.environ.get("FLASHKDA_COMMIT", "")).strip()


def one_gpu(path, words):
    case = common.head(path, words)
    if case["model"] != "kda" or (case["K"], case["V"]) != (128, 128) \
            or case["H"] != case["HV"]:
        return print(f"flashkda.py: {path}: not a shape of its own: not timed")
    x = common.inputs(torch, case, case["T"], 1)
    if "copy" not in case:
        case.update(common.controls(torch))
    o, ht = torch.empty_like(x["v"]), torch.empty_like(x["h0"])
    dt_bias = x["dt_bias"].view(case["HV"], case["K"])

    def forward():
        flash_kda.fwd(x["q"], x["k"], x["v"], x["g"], x["beta"], x["scale"], o,
                      x["A_log"], dt_bias, -5.0, initial_state=x["h0"],
                      final_state=ht, cu_seqlens=x.get("cu"))

    with torch.no_grad():
        us = common.time_calls(torch, [forward])[0]
    r = common.row("08_forward", "flashkda", 0, us, peer)
    common.say(r)
    common.append(path, case, [r])


files = [w for w in sys.argv[1:] if "=" not in w]
if not files:
    sys.exit("flashkda.py: found no file, expected FILE.tsv...")
for path in files:
    one_gpu(path, [w for w in sys.argv[1:] if "=" in w])
