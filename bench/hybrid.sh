#!/bin/sh
# hybrid.sh -- checks that hybrid.py has equal losses on 1, 2 and more ranks.
# Book: chapter 08.
#
#   sh bench/hybrid.sh [RANKS...]      (2 4); $KCP_LIB, PYTHONPATH: see book/users.md
#
# Each number of ranks trains with both LAYOUTS for STEPS (6) steps. A loss may differ from
# that of one rank by LIMIT_LOSS (1e-4), because sums of float32 have another order. With
# fewer GPUs than ranks, the ranks share one GPU (tests/share_gpu.sh). DEVICE (cuda) may be
# cpu; PYTHON (python3) is the interpreter. Without --redirects and --tee, torchrun of PyTorch
# 1.13 fails under Python 3.11; its --standalone uses the same port for all runs on a machine.
here=$(cd "$(dirname "$0")/.." && pwd) W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
gpus=$(nvidia-smi -L 2>/dev/null | wc -l) python=${PYTHON:-python3} device=${DEVICE:-cuda}
[ $device = cuda ] || flags="--redirects 9:3 --tee 9:3"
[ $# -gt 0 ] || set -- 2 4
train() {                # RANKS LAYOUT: writes the losses to a file
    if [ "$1" = 1 ]; then launch=$python
    elif [ $device = cuda ] && [ "$1" -gt "$gpus" ]; then
        launch="sh $here/tests/share_gpu.sh $1 $python"
    else launch="$python -m torch.distributed.run $flags --rdzv_backend c10d
        --rdzv_endpoint localhost:0 --nproc_per_node=$1"; fi
    $launch "$here/book/examples/torch/hybrid.py" --device $device \
        --steps "${STEPS:-6}" --layout "$2" --text "$here/README.md" >"$W/log.$1.$2" 2>&1
    grep '^step' "$W/log.$1.$2" >"$W/$1.$2"
}
train 1 contiguous &
for ranks; do
    for layout in ${LAYOUTS:-contiguous zigzag}; do train "$ranks" $layout & done
done
wait
for ranks; do
    for layout in ${LAYOUTS:-contiguous zigzag}; do
        paste "$W/1.contiguous" "$W/$ranks.$layout" | awk -v limit="${LIMIT_LOSS:-1e-4}" \
            -v steps="${STEPS:-6}" -v what="$ranks ranks, $layout" '
            { d = $4 - $10; if (d < 0) d = -d; if (d > most) most = d; if (NF < 10) bad = 1 }
            END { bad = bad || NR != steps || !(most <= limit)
                  printf("%s: %s: loss %s after %d steps, largest difference %.1e\n",
                         bad ? "FAIL" : "passed", what, $10, NR, most); exit bad }' || {
            tail -n 5 "$W/log.1.contiguous" "$W/log.$ranks.$layout"; failed=1; }
    done
done
[ -z "$failed" ]
