#!/bin/sh
# scores.sh -- tests/mutants.tsv as CONTRIBUTING.md shows it: a score a file.
#
# Book: CONTRIBUTING.md, "Mutation testing".  Checked by: house.sh reads what it writes.
# Next: mutate.sh, which makes the rows.
# Usage: scores.sh; it writes between the two marks in CONTRIBUTING.md.
export LC_ALL=C
W=$(mktemp) || exit 1
trap 'rm -f "$W"' EXIT
awk -F '\t' 'NR > 1 && $2 !~ /^tests/ {
        tried += $8 != "none"; same += $8 == "same"; small += $8 == "small"
        none += $8 == "none"
        if ($8 != "caught" && $8 != "SURVIVED") next
        n[$2]++; c[$2] += $8 == "caught"; all++; seen += $8 == "caught" }
    END {
        printf "%d mutants of `ref/`, `comm/` and the BLAS variants compile, %d do not:" \
            " %d change a result, of which the lists catch %d (%.1f %%); %d move" \
            " nothing, %d less than ten limits. Caught of those that change a result," \
            " file by file:\n\n", tried, none, all, seen, all ? 100 * seen / all : 0,
            same, small
        for (f in n) print f, c[f] "/" n[f] | "sort"
        close("sort")
    }' tests/mutants.tsv | awk 'NR <= 2 { print; next }
        { printf "%s`%s` %s", m++ ? ", " : "", $1, $2 } END { if (m) print "." }' >"$W"
awk -v from="$W" '/<!-- scores -->/ { print; while ((getline l < from) > 0) print l
        skip = 1; next }
    /<!-- end of scores -->/ { skip = 0 } !skip { print }' CONTRIBUTING.md >"$W.md" &&
    cat "$W.md" >CONTRIBUTING.md
rm -f "$W.md"
