#!/bin/sh
# readme.sh -- writes the tables of recorded runs into README.md, between two marks.
#
# Book: none.  Checked by: make test, by --check.  Next: none.
# usage: sh bench/readme.sh [--check]      --check: only report whether it would change
# README.md is not changed if no kernels are built, because then records cannot be compared
# with the kernels. DIGESTS: as for tables.sh.
cd "$(dirname "$0")/.." || exit 1
w=$(mktemp -d) || exit 1
trap 'rm -rf "$w"' EXIT
sh bench/tables.sh "$w/t" || exit 1
if awk -F '\t' '$3 ~ /^[0-9]/ && $4 != "-" { n++ } END { exit n > 0 }' \
        "$w/t/digests"; then
    echo "README.md: not compared with the records: no kernels are built here"
    exit 0
fi
awk -v table="$w/t/readme.md" '
    /^<!-- measured -->$/ { print; print ""; while ((getline l < table) > 0) print l
                            print ""; inside = 1; found++ }
    /^<!-- until here -->$/ { inside = 0; found++ }
    !inside { if (!/^<!-- measured -->$/) print }
    END { exit found != 2 }' README.md > "$w/new" ||
    { echo "readme.sh: README.md: a mark is missing" >&2; exit 1; }
cmp -s "$w/new" README.md && exit 0
if [ "$1" = --check ]; then
    echo "README.md: its tables are not those of the records: sh bench/readme.sh"
    exit 1
fi
cat "$w/new" > README.md
echo "README.md: its tables are those of the records"
