#!/bin/sh
# try.sh -- every lab as a student would hand it in: empty, wrong in three ways, right.
#
# Book: labs/STAFF.md.  Usage: sh book/labs/try.sh [LAB...]  Next: tried.txt, its output.
# The right answer is the region that was cut out; the wrong ones are edits of it, the
# "wrong" lines of the lab. Work of your own is never touched: move it away first.
B=${B:-build} bad=0
for f in ${*:-book/labs/*.lab}; do
    id=$(sed -n 's/^lab *//p' "$f") src=$(sed -n 's/^file *//p' "$f") region=$(sed -n 's/^region *//p' "$f")
    work=book/labs/work/$id.c
    [ -f "$work" ] && { echo "try: $work is yours; move it away first"; exit 2; }
    mkdir -p book/labs/work "$B/grade"
    awk -v r="$region" '/^[ \t]*\/\/< / && $2 == r { on = 0 } on { print } /^[ \t]*\/\/> / && $2 == r { on = 1 }' "$src" > "$B/grade/region"
    sed -n 's/^wrong *//p' "$f" > "$B/grade/wrong"
    for try in empty wrong1 wrong2 wrong3 right; do
        awk -f book/labs/new.awk "$f" "$src" > "$B/grade/empty.c"
        case $try in
            empty) : > "$B/grade/fill" ;;
            right) cp "$B/grade/region" "$B/grade/fill" ;;
            *) sed "$(sed -n "${try#wrong}p" "$B/grade/wrong")" "$B/grade/region" > "$B/grade/fill"
               cmp -s "$B/grade/region" "$B/grade/fill" && { echo "try: $id: wrong ${try#wrong} changes nothing"; bad=1; } ;;
        esac
        awk -v fill="$B/grade/fill" '{ print } /TODO:/ { todo = 1 } todo && /\*\// { while ((getline l < fill) > 0) print l; todo = 0 }' "$B/grade/empty.c" > "$work"
        out=$(make --no-print-directory -s grade LAB="$id" 2>&1)
        score=$(echo "$out" | sed -n 's/^Score: //p')
        printf '%-18s %-7s %s\n' "$id" "$try" "$score"
        [ "$VERBOSE" ] && echo "$out" | sed 's/^/      /'
        got=${score%%/*} of=${score#*/}; of=${of%%,*}
        case $try in right) [ "$got" = "$of" ] || bad=1 ;; *) [ "$got" != "$of" ] || bad=1 ;; esac
        rm -f "$work" "$B/book/labs/work/$id.o" "$B/kcp-grade-$id"
    done
done
[ $bad = 0 ] && echo "every lab: full points for the right answer alone"
exit $bad
