#!/bin/sh
# Write the tables of README.md between its markers, from bench/results/ alone.
# usage: sh bench/tables.sh            rewrite; with --check: fail when they are out of date
table() {
    awk -F'\t' '
    $1 == "run" { run = $2; commit = $3 }
    $1 == "bench" { shape = sprintf("T = %s, H = %s, K = V = %s, %s, %s gates", $2, $4, $5, toupper($8), $9); copy = $10; product = $11 }
    $1 == "row" && $3 !~ /_f32$/ {
        floor = $8 / copy; if ($9 / product > floor) floor = $9 / product
        pass = $4 == 1 ? " (backward)" : ""
        printf "| %s%s | `%s` | %s | %.3f | %.0f %% | %s, `%s` |\n", $2, pass, $3, shape, $5 / 1000, 100 * floor * 1e6 / $5, run, commit
    }' bench/results/*.tsv 2>/dev/null
}
rows=$(table)
new=$(awk -v rows="$rows" '
    /<!-- results -->/ { print; print ""; skip = 1
        if (rows == "") print "Not recorded."
        else { print "| stage | variant | case | ms, median | of its floor | machine, date, commit |"; print "|---|---|---|---|---|---|"; print rows }
        print "" }
    /<!-- end -->/ { skip = 0 }
    !skip { print }' README.md)
if [ "$1" = --check ]; then
    [ "$new" = "$(cat README.md)" ] || { echo "README.md: its table is not what bench/results/ says; run sh bench/tables.sh" >&2; exit 1; }
else
    printf '%s\n' "$new" > README.md
fi
