#!/bin/sh
# sanitized.sh -- what the sanitizers are known to have found, and what is not known.
#
# Book: chapter 18.  Checked by: tests/cli/sanitize.sh.  Next: stale.sh, sanitize.sh.
#
#   sh bench/sanitized.sh [BUILD]             a row a variant: its tools' words, digest
#   sh bench/sanitized.sh [BUILD] missing     "stage variant tool" where it is not 0
#
# Of all recorded tables the rows count that were made of the sources as they stand; of
# several words of a tool 0 is the best, any other the last. BUILD/kcp-check lists the
# variants, those in fp32 too.
B=${1:-build}
"$B/kcp-check" --list --device | while read -r s v rest; do
    echo "$s $v $(sh bench/digest.sh "$s" "$v")"
done | awk -v missing="$2" '
    BEGIN { split("memcheck racecheck initcheck synccheck", tool) }
    !listed {
        for (i = 1; i <= 4; i++) {
            at = $1 " " $2 " " $7 " " i
            if ($(i + 2) != "-" && word[at] !~ /^0l?$/) word[at] = $(i + 2)
        }
        next
    }
    {
        row = ""
        for (i = 1; i <= 4; i++) {
            at = $1 " " $2 " " $3 " " i
            x = at in word && word[at] != "" ? word[at] : "-"
            row = row sprintf(" %9s", x)
            if (missing && x !~ /^0l?$/) print $1, $2, tool[i]
        }
        if (!missing) printf "%-20s %-18s%s %18s\n", $1, $2, row, $3
    }' $(ls bench/results/*-sanitize.txt 2>/dev/null) listed=1 -
