#!/bin/sh
# try.sh -- grades five submissions per lab: one empty, three wrong, one right.
#
# Book: labs/STAFF.md.  Usage: try.sh BUILD, or make try LAB=07.  Next: points.tsv, which
# has the expected points; `make tried` writes this file. The right answer is the region
# that was cut out. The wrong answers are edits of that region: "wrong" lines of the lab
# file. Files in book/labs/work are not changed. JOBS= (default 2) submissions are graded
# concurrently, each in a separate folder. SAID=file saves the grader's output.
B=${1:-${B:-build}} MAKE=${MAKE:-make} bad=0 tried=0 unknown=0
# Started without make, the script calls make, which sets the compilers and options.
[ -n "$LAB_CFLAGS" ] || exec $MAKE --no-print-directory -s try B="$B" LAB="$LAB"
mkdir -p "$B" && W=$(mktemp -d "$B/try.XXXXXX") || exit 1
trap 'rm -rf "$W"' EXIT
said=${SAID:-/dev/null}
: >"$said"
complain() { echo "try: $*"; bad=1; }

# hand_in LAB-FILE TRY ID DIR SOURCE: grades one submission; the output is in DIR/said.
hand_in() {
    mkdir -p "$4" || return
    case $2 in
        empty) : >"$4/fill" ;;
        right) cp "$W/$3/region" "$4/fill" ;;
        *) sed "$(sed -n 's/^wrong *//p' "$1" | sed -n "${2#wrong}p")" "$W/$3/region" \
               >"$4/fill" ;;
    esac
    awk -v fill="$4/fill" -f book/labs/new.awk "$1" "$5" |
        sed "s,^// bound: ?,// bound: $(sed -n 's/^bound *//p' "$1")," >"$4/$3.${5##*.}"
    LABWORK=$4 HELD=yes SEED='' LAUNCH='' sh book/labs/grade.sh "$1" >"$4/said" 2>&1
    rm -rf "$B/grade/$3-$(realpath "$4/$3.${5##*.}" | cksum | cut -d' ' -f1)"
}
# Without a GPU a kernel is only compiled, so one submission is enough. Training takes
# minutes, so lab 20 runs only if LAB= names this lab.
tries() {
    [ "$1" != bench/text/run.c ] || [ -n "$LAB" ] || return
    case $1 in *.cu*) nvidia-smi -L >/dev/null 2>&1 || { echo right; return; } ;; esac
    echo empty wrong1 wrong2 wrong3 right
}
get() { sed -n "s/^$1  *//p" "$f" | head -1; }

# Grades all submissions, JOBS at a time. A submission starts when another one ends.
set --
for f in ${LAB:-?}; do set -- "$@" book/labs/$f*.lab; done
. tests/cli/places.sh
places "$W/places" "${JOBS:-2}" || exit 1
for f; do
    id=$(get lab) src=$(get file)
    mkdir -p "$W/$id"
    awk -v r="$(get region)" '/^[ \t]*\/\/< / && $2 == r { on = 0 } on
        /^[ \t]*\/\/> / && $2 == r { on = 1 }' "$src" >"$W/$id/region"
    for try in $(tries "$src"); do
        take_place
        { hand_in "$f" $try "$id" "$W/$id/$try" "$src"; give_place; } &
    done
done
wait

for f; do
    id=$(get lab) src=$(get file)
    for try in $(tries "$src"); do
        at=$W/$id/$try
        score=$(sed -n 's/^Score: //p' "$at/said")
        printf '%s\t%s\t%s\n' "$id" "$try" "$score"
        { printf '\n---- %s, %s\n' "$id" "$try"
          sed "s,$at/,book/labs/work/,g" "$at/said"; } >>"$said"
        case $try in wrong*) ! cmp -s "$W/$id/region" "$at/fill" ||
            complain "$id: wrong ${try#wrong} changes nothing" ;;
        esac
        was=$bad
        # points.tsv has neither the labs that need a GPU nor lab 20, which takes minutes.
        case $src in
            *.cu|*.cuh|bench/text/run.c) ;;
            *) held=$(awk -F '\t' -v id="$id" -v try=$try '
                   NR == 1 { for (i = 2; i <= NF; i++) { gsub(/ /, "", $i); at[$i] = i } }
                   $1 == id { print $at[try] }' book/labs/points.tsv)
               [ -n "$SAID" ] || [ "$score" = "$held" ] ||
                   complain "$id, $try: not the points of points.tsv: $held" ;;
        esac
        got=${score%%/*} of=${score#*/} tried=$((tried + 1))
        ! grep -q 'not run' "$at/said" || unknown=$((unknown + 1))
        # A right kernel may be "not run" without a GPU, or "slower" than the best variant.
        full=$([ "$got" = "${of%%,*}" ] && echo yes)
        case $try in
            right) [ "$full" ] || ! grep '^== ' "$at/said" | grep -qv ' ok \|slower' ||
                       complain "$id: the right answer loses points" ;;
            *) [ ! "$full" ] || grep -q 'not run' "$at/said" ||
                   complain "$id, $try: full points" ;;
        esac
        # The grader must print the hint that the lab file has for this wrong answer.
        hint=$(sed -n 's/^hint *//p' "$f" | sed -n "${try#wrong}p" 2>/dev/null)
        case $try in wrong*)
            [ "${hint:--}" = - ] || grep -qF "hint: on that case yours behaves like one that $hint" \
                "$at/said" || complain "$id, $try: no hint" ;;
        esac
        [ $was = $bad ] || sed 's/^/try: | /' "$at/said"
    done
done
[ $bad = 0 ] && echo "try.sh: $tried hand-ins: full points for the right answer alone" \
    "$([ $unknown = 0 ] || echo "($unknown of a kernel compiled, not run: no GPU)")"
exit $bad
