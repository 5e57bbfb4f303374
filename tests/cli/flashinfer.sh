#!/bin/sh
# flashinfer.sh -- checks FlashInfer-Trace files: a correct solution must pass, a wrong
# solution must fail, and a solution that cannot run must give one line. If flashinfer-bench
# is installed, its reader must accept the files.
# Book: users.md, "Prove your kernel in an hour".
# Usage: flashinfer.sh BUILD.
. "$(dirname "$0")/run_common.sh"
stop() { echo "flashinfer.sh: $*: $(tail -3 "$W/out")"; exit 1; }
export PYTHONPATH="$top/tests" OMP_NUM_THREADS=1
for python in "${PYTHON:-python3}" /usr/bin/python3 none; do
    "$python" -c 'import torch' 2>/dev/null && break
done
[ "$python" != none ] || { echo "flashinfer.sh: PyTorch not found: nothing was run"; exit 0; }
expect() {                         # STATUS PATTERN option...
    want=$1 words=$2; shift 2
    "$python" "$top/tests/kcp_check.py" --check "$B/kcp-check" "$@" >out 2>&1
    status=$?
    [ $status = "$want" ] || stop "$*: status $status, not $want"
    grep -q -e "$words" out || stop "$*: lacks '$words'"
    [ $status != 2 ] || [ "$(grep -c . out)" = 1 ] || stop "$*: more than one line"
}
# Writes solutions in destination-passing style. Each solution is the reference, except that
# `wrong` multiplies k S by 0.9.
"$python" - <<'PY' || exit 1
import json, kcp_flashinfer as k
for name, language, change in (("right", "python", ""), ("wrong", "triton", "0.9 * "),
                               ("cuda", "cuda", "")):
    text = k.reference("gdn", "backward").replace("v[t] - ", "v[t] - " + change)
    text += "\n\ndef main(*x):\n    for to, y in zip(x[-8:], run(*x[:-8])):\n" \
            "        to.copy_(y)\n"
    json.dump({"name": name, "definition": "gdn_backward_d128", "author": "kcp",
               "spec": {"language": language, "target_hardware": ["cpu"],
                        "entry_point": "main.py::main"},
               "sources": [{"path": "main.py", "content": text}]}, open(name, "w"))
PY
few="live gdn gate=softplus beta=sigmoid layout=vk H=1 HV=2 K=128 V=128 l2norm h0 dht"
expect 0 'right of gdn_backward_d128.* 1 passed' --solution right --case "$few lengths=40,7"
expect 1 'rank 0 head' --solution wrong --case "$few lengths=40,7"
expect 2 'language cuda' --solution cuda
expect 2 'not a solution' --solution out
expect 2 'give exactly one' --solution right mine:fn --stage 08
"$python" -c 'import safetensors' 2>/dev/null || {
    expect 2 'safetensors' --emit-flashinfer trace
    echo "flashinfer.sh: a solution was judged; safetensors not found, no files written"; exit 0; }
expect 0 'reference of gdn_backward_d128.* 0 failed' --emit-flashinfer trace
expect 2 'has definitions' --emit-flashinfer trace
"$python" - 2>"$W/out" <<'PY' || stop "flashinfer-bench"
import importlib.util, pathlib, sys
if not importlib.util.find_spec("flashinfer_bench"):
    print("flashinfer.sh: flashinfer-bench not found: its reader was not run")
    sys.exit()
from flashinfer_bench.data import TraceSet
from flashinfer_bench.bench.utils import gen_inputs, load_safetensors
t = TraceSet.from_path("trace")
for name, d in t.definitions.items():
    for w in (x.workload for x in t.workloads[name]):
        gen_inputs(d, w, "cpu", load_safetensors(d, w, pathlib.Path("trace")))
assert sum(map(len, t.workloads.values())) == 52
PY
echo "flashinfer.sh: solutions are judged, references pass in 52 workloads"
