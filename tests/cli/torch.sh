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
trap 'rm -rf "$W"' EXIT
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT KCP_LIB KCP_PLANT PYTHONPATH
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
stop() { echo "torch.sh: $*"; exit 1; }

for python in "${PYTHON:-python3}" /usr/bin/python3 none; do
    command -v "$python" >/dev/null || continue
    "$python" -c 'import torch, torch.distributed as d
assert d.is_available() and d.is_gloo_available()' 2>/dev/null && break
done
command -v "$python" >/dev/null || {
    echo "torch.sh: PyTorch with gloo not found: kcp_torch is left out"; exit 0; }

# ---- pip installs it: into an environment of its own, or, without ensurepip, a folder
if "$python" -m venv --system-site-packages "$W/env" >/dev/null 2>&1; then
    python="$W/env/bin/python"
    set -- --no-deps
else
    export PYTHONPATH="$W/site"
    set -- --no-deps --target "$W/site"
fi
KCP_LIB="$B/libkcp.so" "$python" -m pip install -q "$@" \
    "$here/book/examples/torch" >"$W/log" 2>&1 ||
    stop "pip install: $(tail -3 "$W/log")"
at=$(cd "$W" && "$python" -c 'import kcp_torch.library as l; print(l.lib._name)') ||
    stop "kcp_torch is not importable"
case $at in "$W"/*) ;; *) stop "found $at, expected the installed libkcp.so" ;; esac
said=$(cd "$W" && KCP_LIB="$W/none.so" "$python" -c 'import kcp_torch' 2>&1) &&
    stop "KCP_LIB of a file that is not there is taken"
case $said in *"KCP_LIB: found no file"*expected*) ;; *) stop "KCP_LIB: $said" ;; esac

# Real ranks of torchrun. One version of it loses its way without --redirects.
ranks() {
    n=$1; shift
    "$python" -m torch.distributed.run --redirects 9:3 --tee 9:3 --standalone \
        --nproc_per_node="$n" "$@"
}

# ---- the token recurrence, and a check that sees a mistake
ranks 3 "$here/tests/cli/torch_check.py" >"$W/log" 2>&1 ||
    stop "$(grep -v '^ *\(time\|host\|File\)' "$W/log" | head -20)"
grep 'torch' "$W/log"
KCP_PLANT=local "$python" "$here/tests/cli/torch_check.py" >"$W/log" 2>&1 &&
    stop "a gradient that is cut off is not seen"
grep -q 'FAIL .* dv: error' "$W/log" || stop "a planted mistake: $(tail -3 "$W/log")"

# ---- the example: one loss, however it is spread
train="$here/book/examples/torch/train.py --steps 4 --text $here/README.md"
"$python" $train >"$W/one" 2>"$W/log" || stop "train.py: $(tail -1 "$W/log")"
close() {
    awk 'NR == FNR { want[$2] = $4; n++; next }
         { d = $4 - want[$2]; if (d < 0) d = -d; m++; if (!(d <= 1e-9)) exit 1 }
         END { if (n != 4 || m != 4) exit 1 }' "$W/one" "$1"
}
for spread in "3 3" "4 2"; do
    ranks ${spread% *} $train --cp ${spread#* } >"$W/many" 2>"$W/log" ||
        stop "train.py, $spread: $(grep Error "$W/log" | head -3)"
    close "$W/many" || stop "ranks, cp $spread: $(tail -1 "$W/many"), not" \
        "$(tail -1 "$W/one")"
done
awk 'NR == 1 { a = $4 } END { exit !($4 < a) }' "$W/one" ||
    stop "the loss does not fall"
sed 's/loss ./loss 9/' "$W/one" >"$W/many"
close "$W/many" && stop "another loss is taken for the same"
"$python" $train --cp 2 >"$W/log" 2>&1
[ $? -eq 2 ] && grep -q -- '--cp: found 2, expected' "$W/log" ||
    stop "--cp 2 of one rank"
echo "torch.sh: train.py, $(tail -1 "$W/one") on 1 rank, 3 (cp 3) and 4 (cp 2)"
