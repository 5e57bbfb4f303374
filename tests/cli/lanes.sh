#!/bin/sh
# lanes.sh -- scripts side by side: what each says stays whole, in the order of the list.
#
# Book: none.  Checked by: lanes_cli.sh.  Next: house.sh.
# Usage: lanes.sh BUILD SCRIPT... ; JOBS= (2) at once. Each script is given BUILD.
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
    give_place
}
shown=0
show() {                                  # what has ended, as far as it is in order
    while [ -e "$W/$((shown + 1)).done" ]; do
        shown=$((shown + 1))
        cat "$W/$shown.said"
    done
}
n=0 ids=
for script; do
    take_place
    show
    [ -z "$(ls "$W" | grep '^failed')" ] || break
    n=$((n + 1))
    one $n "$script" & ids="$ids $!"
done
wait
show
echo "seconds: $(cat "$W"/*.took | sort -rn | awk '{ printf "%s%s %s", s, $1, $2; s = ", " }')"
bad=$(ls "$W" | sed -n 's/^failed\.//p' | sort -n | while read -r i; do
    eval "script=\${$i}"
    echo "lanes.sh: $script ends with $(cat "$W/failed.$i")"
done)
[ -z "$bad" ] || { echo "$bad"; exit 1; }
