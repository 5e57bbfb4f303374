#!/bin/sh
# answers.sh -- checks that every exercise of the book has an answer with correct numbers.
#
# Book: every chapter's exercises.
# Usage: answers.sh BUILD.
# The book's programs compute each number in two ways. Pages must print these numbers.
cd "$(dirname "$0")/../.." || exit 2
B=${1:-build}
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
failed=0
objects=$(find ref/*.c ref/core ref/base comm -name '*.c' ! -name 'nccl*' ! -name 'mpi*' |
    sed "s|^|$B/|; s|c\$|o|")
for p in answers answers_run ladder; do
    # shellcheck disable=SC2086
    ${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -Iref -I. "book/$p.c" $objects \
        -lm -lpthread -ldl -o "$W/$p" && "$W/$p" >>"$W/output" || failed=1
done
sed -n 's/^@\(answer[^ ]*\) .*/\1/p' "$W/output" | sort >"$W/computed"
grep -ho '\[answer/[^]]*\]{\.val}' book/*.md | sed 's/^\[//;s/\].*//' | sort -u >"$W/shown"
comm -13 "$W/computed" "$W/shown" | sed 's/^/answers.sh: not computed: /' >"$W/lost"
comm -23 "$W/computed" "$W/shown" | sed 's/^/answers.sh: not shown: /' >>"$W/lost"
# Each chapter must have as many answers as exercises. In the built pages every answer must
# be collapsed, and no number may be missing.
awk 'FNR == 1 { if (f) check(); f = FILENAME; e = a = on = 0 }
     /^# /    { on = /^# Exercises/ }
     /^:::/   { if (on && /answers/) on = 2; else if (on == 2) on = 0 }
     /^[0-9]+\. / { if (on == 1) e++; if (on == 2) a++ }
     function check() { total += e
         if (e != a) print "answers.sh: " f ": " e " exercises, " a " answers" }
     END { check(); if (total < 69) print "answers.sh: " total " exercises are left" }
' book/[0-9]*.md >>"$W/lost"
for page in build/book/[0-9]*.html; do
    [ -f "$page" ] || break
    n=$(grep -c '<details class="answer">' "$page")
    [ "$(grep -c '<details' "$page")" = "$(grep -c '</details>' "$page")" ] &&
        [ "$n" -gt 0 ] || echo "answers.sh: $page: $n answers" >>"$W/lost"
    grep -Hon '\[[^][ ]*\]{\.val}' "$page" | sed 's/^/answers.sh: /' >>"$W/lost"
done
[ -s "$W/lost" ] && { cat "$W/lost"; failed=1; }
[ $failed = 0 ] && echo "answers.sh: $(wc -l <"$W/computed") numbers agree"
exit $failed
