#!/bin/sh
# week.sh -- writes or grades the steps of one of eight labs; prints the sum of points.
# Book: labs.md.  Usage: make lab LAB=1, make grade LAB=1.
# The exit status is 0 if no step loses a point. A step without a file loses all points.
what=$1 week=$2 staff=$3 B=${B:-build} W=${LABWORK:-book/labs/work}
line=$(grep "^$week	" book/labs/weeks.tsv)
score=0 of=0 skipped=0 lost=0 json=
for id in $(echo "$line" | cut -f5); do
    lab=book/labs/$id.lab
    [ "$what" = grade ] || { sh book/labs/lab.sh "$lab" $staff || exit; continue; }
    src=$(sed -n 's/^file  *//p' "$lab")
    if [ -e "$W/$id.${src##*.}" ]; then
        sh book/labs/grade.sh "$lab" $staff || lost=1
        set -- $(sed 's/.*"score": \([0-9]*\), "of": \([0-9]*\), "not_run": \([0-9]*\).*/\1 \2 \3/' \
            "$B/grade/$id.json")
        json="$json${json:+, }$(cat "$B/grade/$id.json")"
    else
        set -- 0 "$(awk '$1 == "score" { n += $2 } END { print n }' "$lab")" 0
        echo "Lab $id: no $W/$id.${src##*.}: make lab LAB=$id"
        lost=1
    fi
    score=$((score + $1)) of=$((of + $2)) skipped=$((skipped + $3))
    echo
done
[ "$what" = grade ] || exit 0
echo "Lab $week, $(echo "$line" | cut -f2): $score/$of$([ $skipped = 0 ] || echo ", $skipped not run")"
printf '{"lab": "%s", "score": %d, "of": %d, "not_run": %d, "steps": [%s]}\n' "$week" \
    $score $of $skipped "$json" >"$B/grade/$week.json"
[ $lost = 0 ]
