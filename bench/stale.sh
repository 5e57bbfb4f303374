#!/bin/sh
# Say which variants' GPU records are older than their sources, and which have none.
# Never a failure: a machine without a GPU cannot make a record. TABLES: the sanitizers'
# tables that count, all of them unless a test names its own.
sh bench/readme.sh --check
ls bench/results/*.json >/dev/null 2>&1 || { echo "records: none yet"; exit 0; }
tables=${TABLES:-$(ls bench/results/*-sanitize.txt 2>/dev/null)}
[ -n "$tables" ] || echo "records: make sanitize has left no table yet"
for f in cuda/*/v[0-9]*.cu; do
    own=$(sed -n 's/^ *"\([0-9][0-9]_[^"]*\)", *"\(v[^"]*\)".*/\1 \2/p' "$f" | head -1)
    stage=${own% *} name=${own#* }
    now=$(sh bench/digest.sh "$stage" "$name")
    row="\"stage\":\"$stage\",\"variant\":\"$name\""
    known=$(sed -n "s/.*$row.*\"digest\":\"\([^\"]*\)\".*/\1/p" bench/results/*.json)
    if [ -z "$known" ]; then echo "records: $stage $name: not recorded"
    elif ! echo "$known" | grep -q "$now"; then
        echo "records: $stage $name: recorded, but its source is newer"
    fi
    [ -n "$tables" ] || continue
    clean=$(cat $tables |
        awk -v s="$stage" -v v="$name" '$1 == s && $2 == v {        # in all tables
            for (i = 3; i <= 6; i++) if ($i ~ /^0l?$/ && !got[$7, i]++) n[$7]++ }
            END { for (digest in n) if (n[digest] == 4) print digest }')
    if [ -z "$clean" ]; then echo "records: $stage $name: no sanitizer's record"
    elif ! echo "$clean" | grep -q "$now"; then
        echo "records: $stage $name: sanitized, but its source is newer"
    fi
done | awk '{ print; n++ }
            END { if (!n) print "records: every kernel is recorded as it stands" }'
