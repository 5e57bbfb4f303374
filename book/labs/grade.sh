#!/bin/sh
# grade.sh -- prints the points of one lab and writes JSON; exits with 0 if no point is lost.
# Book: labs.md, staff.md.  Usage: make grade LAB=07 [SEED=n] [STAFF=file]
# LAUNCH= is the command that starts the judge's ranks, e.g. "srun -n 4"; LIMIT= is the time
# limit of a test in seconds. rows.sh has a function for each kind of row (test).
lab=$1 staff=$2 B=${B:-build} W=${LABWORK:-book/labs/work} MAKE=${MAKE:-make}
get() { sed -n "s/^$1  *//p" "$lab" | head -1; }
id=$(get lab) ask=$(get ask) stage=$(get stage) kind=$(get kind) src=$(get file)
# J has the judge. A C step needs no kernel, so its judge is built without CUDA.
case $src in
    *.cu|*.cuh) ext=cu o=cu.o J=$B HOST= ;;
    *) ext=c o=o J=$B/labs HOST="CUDA_HOME=none NCCL_HOME=none" ;;
esac
work=$W/$id.${src##*.} form=$(get defines) form=${form#form_}
wants() { echo "grade: $1: expected $2" >&2; exit 2; }
case $SEED in *[!0-9]*|0?*|??????????*) wants "SEED=$SEED" "a whole number" ;; esac
case $LIMIT in *[!0-9]*|0*|??????*) wants "LIMIT=$LIMIT" "seconds, from 1" ;; esac
[ -z "$LAUNCH" ] || command -v "${LAUNCH%% *}" >/dev/null ||
    wants "LAUNCH=$LAUNCH" "a command and its options"
[ -f "$work" ] || { echo "grade: there is no $work yet: make lab LAB=$id"; exit 2; }
# Each file has a separate folder, named by a checksum of the file's path, so that two files
# can be graded concurrently. A lock prevents two gradings of one file at once.
dir=$B/grade/$id-$(realpath "$work" | cksum | cut -d' ' -f1)
mkdir -p "$dir" || exit 2
exec 8>"$dir/lock"
flock 8
rm -rf "$dir"/*.so "$dir"/*.o "$dir"/asan "$dir"/bench "$dir"/check "$dir"/text "$dir"/with \
    "$dir"/producer
realpath "$work" >"$dir/work"
echo "Lab $id: $(get title)"

# Tests (rows) of the staff's file run after those of the lab step. If the staff's file
# changes the task (a twist), the rows of the lab step do not apply and are left out.
: >"$dir/staff"
if [ -n "$staff" ]; then
    sh book/labs/staff.sh "$staff" "$id" >"$dir/staff" || exit 2
fi
if grep -q '^twist' "$dir/staff"; then cp "$dir/staff" "$dir/rows"
else cat "$lab" "$dir/staff" >"$dir/rows"; fi

score=0 of=0 skipped=0 json="" n=0 lost=
quoted() { printf '%s' "$1" | sed 's/[\\"]/\\&/g' | tr -d '\000-\037'; }
add() {                                     # title points outcome note
    last=$3
    case $3 in
        ok) score=$((score + $2)); of=$((of + $2)); p="$2/$2" ;;
        *"not run"*) skipped=$((skipped + 1)); p="-/$2" ;;
        *) of=$((of + $2)); p="0/$2" ;;
    esac
    printf '== %-46s %-8s %s%s\n' "$1" "$3" "$p" "${4:+  ($4)}"
    json="$json${json:+, }{\"test\": \"$(quoted "$1")\", \"outcome\": \"$3\", "
    json="$json\"points\": $2, \"note\": \"$(quoted "$4")\"}"
}

exec </dev/null
. book/labs/rows.sh
# Without a GPU a kernel is only compiled and linked, so a judge without kernels suffices.
# The whole program of a lab of kind patch is then not linked either.
if [ $ext = cu ] && ! nvidia-smi -L >/dev/null 2>&1; then
    J=$B/labs HOST="CUDA_HOME=none NCCL_HOME=none"
    [ "$kind" = patch ] || [ -z "$NVCC" ] || held_to
else [ $ext = cu ] && [ -z "$NVCC" ] || held_to; fi
twist=$(sed -n 's/^twist *//p' "$dir/rows" | head -1)
[ -z "$twist" ] || edited twist "$twist"
build
# Rows are read from descriptor 3, because a launcher (mpirun, srun) reads all of stdin.
while read -r key points rest <&3; do
    [ "$key" = score ] || continue
    n=$((n + 1)) out=$dir/out.$n
    title=$(echo "${rest%%|*}" | sed 's/ *$//') how=${rest#*|}
    row "$title" "$points" "$how"
done 3<"$dir/rows"
[ $n = "$(grep -c '^score ' "$dir/rows")" ] ||
    { echo "grade: $n rows of $(grep -c '^score ' "$dir/rows") were judged"; exit 2; }
echo "Score: $score/$of$([ $skipped -gt 0 ] && echo ", $skipped not run")"
printf '{"lab": "%s", "score": %d, "of": %d, "not_run": %d, "tests": [%s]}\n' "$id" \
    $score $of $skipped "$json" >"$dir/result.json"
# The last result of this lab also gets a fixed name, for grading by hand.
cp "$dir/result.json" "$B/grade/$id.json.$$" && mv "$B/grade/$id.json.$$" "$B/grade/$id.json"
ln -sfn "$(basename "$dir")/lab.so" "$B/grade/$id.so"
[ -z "$ask" ] || echo "To be answered in words: $ask"
[ $n -gt 0 ] && [ $score = $of ] && [ "$built" != no ]
