#!/bin/sh
# record.sh -- what one GPU run left in a folder, as rows of a table in bench/results/.
#
# Book: chapter 18.  Checked by: tests/cli/bench_cli.sh.  Next: record.awk, stale.sh.
#
# usage: sh bench/record.sh FOLDER NAME COMMIT        into bench/results/NAME.tsv
# One table a machine and commit, e.g. 2026-11-21-2f22232-4gpu: what is there stays, and
# the new rows follow. FOLDER holds machine.txt (one line: GPU, driver, date) and any of
# judge.txt (kcp-check's output), repeats.txt (a line "repeats N", then kcp-check's
# output with --repeats N), CASE.tsv (kcp-bench's, the peers'), sanitize.tsv,
# nccl.tsv, precision.tsv, ncu.tsv, notes.tsv (wrong_row.sh's). A row that was timed
# enters only when the judge passed its variant in the same run, of one GPU also when the
# row's own verdict is ok (a table without that column is refused), and with the digest of
# the kernels (digests.tsv; without it of BUILD, else build), so that stale.sh can say when
# they have changed. Other systems' rows ("peer") enter as they are: what they compute is
# not judged here. The README's tables are made anew; the book's are when the book is.
dir=$1 name=$2 commit=$3
[ -r "$dir/machine.txt" ] || {
    echo "record.sh: $dir/machine.txt: not found, expected a run's output" >&2
    exit 2
}
if [ -z "$commit" ]; then
    echo "record.sh: found no commit, expected FOLDER NAME COMMIT" >&2; exit 2
fi
w=$(mktemp -d) || exit 1
trap 'rm -rf "$w"' EXIT
set --
for f in "$dir"/*.tsv; do
    case $f in */digests.tsv | */\*.tsv) ;; *) [ ! -s "$f" ] || set -- "$@" "$f" ;; esac
done
for f in repeats judge; do
    [ ! -r "$dir/$f.txt" ] || set -- "$dir/$f.txt" "$@"
done
[ $# -gt 0 ] || {
    echo "record.sh: $dir: found no judge.txt and no table, expected a run's" >&2
    exit 2
}
if [ -r "$dir/digests.tsv" ]; then set -- "$dir/digests.tsv" "$@"
else
    sh bench/digest.sh --sets "${BUILD:-build}" >"$w/digests.tsv" || exit 1
    set -- "$w/digests.tsv" "$@"
fi
mkdir -p bench/results
to=bench/results/$name.tsv
[ ! -r "$to" ] || set -- "$to" "$@"
awk -v machine="$(head -1 "$dir/machine.txt")" -v commit="$commit" -v kept="$to" \
    -f bench/record.awk "$@" >"$w/new" || exit 2
cat "$w/new" >"$to"
# What its digests are made of, each once.
functions=${FUNCTIONS:-bench/results/functions.tsv}
[ -r "$functions" ] || printf 'nvcc\tdigest\tfunctions\n' >"$functions"
[ -r "$dir/digests.tsv" ] && from=$dir/digests.tsv || from=$w/digests.tsv
awk -F '\t' 'NR == FNR { known[$2] = 1; next }
    FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    ("functions" in at) && $(at["functions"]) != "" && $4 != "-" && !known[$4]++ {
        print $3 "\t" $4 "\t" $(at["functions"]) }' "$functions" "$from" >"$w/more"
cat "$w/more" >>"$functions"
echo "$to: $(($(wc -l <"$to") - 1)) rows"
[ -n "$KEEP_README" ] || sh bench/readme.sh
