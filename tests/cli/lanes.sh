#!/bin/sh
# lanes.sh -- scripts side by side: what each says stays whole, in the order of the list.
#
# Book: none.  Checked by: lanes_cli.sh.  Next: house.sh.
# Usage: lanes.sh BUILD SCRIPT... [-- SCRIPT...]; JOBS= (2) at once. Each script is given
# BUILD. Those behind -- wait more than they compute: they run in turn beside the others.
# After a failure no more are begun; those that run end, what was said is printed, and
# the status is 1. The closing line says how many seconds each took, and how many of a
# processor: on a busy machine the second number is the one to go by.
B=${1:?} JOBS=${JOBS:-2}
shift
case $JOBS in [1-9]|[1-9][0-9]) ;; *)
    echo "lanes.sh: JOBS=$JOBS: expected a whole number from 1 to 99" >&2; exit 2 ;; esac
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
trap 'kill $ids 2>/dev/null; exit 1' INT TERM
# A script that calls make is no part of the make above: that one's places are not its own.
MAKEFLAGS=$(echo " $MAKEFLAGS" | sed 's/ -j[0-9]*//g; s/ --jobserver-[a-z]*=[^ ]*//g; s/^ //')
export MAKEFLAGS

. "$(dirname "$0")/places.sh"
places "$W/places" "$JOBS" || exit 2

one() {                                   # NUMBER SCRIPT
    began=$(date +%s)
    sh "$2" "$B" >"$W/$1.said" 2>&1 7>&-
    status=$?
    times >"$W/$1.times"
    echo "$(($(date +%s) - began))/$(awk 'NR == 2 { gsub(/[ms]/, " ")
        printf "%.0f", 60 * ($1 + $3) + $2 + $4 }' "$W/$1.times") ${2##*/}" >"$W/$1.took"
    [ $status = 0 ] || echo "$status" >"$W/failed.$1"
    : >"$W/$1.done"
}
failure() { ls "$W" | grep -q '^failed'; }
in_turn() {                               # NUMBER SCRIPT...: the first one's number
    n=$1; shift
    for script; do
        ! failure || break
        (one "$n" "$script")
        n=$((n + 1))
    done
}
shown=0
show() {                                  # what has ended, as far as it is in order
    while [ -e "$W/$((shown + 1)).done" ]; do
        shown=$((shown + 1))
        cat "$W/$shown.said"
    done
}
beside=1                                  # the number of --, if it is there
for script; do
    [ "$script" != -- ] || break
    beside=$((beside + 1))
done
: >"$W/$beside.said"
: >"$W/$beside.done"
ids=
[ $beside -ge $# ] || { (shift $beside; in_turn $((beside + 1)) "$@") & ids=$!; }
n=0
for script; do
    [ "$script" != -- ] || break
    take_place
    show
    ! failure || break
    n=$((n + 1))
    { one $n "$script"; give_place; } & ids="$ids $!"
done
wait
show
while [ $shown -lt $# ]; do               # behind one that was not begun
    shown=$((shown + 1))
    [ ! -e "$W/$shown.done" ] || cat "$W/$shown.said"
done
echo "seconds: $(cat "$W"/*.took | sort -rn | awk '{ printf "%s%s %s", s, $1, $2; s = ", " }')"
bad=$(ls "$W" | sed -n 's/^failed\.//p' | sort -n | while read -r i; do
    eval "script=\${$i}"
    echo "lanes.sh: $script ends with $(cat "$W/failed.$i")"
done)
[ -z "$bad" ] || { echo "$bad"; exit 1; }
