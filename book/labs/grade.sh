#!/bin/sh
# grade.sh -- points for one lab, printed and as JSON; exit 0 unless points are lost.
#
# Book: labs/STAFF.md.  Usage: grade.sh book/labs/07_merge.lab build  (make grade LAB=07)
# SEED= adds to the seeds of the tests: staff choose it at run time. LAUNCH= stands
# before kcp-check, e.g. "srun -n 4".
lab=$1 B=$2
get() { sed -n "s/^$1 *//p" "$lab" | head -1; }
id=$(get lab) stage=$(get stage) kind=$(get kind)
work=book/labs/work/$id.c
tmp=$B/grade; mkdir -p "$tmp"
say() { printf '== %-46s %-8s %s\n' "$1" "$2" "$3"; }
[ -f "$work" ] || { echo "grade: there is no $work yet: make lab LAB=$id"; exit 2; }

# Build: what the compiler says is for the student's file alone.
score=0 of=0 skipped=0 json=
add() {                      # title points outcome
    case $3 in
        ok) score=$((score + $2)); of=$((of + $2)); p="$2/$2" ;;
        "not run") skipped=$((skipped + 1)); p="-/$2" ;;
        *) of=$((of + $2)); p="0/$2" ;;
    esac
    say "$1" "$3" "$p"
    json="$json${json:+, }{\"test\": \"$1\", \"outcome\": \"$3\", \"points\": $2}"
}
built=1
if ! make --no-print-directory "$B/book/labs/work/$id.o" > "$tmp/$id.build" 2>&1; then
    echo "grade: $work does not compile:"; grep -m 6 -A 3 'error:' "$tmp/$id.build" || tail -3 "$tmp/$id.build"
    built=0
elif called=$(nm -u "$B/book/labs/work/$id.o" | awk '$NF ~ /^(ref_|kcp_stages$|kcp_variants$|dl(v?sym|m?open)$)/ { printf "%s ", $NF }'); [ -n "$called" ]; then
    echo "grade: $work calls ${called% }: the reference is not yours to call"
    built=0
elif ! make --no-print-directory "$B/kcp-grade-$id" > "$tmp/$id.build" 2>&1; then
    echo "grade: $work does not link:"; tail -3 "$tmp/$id.build"; built=0
fi

n=0
while read -r key points rest; do
    [ "$key" = score ] || continue
    n=$((n + 1))
    title=${rest%%|*} flags=${rest#*|}
    title=$(echo "$title" | sed 's/ *$//')
    if [ "$kind" = device ] && ! command -v nvidia-smi > /dev/null; then add "$title" "$points" "not run"; continue; fi
    [ $built = 1 ] || { add "$title" "$points" "no build"; continue; }
    out=$tmp/$id.$n
    if [ "$kind" = check ]; then cmd="$B/kcp-grade-$id $flags"
    else
        seed=$(echo "$flags" | sed -n 's/.*--seed \([0-9]*\).*/\1/p')
        flags=$(echo "$flags" | sed 's/--seed [0-9]*//')
        cmd="${LAUNCH:-} $B/kcp-grade-$id --stage ${stage%%_*} --variant lab --seed $((${seed:-1} + ${SEED:-0})) $flags"
    fi
    timeout 300 $cmd > "$out" 2>&1
    rc=$?
    case $rc in
        0) grep -q 'passed, 0 failed' "$out" && ! grep -q '^0 passed' "$out" && add "$title" "$points" ok || add "$title" "$points" failed ;;
        1) add "$title" "$points" failed ;;
        124) add "$title" "$points" "too slow" ;;
        *) add "$title" "$points" crashed ;;
    esac
    if [ $rc != 0 ] && [ -z "$shown" ]; then
        shown=1
        sed -n '/FAIL\|rejects\|accepts/,$p' "$out" | grep -v '^[0-9]* passed' | head -14 | sed 's/^/   /'
    fi
done < "$lab"
lost=$((of - score))
echo "Score: $score/$of$([ $skipped -gt 0 ] && echo ", $skipped not run")"
printf '{"lab": "%s", "score": %d, "of": %d, "not_run": %d, "tests": [%s]}\n' "$id" $score $of $skipped "$json" > "$tmp/$id.json"
[ $lost = 0 ]
