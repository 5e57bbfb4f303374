#!/bin/sh
# tables.sh -- recorded runs as tables in Markdown, for the book and README.md.
#
# Book: chapters 01 to 20.  Checked by: make book.  Next: readme.sh.
# usage: sh bench/tables.sh DIR [FILE...]     FILE: default all of bench/results/
# A later file replaces an earlier one. DIGESTS: the output of digest.py.
out=$1; shift
[ -n "$out" ] || { echo "tables.sh: usage: tables.sh DIR [FILE...]" >&2; exit 2; }
rm -rf "$out"; mkdir -p "$out" || exit 1
if [ -n "$DIGESTS" ]; then cat "$DIGESTS"
elif command -v python3 >/dev/null; then python3 bench/digest.py
fi >"$out/digests" || exit 1
[ $# -gt 0 ] || set -- bench/results/[0-9]*.tsv
[ -r "$1" ] || set -- /dev/null
t=book/tables
awk -F '\t' -v out="$out" -v digests="$out/digests" -f $t/read.awk -f $t/walks.awk \
    -f $t/stages.awk -f $t/edges.awk -f $t/ranks.awk -f $t/judge.awk \
    -f $t/modes.awk -f $t/bounds.awk \
    -f $t/precision.awk -f $t/ladder.awk -f $t/torch.awk -f $t/nccl.awk -f $t/predictions.awk -f $t/readme.awk \
    -f $t/all.awk "$@"
