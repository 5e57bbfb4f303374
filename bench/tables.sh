#!/bin/sh
# tables.sh -- tables made from recorded runs, as Markdown: the book's, the README's.
#
# Book: chapters 01 to 20.  Checked by: tests/cli/tables.sh.  Next: readme.sh.
# usage: sh bench/tables.sh DIR [FILE...]     from bench/results/ unless files are named
out=$1; shift
[ -n "$out" ] || { echo "tables.sh: found no folder, expected one" >&2; exit 2; }
rm -rf "$out"; mkdir -p "$out" || exit 1
for f in cuda/*/v[0-9]*.cu; do
    own=$(sed -n 's/^ *"\([0-9][0-9]_[^"]*\)", *"\(v[^"]*\)".*/\1 \2/p' "$f" | head -1)
    echo "$own $(sh bench/digest.sh $own)"
done > "$out/digests"
# Later goes after earlier: by day, and of one day a run with a longer name.
[ $# -gt 0 ] || set -- $(ls bench/results/*.json bench/results/*-judge.txt \
        bench/results/*nccl*.txt 2>/dev/null |
    awk '{ f = $0; sub(/.*\//, "", f); n = f; sub(/-[^-]*$/, "", n)
           printf "%s %03d %s %s\n", substr(f, 1, 10), length(n), f, $0 }' |
    sort | cut -d' ' -f4)
t=book/tables
for f in bench/results/*-precision.txt; do          # chapter 19: the last one stands
    [ -r "$f" ] && { echo '```text'; cat "$f"; echo '```'; } > "$out/18-gpu.md"
done
awk -v out="$out" -v digests="$out/digests" -f $t/walks.awk -f $t/read.awk \
    -f $t/stages.awk -f $t/edges.awk -f $t/ranks.awk -f $t/judge.awk -f $t/nccl.awk \
    -f $t/predictions.awk -f $t/readme.awk -f $t/all.awk "$@" /dev/null
