#!/bin/sh
# stale.sh -- which variants' records are of other kernels, and which have none.
#
# Book: chapter 18.  Checked by: tests/cli/sanitize.sh.  Next: digest.sh.
#
#   sh bench/stale.sh [BUILD]            what is not as it should be, in words
#   sh bench/stale.sh --all [BUILD]      of every variant: timed, sanitized, repeated
#
# fresh: recorded of the machine code as it stands; stale: of other code; not
# comparable: not built here as the sources stand, or by another nvcc; none: nothing
# recorded. Never a failure: a machine without a GPU cannot make a record. RESULTS: the
# tables that count, all of them unless a test names its own; DIGESTS: as for tables.sh.
# Of the rows of the table of paths, PATHS=1 sh bench/sanitized.sh speaks.
all=""
[ "$1" != --all ] || { all=1; shift; }
B=${1:-build}
[ -n "$all$RESULTS" ] || sh bench/readme.sh --check
results=${RESULTS:-$(ls bench/results/[0-9]*.tsv 2>/dev/null)}
[ -n "$results" ] || { echo "records: none yet"; exit 0; }
if [ -n "$DIGESTS" ]; then cat "$DIGESTS"; else sh bench/digest.sh --all "$B"; fi |
awk -F '\t' -v all="$all" '
    function get(name) { return name in column ? $(column[name]) : "" }
    # The best that is known of a variant under this name: 3 fresh, 2 not comparable,
    # 1 stale, none.
    function note(what, s, v,   k, x) {
        k = s SUBSEP v
        if (!(k in known) && !built) { order[++n] = k; known[k] = 1 }
        x = 1
        if (!(k in now) || now[k] == "-" || nvcc[k] != get("nvcc")) x = 2
        else if (now[k] == get("digest") || index(also[k], " " get("digest") " ")) x = 3
        if (x > best[what, k]) best[what, k] = x
    }
    FNR == 1 {
        file++
        split("", column)
        for (i = 1; i <= NF; i++) column[$i] = i
        next
    }
    file == 1 && ($1 == "comm" || $1 == "path") { next }
    file == 1 {
        k = $1 SUBSEP $2
        now[k] = $4; nvcc[k] = $3; also[k] = " " $5 " "
        if ($4 != "-") built = 1
        if ($2 !~ /_f32$/) { order[++n] = k; known[k] = 1 }
        next
    }
    get("kind") == "time" && get("peer") == "" {
        note("timed", get("stage"), get("variant"))
    }
    get("kind") == "repeat" && get("verdict") == "same" {
        note("repeated", get("stage"), get("variant"))
    }
    # Clean under all four tools, in one table or in several of the same code.
    get("kind") == "sanitizer" && get("path") == "" {
        s = get("stage"); v = get("variant")
        split("memcheck racecheck initcheck synccheck", tool, " ")
        for (i = 1; i <= 4; i++) {
            k = s SUBSEP v SUBSEP get("digest") SUBSEP get("nvcc")
            if (get(tool[i]) ~ /^0l?$/ && !got[k, i]++) clean[k]++
        }
        if (clean[k] == 4) note("sanitized", s, v)
    }
    function word(what, k) {
        split("stale,not comparable,fresh", w, ",")
        return best[what, k] ? w[best[what, k]] : "none"
    }
    END {
        split("timed sanitized repeated", what, " ")
        if (all) print "stage", "variant", what[1], what[2], what[3]
        for (i = 1; i <= n; i++) {
            split(order[i], p, SUBSEP)
            if (all)
                print p[1], p[2], word(what[1], order[i]), word(what[2], order[i]), \
                      word(what[3], order[i])
            for (j = 1; j <= 3; j++) {
                x = word(what[j], order[i])
                if (p[2] ~ /_f32$/ && what[j] == "timed") continue
                total++
                count[x]++
                if (!all && (x == "stale" || x == "none"))
                    print "records: " p[1] " " p[2] ": " what[j] ": " x
            }
        }
        if (all) exit
        if (count["not comparable"])
            print "records: " count["not comparable"] " of " total " not comparable:" \
                  " not built here, or by another nvcc"
        if (count["fresh"] == total)
            print "records: every kernel is recorded as it stands"
    }' OFS='\t' - $results
