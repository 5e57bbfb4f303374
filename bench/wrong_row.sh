#!/bin/sh
# wrong_row.sh -- does a row of kcp-bench with a planted mistake FAIL?
#
# Book: chapter 18.  Checked by: gpu_bench.sh, which stops unless it does.
# Next: bench/bench/judged.c, where KCP_BENCH_WRONG plants the mistake.
#
#   sh bench/wrong_row.sh BUILD FOLDER [options of kcp-bench]
#
# FOLDER/notes.tsv records the result for records.py. Exit status 1: a row did not fail.
B=$1 to=$2
[ $# -ge 2 ] && [ -d "$to" ] || {
    echo "wrong_row.sh: found '$*', expected BUILD FOLDER [options]" >&2; exit 2; }
shift 2
w=$(mktemp -d) || exit 2
trap 'rm -rf "$w"' EXIT
rm -f "$to/notes.tsv"
# Old and new variants in one process, because they share cached references.
[ $# -gt 0 ] || set -- --stages 08,13
KCP_BENCH_WRONG=1 "$B/kcp-bench" --judge --tsv "$w/rows.tsv" -T 1024 -H 4 -w 0 -n 5 "$@" \
    >"$w/said" 2>&1
status=$?
[ -r "$w/rows.tsv" ] || : >"$w/rows.tsv"
seen=$(awk -F '\t' 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "verdict") at = i; next }
    { n++; fails += at && $at == "FAIL" } END { print fails + 0 " of " n + 0 }' "$w/rows.tsv")
if [ $status != 1 ] || [ "${seen% of *}" = 0 ] || [ "${seen% of *}" != "${seen#* of }" ]; then
    echo "wrong_row.sh: with a wrong number planted $seen rows say FAIL, status $status;" \
        "expected all of them and 1: rows of this program are not judged"
    tail -3 "$w/said"
    exit 1
fi
printf 'what\tsays\njudged rows\tKCP_BENCH_WRONG=1 kcp-bench --judge -T 1024 -H 4 %s: %s\n' \
    "$*" "$seen rows say FAIL" >"$to/notes.tsv"
echo "wrong_row.sh: with a wrong number planted $seen rows say FAIL"
