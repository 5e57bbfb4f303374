#!/bin/sh
# save.sh -- from a saved kernel to its verdict: at most 15 s for a taught one, 60 for a
# fast one, in seconds of a processor, whatever else the machine has to do.
#
# Book: none.  Checked by: itself: a limit of no seconds is passed.  Next: house.sh.
# Usage: save.sh BUILD [FILE...]; without FILE the dearest of both kinds, with ALL=1 every
# taught kernel and every file of cuda/18_hopper. Needs nvcc and a finished build; the
# cache of a compiler is not asked. .ci/nightly runs it. A machine without a GPU says
# "skip" where another gives a verdict.
B=${1:-build}
[ $# = 0 ] || shift
cd "$(dirname "$0")/../.." || exit 2
grep -q '\.cu\.o' "$B/made.list" 2>/dev/null || {
    echo "save.sh: no kernels in $B (no nvcc): nothing looked at"; exit 0; }
export CCACHE_DISABLE=1
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
unset MAKEFLAGS WORLD_SIZE RANK SLURM_NTASKS OMPI_COMM_WORLD_SIZE
if [ $# = 0 ] && [ -n "$ALL" ]; then
    set -- $(ls cuda/[01]*/*.cu cuda/18_hopper/*.cu* cuda/18_hopper/*/*.cu* | sort -u)
elif [ $# = 0 ]; then
    set -- cuda/10_wy_backward/v3_split.cu cuda/16_family/tiles_back_dplr.cu \
        cuda/18_hopper/chunk_factors.cuh cuda/18_hopper/backward/finish_producer.cuh
fi

# The last variant of files; and the judge's words for what a file is part of.
name_in() {
    awk '/^KCP_VARIANT\(/ { strings = 0; on = 1 }
        on { while (match($0, /"[^"]*"/)) {
                 if (++strings == 2) name = substr($0, RSTART + 1, RLENGTH - 2)
                 $0 = substr($0, RSTART + RLENGTH) } }
        / *};$/ { on = 0 }
        END { print name }' "$@"
}
judged_by() {
    case $1 in
        */backward/*|*/v4_*) echo --stage 13 --variant v4_factors ;;
        cuda/18_hopper/*) echo --stage 08 --variant v3_records ;;
        *) stage=${1#cuda/}
           name=$(name_in "$1")
           [ -n "$name" ] || name=$(name_in "${1%/*}"/v*.cu)
           echo --stage "${stage%%_*}" --variant "$name" ;;
    esac
}
# seconds FILE LIMIT: builds what it rebuilds, asks the judge, and looks at the clock.
seconds() {
    make -s -q B="$B" "$B/kcp-check" || { echo "save.sh: $B is not up to date"; exit 1; }
    began=$(date +%s)
    # shellcheck disable=SC2046
    ( make -s -j2 -W "$1" B="$B" "$B/kcp-check" >"$W/log" 2>&1 || exit 1
      "$B/kcp-check" --quiet $(judged_by "$1") >"$W/said" 2>&1
      times >"$W/times" ) || { tail -3 "$W/log"; exit 1; }
    took=$(awk 'NR == 2 { gsub(/[ms]/, " "); printf "%.0f", 60 * ($1 + $3) + $2 + $4 }' \
        "$W/times")
    objects=$(grep -c '^  nvcc' "$W/log")
    echo "$1: $objects objects, $took s of a processor ($(($(date +%s) - began)) s here)," \
        "$(tail -1 "$W/said")"
    grep -q '^[0-9]* passed, 0 failed' "$W/said" && [ "$objects" -ge 1 ] &&
        [ "$took" -le "$2" ]
}
failed=0
seconds cuda/12_h0/v1_copy.cu -1 >/dev/null && {
    echo "save.sh: a limit of no seconds is held"; failed=1; }
for file; do
    case $file in cuda/18_hopper/*) limit=60 ;; *) limit=15 ;; esac
    seconds "$file" $limit || { echo "save.sh: $file: expected at most $limit s and no failure"; failed=1; }
done
exit $failed
