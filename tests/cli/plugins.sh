#!/bin/sh
# plugins.sh -- builds and judges book/examples/plugins in C, Rust and Python. Copies
# with a mistake, and Python functions that crash, hang or return wrong objects, must fail.
# Book: CONTRIBUTING.md, "Kernels written elsewhere".
# Usage: plugins.sh BUILD.
. "$(dirname "$0")/run_common.sh"
stop() { echo "plugins.sh: $*"; exit 1; }
found=""
judged() {                       # WHAT STATUS PATTERN command...
    what=$1 want=$2 words=$3; shift 3
    "$@" >out 2>&1
    status=$?
    [ $status = "$want" ] || stop "$what: status $status, not $want: $(tail -2 out)"
    grep -q -e "$words" out || stop "$what: lacks '$words': $(tail -2 out)"
}
# language SUFFIX NAME command...: builds and judges the example. Then a copy that reads
# the wrong state must fail.
language() {
    suffix=$1 name=$2; shift 2
    cp "$top/book/examples/plugins/h0.$suffix" .
    sed 's/a->h_kept_in, state)/a->h_in, 0)/
         s/copy(a.kept_in, a.back, state)/copy(a.kept_in, a.back, 0)/' \
        "h0.$suffix" >"wrong.$suffix"
    cmp -s "h0.$suffix" "wrong.$suffix" && stop "$name: the mistake changed nothing"
    "$@" "h0.$suffix" -o h0.so >out 2>&1 || stop "$name: $(head -5 out)"
    judged "$name" 0 "ok  *from_" "$B/kcp-check" --variant ./h0.so
    "$@" "wrong.$suffix" -o h0.so >out 2>&1 || stop "$name, wrong: $(head -5 out)"
    judged "$name, wrong" 1 'h_back' "$B/kcp-check" --variant ./h0.so
    found="$found, $name"
}
# shellcheck disable=SC2086
language c C ${CC:-cc} -std=c11 -Wall -Wextra -Werror -shared -fPIC -I"$top/ref"
if command -v rustc >/dev/null && rustc --version >/dev/null 2>&1; then
    language rs Rust rustc --crate-type cdylib -O
else echo "plugins.sh: rustc not found: Rust is left out"
fi
[ -n "$python" ] || { echo "plugins.sh: NumPy not found: Python is left out"
    echo "plugins.sh: chapter 12 in ${found#, }: the right kernel passes, the wrong kernel fails"; exit 0; }

rm -f h0.so
cp "$top/book/examples/plugins/h0.py" .
cat >mine.py <<'PY'
import os, time
import h0

here = lambda case: case.backward and case.T == 20
def wrong(case):
    out = h0.run(case)
    if here(case): out["h_back"] += 1e-3
    return out
def unreal(case): return {n: x + 0j for n, x in h0.run(case).items()}
def inputs(case): return {"h_in": case.h_in}
def writes(case):
    case.h_in[...] += 1
    return h0.run(case)
def none(case): return None
def raises(case): return {}["no"]
def gone(case):
    if here(case): os.kill(os.getpid(), 9)
    return h0.run(case)
def silent(case):
    if here(case) and not os.path.exists("silent"):
        open("silent", "w").close()
        time.sleep(1000)
    return h0.run(case)
PY
stage=12
check() {                        # STATUS PATTERN FUNCTION option...
    want=$1 words=$2; shift 2
    judged "$*" "$want" "$words" "$python" "$top/tests/kcp_check.py" --stage $stage \
        --numpy --check "$B/kcp-check" "$@"
}
list=--small
[ -z "$FULL" ] || list=
# shellcheck disable=SC2086
check 0 ' 0 failed' h0:run $list
few="kda lengths=9 h0; gdn lengths=20,30 L=8 h0; gdn lengths=20 L=8 h0"
check 1 h_back mine:wrong --case "$few" --json json
"$python" - <<'PY' || stop "kcp_check.py: --json"
import json
output = json.load(open("json"))
count = lambda v: sum(c["verdict"] == v for c in output["cases"])
assert output["status"] == 1 and count("fail") and count("pass")
PY
check 1 complex128 mine:unreal --case "$few"
check 1 h_in mine:inputs --case "$few"
check 1 'changed its input' mine:writes --case "$few"
check 1 'nothing was judged' mine:none --case "$few"
check 2 'shapes.*1x1' h0:run --small --shapes 1x1
check 1 'status .-9' mine:gone --case "$few"
check 1 ', 1 failed' mine:silent --case "$few" --limit 1
grep -q 'in 1 s' out || stop "a function that hangs: $(tail -2 out)"

# ---- a failure prints the words of the case; an exception is printed once
check 1 'first wrong at' mine:wrong --seed 3 --case "$few"
words=$(sed -n "s/^ *--case '\(.*\)'$/\1/p" out)
grep FAIL out | sed 's/.*h_back rank/rank/' >first
check 1 'first wrong at' mine:wrong --seed 3 --case "$words"
grep -qF "$(cat first)" out || stop "the printed case fails differently: $(cat out)"
check 1 'and 5 more.*KeyError' mine:raises --case "$few"
[ "$(grep -c 'mine.py", line' out)" = 1 ] && [ "$(grep -c . out)" -le 6 ] ||
    stop "an exception in all cases: $(cat out)"

# ---- a whole forward; with an inverse in half precision it fails, but only on alike keys
cp "$top/book/examples/plugins/forward.py" .
cat >series.py <<'PY'
import forward, numpy as np
def inverse(L):
    one, P = np.eye(len(L)), (-L).astype(np.float16)
    X, n = P + one.astype(np.float16), 2
    while n < len(L):
        P = (1.0 * P @ P).astype(np.float16)
        X, n = (1.0 * X @ (P + one)).astype(np.float16), 2 * n
    return 1.0 * X
forward.inverse, run = inverse, forward.run
PY
stage=08
check 0 ' 0 failed' forward:run --storage bf16 --shapes 16x12
check 0 ' 14 passed' forward:run --storage bf16 --regimes kda
if "$python" -c 'import torch.distributed as d; assert d.is_gloo_available()' 2>/dev/null; then
    export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME:-lo}"
    sed 's/recv(carry,/recv(carry.clone(),/' forward.py >no_state.py
    check 0 ' 0 failed' forward:run_ranks --storage bf16 --cp 2 --shapes 16x12
    check 1 'o rank 1 head' no_state:run_ranks --storage bf16 --cp 2 --shapes 16x12
fi
check 1 'equal keys' series:run --storage bf16 --regimes kda
check 1 'alike=0.9' series:run --storage bf16 --shapes 16x12
check 0 ' 0 failed.*no alike keys' series:run --storage bf16 --small
echo "plugins.sh: chapter 12 in ${found#, }, Python: the right kernel passes, the wrong kernel fails"
