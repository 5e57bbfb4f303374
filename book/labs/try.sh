#!/bin/sh
# try.sh -- grades five submissions per lab: one empty, three wrong, one right.
# Book: staff.md.  Usage: try.sh BUILD, or make try LAB=07.  The right answer is the region
# that was cut out of the source. The wrong answers are edits of that region ("wrong" lines
# of the lab file). Files in book/labs/work are not changed. At most JOBS (default 2)
# submissions are graded at once, each in a separate folder.
B=${1:-${B:-build}} MAKE=${MAKE:-make} bad=0 tried=0 unknown=0
# If started without make, this script calls make, which sets the compilers and options.
[ -n "$LAB_CFLAGS" ] || exec $MAKE --no-print-directory -s try B="$B" LAB="$LAB"
get() { sed -n "s/^$1  *//p" "$f" | head -1; }
# try.sh BUILD FOLDER LAB-FILE TRY: grades one submission; the output is in FOLDER/said.
if [ $# = 4 ]; then
    W=$2 f=$3
    id=$(get lab) src=$(get file) work=$W/$(get lab).$(get file | sed 's/.*\.//')
    case $4 in
        empty) echo d ;;
        wrong*) sed -n 's/^wrong *//p' "$f" | sed -n "${4#wrong}p" ;;
    esac >"$W/edit"
    awk -v edit="$W/edit" -f book/labs/new.awk "$f" "$src" |
        sed "s,^// bound: ?,// bound: $(get bound)," >"$work"
    LABWORK=$W HELD=yes SEED='' LAUNCH='' sh book/labs/grade.sh "$f" >"$W/said" 2>&1
    rm -rf "$B/grade/$id-$(realpath "$work" | cksum | cut -d' ' -f1)"
    exit 0
fi
mkdir -p "$B" && W=$(mktemp -d "$B/try.XXXXXX") || exit 1
trap 'rm -rf "$W"' EXIT
complain() { echo "try: $id, $try: $*" >&2; wrong=1; }
# Without a GPU, a kernel is only compiled, so one submission is enough. Training takes
# minutes, so step 20 runs only if LAB= names it.
tries() {
    [ "$1" != bench/text/run.c ] || [ -n "$LAB" ] || return
    case $1 in *.cu*) nvidia-smi -L >/dev/null 2>&1 || grep -q emulated "$f" ||
        { echo right; return; } ;; esac
    echo empty wrong1 wrong2 wrong3 right
}

set --
for f in ${LAB:-?}; do set -- "$@" book/labs/$f*.lab; done
for f; do
    for try in $(tries "$(get file)"); do
        mkdir -p "$W/$(get lab)/$try"
        echo "$W/$(get lab)/$try $f $try"
    done
done | xargs -P "${JOBS:-2}" -L 1 sh "$0" "$B"

for f; do
    id=$(get lab) src=$(get file) line=$(get lab)
    for try in empty wrong1 wrong2 wrong3 right; do
        at=$W/$id/$try wrong=0
        [ -d "$at" ] || { line="$line	-"; continue; }
        score=$(sed -n 's/^Score: //p' "$at/said") tried=$((tried + 1))
        line="$line	${score:--}"
        ! grep -q 'not run' "$at/said" || unknown=$((unknown + 1))
        # A right kernel may be "not run" without a GPU, or "slower" than the best variant.
        got=${score%%/*} of=${score#*/}
        full=$([ "$got" = "${of%%,*}" ] && echo yes)
        case $try in
            right) [ "$full" ] || ! grep '^== ' "$at/said" | grep -qv ' ok \|slower' ||
                       complain "the right answer loses points" ;;
            *) [ ! "$full" ] || grep -q 'not run' "$at/said" || complain "full points" ;;
        esac
        # The grader must print the hint that the lab file has for this wrong answer.
        hint=$(sed -n 's/^hint *//p' "$f" | sed -n "${try#wrong}p" 2>/dev/null)
        case $try in wrong*)
            [ "${hint:--}" = - ] || grep -qF "hint: on that case yours behaves like one that $hint" \
                "$at/said" || complain "no hint"
            ! cmp -s "$at/$id.${src##*.}" "$W/$id/right/$id.${src##*.}" ||
                complain "the edit changes nothing" ;;
        esac
        [ $wrong = 0 ] || { bad=1; sed 's/^/try: | /' "$at/said" >&2; }
    done
    echo "$line"
    # Labs of CUDA files and step 20 are not compared with points.tsv, nor are labs with rows that
    # need a GPU, which points.tsv has as not run.
    case $src in *.cu|*.cuh|bench/text/run.c) continue ;; esac
    ! grep -qE '^score.*(--device|[|] speed )' "$f" || ! nvidia-smi -L >/dev/null 2>&1 || continue
    grep -qxF "$line" book/labs/points.tsv || { bad=1
        echo "try: found '$line', expected the row of points.tsv: $(grep "^$id	" book/labs/points.tsv)" >&2; }
done
[ $bad = 0 ] && echo "try.sh: $tried submissions: only right answers get full points" \
    "$([ $unknown = 0 ] || echo "($unknown kernels compiled, not run: no GPU)")" >&2
exit $bad
