#!/bin/sh
# staff.sh -- prints a lab's `score`, `todo` and `twist` lines; fails if a line is bad.
# Book: staff.md.  Usage: staff.sh FILE LAB.
file=$1 id=$2
[ -f "$file" ] || { echo "STAFF=$file: found no such file" >&2; exit 2; }
awk -v id="$id" -v file="$file" '
    function wrong(what) {
        printf "%s:%d: found \"%s\", expected %s\n", file, FNR, $0, what > "/dev/stderr"
        exit 2
    }
    /^[ \t]*(#|$)/ { next }
    $1 == "lab" { on = $2 == id || index(id, $2 "_") == 1; known = 1; next }
    !known { wrong("lab NN before all others") }
    $1 !~ /^(score|todo|twist)$/ { wrong("lab, todo, twist or score") }
    $1 == "score" && ($2 !~ /^[0-9]+$/ || !index($0, "|")) {
        wrong("score POINTS TITLE | HOW") }
    on { print }' "$file"
