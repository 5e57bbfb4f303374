#!/bin/sh
# lab.sh -- writes the student's file (the reference with a gap), unless the file exists.
# Book: labs.md.  Usage: make lab LAB=07 [STAFF=file]
lab=$1 staff=$2 W=${LABWORK:-book/labs/work}
get() { sed -n "s/^$1  *//p" "$lab" | head -1; }
id=$(get lab) src=$(get file)
work=$W/$id.${src##*.}
mkdir -p "$W" || exit 2
if [ -e "$work" ]; then
    echo "$work: this file exists, so it is not changed"
    exit 0
fi
# The staff's file can add "todo" lines, which describe the task in the gap.
tasks=$(mktemp) || exit 2
trap 'rm -f "$tasks"' EXIT
cp "$lab" "$tasks"
[ -z "$staff" ] || sh book/labs/staff.sh "$staff" "$id" | grep '^todo' >>"$tasks"
awk -f book/labs/new.awk "$tasks" "$src" >"$work" || exit 2
line=$(grep -n 'TODO: ' "$work" | head -1 | cut -d: -f1)
echo "$work: fill in the TODO of line $line, then  make grade LAB=$id"
