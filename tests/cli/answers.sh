#!/bin/sh
# answers.sh -- checks that every exercise has an answer, and that no number is missing.
# Book: every chapter's exercises. book/data/answers.txt has the numbers.
cd "$(dirname "$0")/../.." || exit 2
lost=$({
sed -n 's/^@\(answer[^ ]*\) .*/\1/p' book/data/answers.txt | sort | uniq -d |
    sed 's/^/answers.sh: twice: /'
# Each chapter must have as many answers as exercises. In the built pages every answer must
# be collapsed, and no number may be missing.
awk 'FNR == 1 { if (f) check(); f = FILENAME; e = a = on = 0 }
     /^# /    { on = /^# Exercises/ }
     /^:::/   { if (on && /answers/) on = 2; else if (on == 2) on = 0 }
     /^[0-9]+\. / { if (on == 1) e++; if (on == 2) a++ }
     function check() { total += e
         if (e != a) print "answers.sh: " f ": " e " exercises, " a " answers" }
     END { check(); if (total < 69) print "answers.sh: " total " exercises are left" }
' book/[0-9]*.md
for page in build/book/[0-9]*.html; do
    [ -f "$page" ] || break
    n=$(grep -c '<details class="answer">' "$page")
    [ "$(grep -c '<details' "$page")" = "$(grep -c '</details>' "$page")" ] &&
        [ "$n" -gt 0 ] || echo "answers.sh: $page: $n answers"
    grep -Hon '\[[^][ ]*\]{\.val}' "$page" | sed 's/^/answers.sh: /'
done
# A lab may cite only equations that the book has.
[ ! -f build/book/labels.tsv ] || grep -o 'equation ([^)]*)' book/labs/*.lab |
    while read -r at no; do
        grep -qF "	$no" build/book/labels.tsv || echo "answers.sh: ${at%%:*}: no equation $no"
    done
})
[ -z "$lost" ] || { echo "$lost"; exit 1; }
