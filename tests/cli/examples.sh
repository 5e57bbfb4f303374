#!/bin/sh
# examples.sh -- checks that the examples print the same numbers on any number of ranks.
# Book: chapters 08 and 13.
# Usage: examples.sh BUILD.
B=${1:-build}
failed=0
unset RANK WORLD_SIZE
fail() { echo "examples.sh: $*"; failed=1; }
# close A B BOUND: compares words exactly, and numbers up to a relative error of BOUND.
close() {
    echo "$1" "$2" | awk -v bound="$3" '{
        n = NF / 2
        for (i = 1; i <= n; i++) {
            x = $i; y = $(i + n)
            if (y ~ /[0-9]\./) { if (x !~ /^-?[0-9]+\.[0-9]+$/) exit 1
                                 d = x - y; if (d < 0) d = -d; if (y < 0) y = -y
                                 if (!(d <= bound * y)) exit 1 }
            else if (x != y) exit 1
        } }'
}
gpu="no GPU here: host only"
for name in kda gdn; do
    one=$("$B/$name" 1) || fail "$name 1: status $?"
    for ranks in 2 3 5; do
        many=$("$B/$name" $ranks) || fail "$name $ranks: status $?"
        [ -n "$one" ] && [ "$one" = "$many" ] ||
            fail "$name $ranks: $many, not $one"
    done
    "$B/$name" 0 2>/dev/null && fail "$name accepts 0 ranks"
    "$B/$name" 2 f16 2>/dev/null && fail "$name accepts f16"
    "$B/$name" 65 2>&1 | grep -q 'at most 64' || fail "$name 65: no 'at most 64'"
    "$B/$name" 1 bf16 >/dev/null 2>&1
    [ $? -eq 2 ] && continue                   # no GPU, or built without CUDA
    gpu="and on the GPU"
    for ranks in 1 2 3; do
        for as in f32:1e-3 bf16:5e-2; do
            many=$("$B/$name" $ranks ${as%:*}) || fail "$name $ranks $as: status $?"
            echo "$many on the GPU, ${as%:*}, $ranks"
            close "$many" "$one" ${as#*:} || fail "$name $ranks $as: $many, not $one"
        done
    done
done
# kcp_in_one_file.c must pass, and a copy that uses M instead of M^T in backward must fail.
one=book/examples/kcp_in_one_file.c
W=$(mktemp -d) && trap 'rm -rf "$W"' EXIT
sed 's/m->hM\[p\]\[V + i\]/m->hM[i][V + p]/' $one >"$W/wrong.c"
cmp -s $one "$W/wrong.c" && fail "$one: the line with M^T was not found"
for f in "$PWD/$one" "$W/wrong.c"; do
    (cd "$W" && cc -O2 "$f" -lm -lpthread && ./a.out) >"$W/out" 2>&1
    echo "$?" >>"$W/status"
done
[ "$(tr '\n' ' ' <"$W/status")" = "0 1 " ] || fail "$one: $(cat "$W/status" "$W/out")"
# The stand-alone programs of chapter T, and the idea in CUDA, must compile, and pass where
# a GPU is.
NVCC=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
for f in first_tma first_wgmma kcp_in_one_file; do
    [ -n "$NVCC" ] || break
    library= says=': error 0, 0 of'
    if [ $f = kcp_in_one_file ]; then
        echo '#include <nccl.h>' >"$W/nccl.cu"
        "$NVCC" -E "$W/nccl.cu" >/dev/null 2>&1 || continue           # NCCL is optional
        library=-lnccl says='largest error'
    fi
    "$NVCC" -O2 -gencode arch=compute_90a,code=sm_90a book/examples/$f.cu -o "$W/$f" \
        $library || fail "$f.cu does not compile"
    case $gpu in and*)
        "$W/$f" >"$W/out" && grep "$says" "$W/out" || fail "$f: $(cat "$W/out")" ;;
    esac
done
[ $failed = 0 ] &&
    echo "examples.sh: KDA and GDN print the same on 1, 2, 3 and 5 ranks; $gpu"
exit $failed
