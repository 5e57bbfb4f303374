#!/bin/sh
# try.sh -- every lab as a student would hand it in: empty, wrong in three ways, right.
#
# Book: labs/STAFF.md.  Usage: try.sh BUILD, or make try LAB=07.  Next: points.tsv, which
# the points are held to, and which make tried writes anew. The right answer is the region
# that was cut out; the wrong ones are edits of it, the "wrong" lines of the lab. Nobody's
# own work is touched. SAID=file keeps all that the grader said.
B=${1:-${B:-build}} MAKE=${MAKE:-make} bad=0 tried=0 unknown=0
W=$B/try
rm -rf "$W"; mkdir -p "$W" || exit 1
trap 'rm -rf "$W"' EXIT
said=${SAID:-/dev/null}
: >"$said"
for f in book/labs/${LAB:+$LAB}*.lab; do
    get() { sed -n "s/^$1  *//p" "$f" | head -1; }
    id=$(get lab) src=$(get file) region=$(get region)
    case $src in *.cu) work=$W/$id.cu ;; *) work=$W/$id.c ;; esac
    awk -v r="$region" '/^[ \t]*\/\/< / && $2 == r { on = 0 } on
        /^[ \t]*\/\/> / && $2 == r { on = 1 }' "$src" >"$W/region"
    for try in empty wrong1 wrong2 wrong3 right; do
        case $try in
            empty) : >"$W/fill" ;;
            right) cp "$W/region" "$W/fill" ;;
            *) edit=$(sed -n 's/^wrong *//p' "$f" | sed -n "${try#wrong}p")
               sed "$edit" "$W/region" >"$W/fill"
               cmp -s "$W/region" "$W/fill" &&
                   { echo "try: $id: wrong ${try#wrong} changes nothing"; bad=1; } ;;
        esac
        awk -v fill="$W/fill" -f book/labs/new.awk "$f" "$src" >"$work"
        $MAKE --no-print-directory -s grade B="$B" LAB="$id" LABWORK="$W" SEED= STAFF= \
            LAUNCH= >"$W/said" 2>&1
        score=$(sed -n 's/^Score: //p' "$W/said")
        printf '%s\t%s\t%s\n' "$id" "$try" "$score"
        { printf '\n---- %s, %s\n' "$id" "$try"
          grep -v '^make' "$W/said" | sed "s,$W/,book/labs/work/,g"; } >>"$said"
        # A kernel's points are known where there is a GPU; points.tsv was made without.
        case $src in
            *.cu) ;;
            *) [ -n "$SAID" ] || grep -qxF "$id	$try	$score" book/labs/points.tsv ||
                   { echo "try: $id, $try: not the points of points.tsv"; bad=1; } ;;
        esac
        got=${score%%/*} of=${score#*/} tried=$((tried + 1))
        ! grep -q 'not run' "$W/said" || unknown=$((unknown + 1))
        # Without a GPU a kernel compiles, and no more is known; v1 is not the fastest.
        full=$([ "$got" = "${of%%,*}" ] && echo yes)
        case $try in
            right) [ "$full" ] || ! grep '^== ' "$W/said" | grep -qv ' ok \|slower' ||
                       bad=1 ;;
            *) [ ! "$full" ] || grep -q 'not run' "$W/said" || bad=1 ;;
        esac
        # A wrong answer that stands in the lab's own list has a name: it is told.
        hint=$(sed -n 's/^hint *//p' "$f" | sed -n "${try#wrong}p" 2>/dev/null)
        case $try in wrong*)
            [ "${hint:--}" = - ] || grep -qF "hint: on that case yours behaves like one that $hint" \
                "$W/said" || { echo "try: $id, $try: no hint"; bad=1; } ;;
        esac
        rm -rf "$work" "$B/grade/$id"-*
    done
done
[ $bad = 0 ] && echo "try.sh: $tried hand-ins: full points for the right answer alone" \
    "$([ $unknown = 0 ] || echo "($unknown of a kernel compiled, not run: no GPU)")"
exit $bad
