#!/bin/sh
# torch.sh -- tests kcp_torch: compares results with the token recurrence on one and three
# ranks, calls kcp_torch through FLA, trains the example over ranks, and judges kcp_torch
# with kcp_check.py. .ci/torch installs PyTorch.
# Book: chapters 08, 13, 14.
# Usage: torch.sh BUILD.
here=$(cd "$(dirname "$0")/../.." && pwd)
B=$(cd "${1:-build}" && pwd) || exit 2
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT KCP_PLANT
export KCP_LIB="$B/libkcp.so" OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
# Ranks connect over loopback, so the address of the host's name is not used.
export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME:-lo}"
stop() {                         # prints $*, errors and the log's end; exits
    echo "torch.sh: $*:"
    grep -a 'FAIL\|Error\|what():\|Signal [0-9]' "$W/log" | head -12
    tail -n 12 "$W/log"
    exit 1
}
for python in "${PYTHON:-python3}" /usr/bin/python3 none; do
    command -v "$python" >/dev/null || continue
    "$python" -c 'import pytest, torch, torch.distributed as d
assert d.is_available() and d.is_gloo_available()' 2>/dev/null && break
done
command -v "$python" >/dev/null || {
    echo "torch.sh: pytest or PyTorch with gloo not found: nothing was run"; exit 0; }

export PYTHONPATH="$here/book/examples/torch"
KCP_LIB="$W/none.so" "$python" -c 'import kcp_torch' >"$W/log" 2>&1 &&
    stop "a KCP_LIB that does not exist is accepted"
grep -q 'KCP_LIB.*none.so\|KCP_LIB: found no file' "$W/log" || stop "KCP_LIB"

# ranks N PROGRAM...: starts N ranks by torchrun. One version of torchrun fails without
# --redirects. Port 0 is any free port, but --standalone would use one port for all jobs of
# a machine.
ranks() {
    n=$1; shift
    "$python" -m torch.distributed.run --redirects 9:3 --tee 9:3 --monitor_interval 0.2 \
        --rdzv_backend c10d --rdzv_endpoint localhost:0 --nproc_per_node="$n" "$@"
}
ranks 3 -m pytest -xq -p no:cacheprovider "$here/tests/pytorch" >"$W/log" 2>&1 ||
    stop "tests/pytorch, 3 ranks"
grep 'torch\|passed' "$W/log" | tail -2
"$python" "$here/book/examples/torch/reference.py" --try >"$W/log" 2>&1 ||
    stop "reference.py: an example fails"
# ---- FLA's releases from PyPI call kcp_torch, or one line says why not
"$python" "$here/tests/cli/torch_fla.py" "$W/fla" >"$W/log" 2>&1 || stop "torch_fla.py"
cat "$W/log"
# ---- chapter 19: the reference in FLA's context-parallel tests exceeds their limit
"$python" "$here/bench/peers/rounded_keys.py" T=512 >"$W/log" 2>&1 || stop "rounded_keys.py"

# ---- the example: the same falling loss on one rank and on four
train="$here/book/examples/torch/train.py --steps 4 --text $here/README.md"
# shellcheck disable=SC2086
{
    "$python" $train >"$W/one" 2>"$W/log" || stop "train.py"
    ranks 4 $train --cp 2 >"$W/four" 2>"$W/log" || stop "train.py on 4 ranks"
    "$python" $train --cp 2 >"$W/log" 2>&1
}
[ $? = 2 ] && grep -q -- '--cp: ' "$W/log" || stop "--cp 2 on one rank: expected status 2"
awk 'NR == FNR { want[$2] = first = $4; if (FNR == 1) top = $4; n++; next }
    { d = $4 - want[$2]; if (d < 0) d = -d; m++; if (!(d <= 1e-9)) exit 1 }
    END { exit !(n == 4 && m == 4 && first < top) }' "$W/one" "$W/four" ||
    { paste "$W/one" "$W/four" >"$W/log"; stop "losses on 1 and 4 ranks differ or rise"; }
"$python" "$here/book/examples/torch/train.py" --text "$W/none" >"$W/log" 2>&1
[ $? = 2 ] && [ "$(grep -c . "$W/log")" = 1 ] && grep -q "none" "$W/log" ||
    stop "train.py --text $W/none: expected status 2, one line"

# ---- kcp_check.py judges kcp_torch on small random cases, with FULL=1 on all cases
list=--small
[ -z "$FULL" ] || list=
for words in "chunk_kda --stage 13" "chunk_gated_delta_rule --stage 08 --cp 2"; do
    # shellcheck disable=SC2086
    (cd "$W" && "$python" "$here/tests/kcp_check.py" --check "$B/kcp-check" --as fla \
        $list kcp_torch:$words) >"$W/log" 2>&1 || stop "kcp_check.py $words"
    tail -1 "$W/log"
done

# ---- a mistake of one rank: one verdict that names the rank and the case
cat >"$W/mine.py" <<'PY'
import time
import numpy as np

def of(change):
    def run(case):
        out = {"o": np.zeros((len(case.v), case.HV, case.V)),
               "ht": np.zeros((1, case.HV, case.K, case.V))}
        if case.rank == 1: change(case, out)
        return out
    return run

def leave(case, out): raise RuntimeError("out of paper")
def change_input(case, out): case.v[0] += 1
raises, writes = of(leave), of(change_input)
shape = of(lambda case, out: out.update(o=out["o"][:-1]))
kind = of(lambda case, out: out.update(o="text"))
unreal = of(lambda case, out: out["o"].fill(np.nan))
hangs = of(lambda case, out: time.sleep(1000))
PY
while IFS='|' read -r function words; do
    (cd "$W" && "$python" "$here/tests/kcp_check.py" --check "$B/kcp-check" --stage 08 --numpy \
        --cp 2 --limit 40 --case 'live kda R=2 K=16 V=16 lengths=40' mine:$function) \
        >"$W/log" 2>&1
    [ $? = 1 ] && grep -q "$words" "$W/log" && [ "$(grep -c '^  FAIL' "$W/log")" = 1 ] &&
        grep -q -- '--case' "$W/log" || stop "kcp_check.py --cp 2, $function on rank 1"
done <<'LIST'
raises|rank 1: RuntimeError: out of paper
writes|rank 1: .* v: the function changed its input
shape|rank 1: .* found shape
kind|rank 1: .* found str
unreal|o rank 1 .* is nan
hangs|rank 1: no answer in 40 s
LIST
echo "torch.sh: train.py, $(tail -1 "$W/one") on 1 rank and 4"
