#!/bin/sh
# torch.sh -- kcp_torch from outside: installed by pip, held to the token recurrence in
# one process and three, its example trained over several, its harness for kernels.
#
# Book: chapters 08, 13, 14.  Checked by: itself, on a planted mistake.
# Usage: torch.sh BUILD.  Next: torch_check.py.
B=${1:-build}
here=$(cd "$(dirname "$0")/../.." && pwd)
B=$(cd "$B" && pwd) || exit 2
W=$(mktemp -d) || exit 2
forks=
trap '[ -z "$forks" ] || kill $forks 2>/dev/null; rm -rf "$W"' EXIT
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT KCP_LIB KCP_PLANT PYTHONPATH
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
# Ranks of this machine meet on its own interface, whatever its name resolves to.
export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME:-lo}"
. "$here/tests/cli/free_port.sh"
stop() { echo "torch.sh: $*"; exit 1; }
# What a log says of a failure: mistakes and signals by their names, and its last words.
heard() {
    grep -a 'FAIL\|Error\|terminate called\|what():\|Signal [0-9]' "$1" | head -12
    echo "---- its last words:"
    tail -n 12 "$1"
}

for python in "${PYTHON:-python3}" /usr/bin/python3 none; do
    command -v "$python" >/dev/null || continue
    "$python" -c 'import torch, torch.distributed as d
assert d.is_available() and d.is_gloo_available()' 2>/dev/null && break
done
command -v "$python" >/dev/null || {
    echo "torch.sh: PyTorch with gloo not found: kcp_torch is left out"; exit 0; }

# ---- pip installs it: into an environment of its own, with a pip that is there or one
# of its own, or, where Python is an environment's already or has no ensurepip, a folder
pip=--without-pip
"$python" -m pip --version >/dev/null 2>&1 || pip=
if "$python" -c 'import sys; sys.exit(sys.prefix != sys.base_prefix)' &&
    "$python" -m venv $pip --system-site-packages "$W/env" >/dev/null 2>&1; then
    python="$W/env/bin/python"
    set -- --no-deps
else
    export PYTHONPATH="$W/site"
    set -- --no-deps --target "$W/site"
fi
KCP_LIB="$B/libkcp.so" "$python" -m pip install -q "$@" \
    "$here/book/examples/torch" >"$W/log" 2>&1 ||
    stop "pip install: $(heard "$W/log")"
at=$(cd "$W" && "$python" -c 'import kcp_torch.library as l; print(l.lib._name)' \
    2>"$W/log") || stop "kcp_torch is not importable: $(heard "$W/log")"
case $at in "$W"/*) ;; *) stop "found $at, expected the installed libkcp.so" ;; esac

# What follows is forked from one process that has imported PyTorch (torch_forks.py), with
# FULL=1 started anew each time.
# alone STDOUT STDERR [NAME=value...] PROGRAM WORD...; spread RANKS STDOUT STDERR PROGRAM...
mkfifo "$W/ask" "$W/told" || exit 2
"$python" "$here/tests/cli/torch_forks.py" <"$W/ask" >"$W/told" &
forks=$!
exec 3>"$W/ask" 4<"$W/told"
forked() {
    printf '%s\n' $# "$@" >&3
    read -r status <&4 || stop "torch_forks.py: it is gone"
    return "$status"
}
alone() {
    [ -n "$FULL" ] || { forked 1 0 "$@"; return; }
    (out=$1 err=$2; shift 2; : >"$err"
     while case $1 in *=*) true ;; *) false ;; esac; do export "$1"; shift; done
     "$python" "$@" >"$out" 2>>"$err")
}
spread() {
    n=$1 out=$2 err=$3; shift 3; : >"$err"
    if [ -n "$FULL" ]; then ranks "$n" "$@" >"$out" 2>>"$err"
    else forked "$n" "$(free_ports 1)" "$out" "$err" "$@"; fi
}

echo 'import kcp_torch' >"$W/first.py"
alone "$W/log" "$W/log" KCP_LIB="$W/none.so" "$W/first.py" &&
    stop "KCP_LIB of a file that is not there is taken"
grep -q 'KCP_LIB: found no file.*expected' "$W/log" || stop "KCP_LIB: $(heard "$W/log")"

# Real ranks of torchrun, which looks at them every fifth of a second. One version of it
# loses its way without --redirects; and --standalone is port 29400 there, which two of
# them share: the second one ends when the first one does.
ranks() {
    n=$1; shift
    "$python" -m torch.distributed.run --redirects 9:3 --tee 9:3 \
        --monitor_interval 0.2 --master_addr 127.0.0.1 --master_port "$(free_ports 1)" \
        --nproc_per_node="$n" "$@"
}

# ---- the token recurrence, and a check that sees a mistake
ranks 3 "$here/tests/cli/torch_check.py" >"$W/log" 2>&1 ||
    stop "torch_check.py: $(heard "$W/log")"
grep 'torch' "$W/log"
alone "$W/log" "$W/log" KCP_PLANT=local "$here/tests/cli/torch_check.py" &&
    stop "a gradient that is cut off is not seen"
grep -q 'FAIL .* dv: error' "$W/log" || stop "a planted mistake: $(heard "$W/log")"
alone "$W/log" "$W/log" KCP_PLANT=late "$here/tests/cli/torch_check.py" &&
    stop "a convolution's state whose gradient is a row late is not seen"
grep -q 'FAIL .* conv 4 dstates: error' "$W/log" ||
    stop "a planted mistake: $(heard "$W/log")"

# ---- the backend of FLA, chosen by a stand-in: alone, over two ranks, and a mistake
fla=$here/tests/cli/torch_fla.py
spread 2 "$W/log" "$W/log" "$fla" || stop "torch_fla.py: $(heard "$W/log")"
said=$(grep -ao 'torch_fla.py: .*' "$W/log" | head -1)
alone "$W/log" "$W/log" KCP_PLANT=order "$fla" && stop "an argument in another's place is not seen"
grep -q 'FAIL .* by position' "$W/log" || stop "a planted mistake: $(heard "$W/log")"
echo "torch.sh: ${said#*: } (FLA's choice of a backend, 2 ranks)"

# ---- what chapter 19 says of the reference of FLA's tests over ranks
alone "$W/log" "$W/log" "$here/bench/peers/rounded_keys.py" T=512 ||
    stop "rounded_keys.py: $(heard "$W/log")"

# ---- the example: one loss, however it is spread
train="$here/book/examples/torch/train.py --steps 4 --text $here/README.md"
alone "$W/one" "$W/log" $train || stop "train.py: $(heard "$W/log")"
close() {
    awk 'NR == FNR { want[$2] = $4; n++; next }
         { d = $4 - want[$2]; if (d < 0) d = -d; m++; if (!(d <= 1e-9)) exit 1 }
         END { if (n != 4 || m != 4) exit 1 }' "$W/one" "$1"
}
for how in "3 3" "4 2"; do
    spread ${how% *} "$W/many" "$W/log" $train --cp ${how#* } ||
        stop "train.py, $how: $(heard "$W/log")"
    close "$W/many" || stop "ranks, cp $how: $(tail -1 "$W/many"), not" \
        "$(tail -1 "$W/one")"
done
awk 'NR == 1 { a = $4 } END { exit !($4 < a) }' "$W/one" ||
    stop "the loss does not fall"
sed 's/loss ./loss 9/' "$W/one" >"$W/many"
close "$W/many" && stop "another loss is taken for the same"
alone "$W/log" "$W/log" $train --cp 2
[ $? -eq 2 ] && grep -q -- '--cp: found 2, expected' "$W/log" ||
    stop "--cp 2 of one rank: $(heard "$W/log")"
alone "$W/log" "$W/log" "$here/book/examples/torch/train.py" --text "$W/none"
[ $? -eq 2 ] && [ "$(grep -c . "$W/log")" = 1 ] && grep -q 'none: found No' "$W/log" ||
    stop "a text that is not there: $(heard "$W/log")"
echo "torch.sh: train.py, $(tail -1 "$W/one") on 1 rank, 3 (cp 3) and 4 (cp 2)"

# ---- kernels written elsewhere: right, wrong, gone, silent, not there, not its shape
cat >"$W/mine.py" <<'PY'
import os, time
import numpy as np

def conv(case):
    if case.shift or case.backward:
        return None
    x, w = case.x, case.weight
    y, W, cu = np.zeros_like(x), w.shape[1], case.cu_seqlens
    xt = np.zeros((len(cu) - 1, W - 1, x.shape[1]))
    for n, (a, b) in enumerate(zip(cu, cu[1:])):
        before = np.zeros((W - 1, x.shape[1])) if case.x0 is None else case.x0[n]
        rows = np.concatenate([before, x[a:b]])
        xt[n] = rows[len(rows) - W + 1:]
        for t in range(a, b):
            y[t] = 0 if case.bias is None else case.bias
            for j in range(W):
                y[t] += w[:, j] * rows[t - a + j]
    return {"y": y / (1 + np.exp(-y)) if case.act else y, "xt": xt}

def wrong(case):
    out = conv(case)
    if out and case.T == 1023:
        out["y"][-1:] *= 1.001
    return out

def unreal(case):
    out = conv(case)
    if out and case.T == 1023:
        out["y"] = out["y"] + 0j
    return out

def gone(case):
    if case.T == 1023:
        os.kill(os.getpid(), 9)
    return conv(case)

def silent(case):
    if case.T == 1023 and not os.path.exists("was_silent"):
        open("was_silent", "w").close()
        time.sleep(1000)
    return conv(case)
PY
# Drawn cases alone; FULL=1: the anchored ones and the wide ones too.
list=--drawn
[ -z "$FULL" ] || list=
judged() {                                         # STATUS WORDS option...
    want=$1 words=$2; shift 2
    said=$(cd "$W" && "$python" "$here/tests/kcp_check.py" --check "$B/kcp-check" $list \
        "$@" 2>&1)
    status=$?
    [ $status = "$want" ] || stop "kcp_check.py $*: status $status: $said"
    case $said in *"$words"*) ;; *) stop "kcp_check.py $*: lacks $words: $said" ;; esac
}
judged 0 ' 0 failed' kcp_torch:chunk_kda --stage 13 --as fla
kda=$said
judged 0 ' 0 failed' kcp_torch:chunk_gated_delta_rule --stage 08 --as fla --cp 2
gdn=$said
judged 0 ' 0 failed' mine:conv --stage 14 --numpy
judged 1 'y rank' mine:wrong --stage 14 --numpy --json "$W/json" --junit "$W/xml"
"$python" - "$W/json" "$W/xml" <<'PY' || stop "kcp_check.py: JSON or JUnit"
import json, sys
import xml.etree.ElementTree as tree
said, suite = json.load(open(sys.argv[1])), tree.parse(sys.argv[2]).getroot()
count = lambda v: sum(c["verdict"] == v for c in said["cases"])
assert said["status"] == 1 and count("fail") and count("pass") and count("n/a")
assert int(suite.get("failures")) == len(suite.findall("*/failure")) == count("fail")
assert int(suite.get("skipped")) == len(suite.findall("*/skipped")) == count("n/a")
PY
judged 1 'y: found complex128, expected an array of real' mine:unreal --stage 14 --numpy
judged 1 'its process ended, status [-9]' mine:gone --stage 14 --numpy
judged 1 'no answer in 1 s' mine:silent --stage 14 --numpy --limit 1
case $said in *', 1 failed'*) ;; *) stop "one silent case, and the next are asked: $said" ;; esac
judged 1 'nothing was judged' mine:conv --stage 14 --numpy --shapes 1x1
judged 2 "no attribute 'none'" mine:none --stage 14 --numpy
judged 2 'found 99, expected a stage' mine:conv --stage 99
judged 2 'expected 128x128' mine:conv --stage 08 --shapes 128
judged 2 'expected one of ranks' mine:conv --stage 05 --cp 2
echo "torch.sh: ${kda#*py: }"
echo "torch.sh: ${gdn#*py: }"
