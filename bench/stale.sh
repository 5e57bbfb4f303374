#!/bin/sh
# Say which variants' GPU records are older than their sources, and which have none.
# Never a failure: a machine without a GPU cannot make a record.
sh bench/readme.sh --check
ls bench/results/*.json >/dev/null 2>&1 || { echo "records: none yet"; exit 0; }
for f in cuda/*/v[0-9]*.cu; do
    stage=$(basename "$(dirname "$f")") name=$(basename "$f" .cu)
    row="\"stage\":\"$stage\",\"variant\":\"$name\""
    known=$(sed -n "s/.*$row.*\"digest\":\"\([^\"]*\)\".*/\1/p" bench/results/*.json)
    if [ -z "$known" ]; then echo "records: $stage $name: not recorded"
    elif ! echo "$known" | grep -q "$(sh bench/digest.sh "$stage" "$name")"; then
        echo "records: $stage $name: recorded, but its source is newer"
    fi
done | awk '{ print; n++ }
            END { if (!n) print "records: every kernel is recorded as it stands" }'
