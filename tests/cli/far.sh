#!/bin/sh
# far.sh -- checks the judge's copies to and from a GPU, on a simulated GPU.
#
# Book: CONTRIBUTING.md, "How the judge works".  Checked by: make test, which runs it.
# Usage: far.sh BUILD.  Next: far_gpu.c.
judge=$(cd "${1:-build}" && pwd)/kcp-check-far || exit 1
[ -x "$judge" ] || { echo "far.sh: built without CUDA: nothing was run"; exit 0; }
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
failed=0
unset WORLD_SIZE RANK SLURM_NTASKS OMPI_COMM_WORLD_SIZE FAR
rest="H=1 HV=2 K=8 V=6 C=16 h0 dht"
cases="live kda R=3 chain $rest lengths=9,71,12 id=0; live gdn $rest R=2 lengths=40,0,3 id=1"
cases="$cases; live kda R=4 scan $rest lengths=90 id=2"
# expect STATUS WORDS STAGE option...
expect() {
    want=$1 words=$2 stage=$3; shift 3
    "$judge" --device --stage "$stage" --variant far --case "$cases" "$@" \
        >"$W/output" 2>&1
    status=$?
    [ $status = "$want" ] && grep -q "$words" "$W/output" || {
        echo "far.sh: $stage FAR=$FAR $*: status $status, no '$words': $(head -4 "$W/output")"
        failed=1; }
}
for stage in 08 13; do
    unset FAR
    expect 0 ' ok  .* far ' $stage
    expect 0 ' ok  .* far ' $stage --exact
    expect 0 ' ok  .* far ' $stage --bare --repeats 3
    export FAR
    FAR="$stage reads_work"; expect 1 ' FAIL .*was never written' $stage
    FAR="$stage past_work"; expect 1 'wrote past the workspace' $stage
    FAR="$stage before_work"; expect 1 'wrote before the workspace' $stage
    FAR="$stage before_o"; expect 1 'wrote before ' $stage
    FAR="$stage leftover"; expect 1 'differs when run again' $stage
    FAR="$stage far_before_o"; expect 1 'wrote far past ' $stage
done
# With FULL, judges a whole list of cases, including tensor-core sizes.
unset FAR
[ -z "$FULL" ] || "$judge" --device --quick --stage 08 --variant far >"$W/output" 2>&1 ||
    { echo "far.sh: 08 whole: $(grep FAIL "$W/output")"; failed=1; }
[ $failed = 0 ] && echo "far.sh: arrays go to a GPU's memory and back as they should"
exit $failed
