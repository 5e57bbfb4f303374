#!/bin/sh
# grade_all.sh -- grades a folder of submissions; writes a table and JSON.
# Book: staff.md.  Usage: make grade-all LAB=07 DIR=handed-in [JOBS=n] [STAFF=file]
# Each DIR/NAME/07_merge.c or DIR/NAME.c is one submission. Results go to
# DIR/.graded/LAB/NAME.{json,txt} and table.tsv. A result is reused if the file, the rows
# and the grader are unchanged, so an interrupted run can be repeated. The exit status is 0 if
# every submission has a result, 1 if a result is missing, 2 for wrong usage.
lab=$1 dir=$2 staff=$3 B=${B:-build}
get() { sed -n "s/^$1  *//p" "$lab" | head -1; }
id=$(get lab) src=$(get file)
ext=${src##*.}
[ -d "$dir" ] || { echo "grade-all: DIR=$dir: expected a folder of submissions" >&2; exit 2; }
case $JOBS in ''|[1-9]|[1-9][0-9]) ;; *)
    echo "grade-all: JOBS=$JOBS: expected a whole number from 1 to 99" >&2; exit 2 ;; esac
to=$dir/.graded/$id
mkdir -p "$to" || exit 2
unset CDPATH

# Prints "name <TAB> file" lines.
list() {
    for f in "$dir"/*/"$id.$ext" "$dir"/*."$ext"; do
        [ -f "$f" ] || continue
        name=${f#"$dir"/}
        case $name in *[[:cntrl:]]*)
            echo "grade-all: $dir: a file with a control character in its name is not graded" >&2
            continue ;;
        esac
        printf '%s\t%s\n' "${name%%[/]*}" "$f"
    done | sed "s/\\.$ext	/	/" | sort
}
key() { cat "$1" "$lab" ${staff:+"$staff"} book/labs/*.sh | cksum; }
one() {                                # name, file
    now="$(key "$2") ${SEED:-0}"
    [ -s "$to/$1.json" ] && [ "$(cat "$to/$1.key" 2>/dev/null)" = "$now" ] && return
    work=$(mktemp -d "$to/.work.XXXXXX") || return
    cp "$2" "$work/$id.$ext"
    LABWORK=$work HELD=yes sh book/labs/grade.sh "$lab" $staff >"$work/said" 2>&1
    built=$B/grade/$id-$(realpath "$work/$id.$ext" | cksum | cut -d' ' -f1)
    sed "s,$work/,,g" "$work/said" >"$to/$1.txt"
    if [ -s "$built/result.json" ]; then
        mv "$built/result.json" "$to/$1.json" && echo "$now" >"$to/$1.key"
    else rm -f "$to/$1.json"; fi
    rm -rf "$work" "$built"
    printf '%-24s %s\n' "$1" "$(sed -n 's/^Score: //p' "$to/$1.txt" | grep . || echo '-')"
}

list >"$to/list.$$"
n=$(wc -l <"$to/list.$$") i=0
[ "$n" -gt 0 ] || { echo "grade-all: $dir: found no NAME/$id.$ext and no NAME.$ext" >&2; rm -f "$to/list.$$"; exit 2; }
case $ext in c) J=$B/labs HOST="CUDA_HOME=none NCCL_HOME=none" ;; *) J=$B HOST= ;; esac
# shellcheck disable=SC2086
flock "$B/grade.lock" ${MAKE:-make} --no-print-directory -s -j"$(nproc)" B="$J" $HOST \
    lab-judge || exit 2
while IFS='	' read -r name file; do
    one "$name" "$file" &
    i=$((i + 1))
    [ $((i % ${JOBS:-2})) != 0 ] || wait
done <"$to/list.$$"
wait

{ printf 'name\tlab\tscore\tof\tnot run\n'
  while IFS='	' read -r name file; do
      points=$(sed -n 's/.*"score": \([0-9]*\), "of": \([0-9]*\), "not_run": \([0-9]*\).*/\1\t\2\t\3/p' \
          "$to/$name.json" 2>/dev/null)
      printf '%s\t%s\t%s\n' "$name" "$id" "${points:--	-	-}"
  done <"$to/list.$$"; } >"$to/table.tsv"
rm -f "$to/list.$$"
missing=$(grep -c '	-	-	-$' "$to/table.tsv")
echo "grade-all: $((n - missing)) of $n have a result: $to/table.tsv"
[ "$missing" = 0 ]
