#!/bin/sh
# tables.sh -- tables made from recorded runs, as Markdown: the book's, the README's.
#
# Book: chapters 01 to 20.  Checked by: tests/cli/tables.sh.  Next: readme.sh.
# usage: sh bench/tables.sh DIR [FILE...]     from bench/results/ unless files are named
# Later goes after earlier: by day, the first word of a file's name. DIGESTS: a file to
# take for what digest.sh --all says.
out=$1; shift
[ -n "$out" ] || { echo "tables.sh: found no folder, expected one" >&2; exit 2; }
rm -rf "$out"; mkdir -p "$out" || exit 1
if [ -n "$DIGESTS" ]; then cat "$DIGESTS"
else sh bench/digest.sh --all; fi >"$out/digests" || exit 1
[ $# -gt 0 ] || set -- bench/results/[0-9]*.tsv
[ -r "$1" ] || set -- /dev/null
t=book/tables
awk -F '\t' -v out="$out" -v digests="$out/digests" -f $t/read.awk -f $t/walks.awk \
    -f $t/stages.awk -f $t/edges.awk -f $t/ranks.awk -f $t/judge.awk \
    -f $t/modes.awk -f $t/bounds.awk \
    -f $t/precision.awk -f $t/ladder.awk -f $t/torch.awk -f $t/nccl.awk -f $t/predictions.awk -f $t/readme.awk \
    -f $t/all.awk "$@"
