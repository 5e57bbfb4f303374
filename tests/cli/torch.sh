#!/bin/sh
# torch.sh -- runs tests/pytorch, the tests of kcp_torch, on three ranks. .ci/torch installs
# PyTorch and pytest.
# Book: chapters 08, 13, 14.
# Usage: torch.sh BUILD.
here=$(cd "$(dirname "$0")/../.." && pwd)
B=$(cd "${1:-build}" && pwd) || exit 2
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT KCP_PLANT
export KCP_LIB="$B/libkcp.so" OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$here/book/examples/torch"
# Ranks connect over loopback, so the address of the host's name is not used.
export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME:-lo}"
for python in "${PYTHON:-python3}" /usr/bin/python3 none; do
    command -v "$python" >/dev/null || continue
    "$python" -c 'import pytest, torch, torch.distributed as d
assert d.is_available() and d.is_gloo_available()' 2>/dev/null && break
done
command -v "$python" >/dev/null || {
    echo "torch.sh: pytest or PyTorch with gloo not found: nothing was run"; exit 0; }
# One version of torchrun fails without --redirects. Port 0 is any free port, but
# --standalone would use one port for all jobs of a machine.
"$python" -m torch.distributed.run --redirects 9:3 --tee 9:3 --monitor_interval 0.2 \
    --rdzv_backend c10d --rdzv_endpoint localhost:0 --nproc_per_node=3 \
    -m pytest -xq -p no:cacheprovider "$here/tests/pytorch" >"$log" 2>&1 || {
    echo "torch.sh: tests/pytorch, 3 ranks:"
    grep -a 'FAIL\|Error\|what():\|Signal [0-9]' "$log" | head -12
    tail -n 12 "$log"
    exit 1
}
grep 'torch\|passed' "$log" | tail -2
