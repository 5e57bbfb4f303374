#!/bin/sh
# sanitized.sh -- what the sanitizers are known to have found, and what is not known.
#
# Book: chapter 18.  Checked by: tests/cli/sanitize.sh.  Next: stale.sh, sanitize.sh.
#
#   sh bench/sanitized.sh [BUILD]             a row a variant: its tools' words, digest
#   sh bench/sanitized.sh [BUILD] missing     "stage variant tool" where it is not 0
#
# Of all records the rows count that were made of the kernels as they stand, by the same
# nvcc; of several words of a tool 0 is the best, any other the last. BUILD/kcp-check
# lists the variants, those in fp32 too. RESULTS, DIGESTS: as for stale.sh. PATHS=1: not
# the variants' own cases but each path's, as sanitize.sh names them: variant@path.
B=${1:-build}
w=$(mktemp -d) || exit 1
trap 'rm -rf "$w"' EXIT
if [ -z "$PATHS" ]; then
    "$B/kcp-check" --list --device | awk '{ print $1 "\t" $2 }'
else
    "$B/kcp-check" --paths --smallest 2>/dev/null | awk -F '\t' 'NR == 1 {
            for (i = 1; i <= NF; i++) at[$i] = i
            next
        }
        $(at["arch"]) != "host" && $(at["smallest"]) != "none" {
            print $(at["stage"]) "\t" $(at["kernel"]) "@" $(at["path"])
        }'
fi >"$w/variants"
if [ -n "$DIGESTS" ]; then cat "$DIGESTS"; else sh bench/digest.sh --all "$B"; fi \
    >"$w/digests"
results=${RESULTS:-$(ls bench/results/[0-9]*.tsv 2>/dev/null)}
# shellcheck disable=SC2086
awk -F '\t' -v missing="$2" '
    function get(name) { return name in column ? $(column[name]) : "" }
    BEGIN { split("memcheck racecheck initcheck synccheck", tool, " ") }
    FILENAME ~ /digests$/ {
        digest[$1, $2] = $4; nvcc[$1, $2] = $3; also[$1, $2] = " " $5 " "
        next
    }
    FILENAME ~ /variants$/ {
        row = ""; split($2, name, "@"); now = digest[$1, name[1]]
        if (name[2] != "" && !(($1, name[1]) in digest)) next
        if (now == "") now = "-"
        for (i = 1; i <= 4; i++) {
            x = word[$1, $2, i]
            if (x == "") x = "-"
            row = row sprintf(" %9s", x)
            if (missing && x !~ /^0l?$/) print $1, $2, tool[i]
        }
        wide = name[2] == "" ? 18 : 46
        if (!missing) printf "%-20s %-" wide "s%s %18s\n", $1, $2, row, now
        next
    }
    FNR == 1 {
        split("", column)
        for (i = 1; i <= NF; i++) column[$i] = i
        next
    }
    get("kind") == "sanitizer" {
        s = get("stage"); v = get("variant")
        if (!((s, v) in digest) || digest[s, v] == "-" || get("nvcc") != nvcc[s, v] ||
            get("digest") != digest[s, v] && !index(also[s, v], " " get("digest") " "))
            next
        if ((p = get("path")) != "") {
            if (get("row") != digest["path", p]) next
            v = v "@" p
        }
        for (i = 1; i <= 4; i++)
            if (get(tool[i]) !~ /^-?$/ && word[s, v, i] !~ /^0l?$/)
                word[s, v, i] = get(tool[i])
    }' "$w/digests" $results "$w/variants"
