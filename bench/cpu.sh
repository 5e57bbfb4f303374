#!/bin/sh
# cpu.sh -- measures the reference's time and memory on this machine, for two lengths.
#
# Book: chapter 08.  Checked by: its limits; exit status 1 above them.
# Usage: cpu.sh BUILD.  Next: text/main.c.
B=$(cd "${1:-build}" && pwd) || exit 1
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
cd "$W" || exit 1

# Prints "seconds MiB", read from the last line of kcp-run.
cost() {
    rm -rf out; "$B/kcp-run" --in in --out out "$@" >output || exit 1
    sed -n 's/.*; \([0-9.]*\) s, peak memory \([0-9]*\) MiB$/\1 \2/p' output
}
row() { printf '%-34s %7s %9s %9s\n' "$@"; }

echo "kcp-run, KDA in double, forward and backward, files included; HV 4, K = V = 64"
row "" T seconds "peak MiB"
for T in 4096 8192; do
    rm -rf in out
    "$B/kcp-arrays" layer in $T 1 4 4 64 64 kda free 1 || exit 1
    layer=$(cost --gate softplus --beta sigmoid --l2norm --ranks 4) || exit 1
    row "layer over 4 ranks" $T $layer
    [ $T = 4096 ] && first=$layer || second=$layer
    # The recurrence takes log decays.
    "$B/kcp-arrays" layer in $T 1 4 4 64 64 kda raw 1 || exit 1
    step=$(cost --stage 01) || exit 1
    row "token recurrence and its adjoint" $T $step
done
echo "$first $second $(getconf _NPROCESSORS_ONLN)" | awk '{
    printf "layer: memory x %.2f for 2 T, on %d cores; ", $4 / $2, $5
    printf "limits on 2 cores at T = 4096: 10 s, 1024 MiB\n"
    exit !($1 < 10 && $2 < 1024 && $4 < 2.2 * $2)
}'
