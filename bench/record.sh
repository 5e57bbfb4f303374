#!/bin/sh
# Turn what one GPU run left in a folder into a record in bench/results/.
#
# usage: sh bench/record.sh FOLDER NAME COMMIT
# FOLDER holds machine.txt (one line: GPU, driver, date), judge.txt (kcp-check's output)
# and *.json (kcp-bench's). A row enters only when the judge passed its variant in the
# same run. Each record is lines of tab-separated fields, so that any tool can read it:
#   run      machine, date, commit
#   bench    T H HV K V segments model gate copy product
#   row      stage variant pass us p10 p90 bytes flops digest
dir=$1 name=$2 commit=$3
for f in machine.txt judge.txt; do
    [ -r "$dir/$f" ] || { echo "record.sh: $dir/$f: not found, expected a run's output" >&2; exit 2; }
done
[ -n "$commit" ] || { echo "record.sh: found no commit, expected FOLDER NAME COMMIT" >&2; exit 2; }
to=bench/results/$name.tsv
{
    printf 'run\t%s\t%s\n' "$(head -1 "$dir/machine.txt")" "$commit"
    awk '/^[0-9][0-9]_/ { stage = $1 } $1 == "ok" { print "judged\t" stage "\t" $2 "\t" $0 }' "$dir/judge.txt"
    for j in "$dir"/*.json; do
        awk 'function num(k,  s) { s = $0; if (!sub(".*\"" k "\":\"?", "", s)) return ""; sub(/[",}].*/, "", s); return s }
             /"copy"/ { printf "bench\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", num("T"), num("H"), num("HV"), num("K"), num("V"), num("segments"), num("model"), num("gate"), num("copy"), num("product") }
             /"stage"/ { printf "row\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", num("stage"), num("variant"), num("pass"), num("us"), num("us_p10"), num("us_p90"), num("bytes"), num("flops") }' "$j"
    done
} > "$to.new" || exit 1
awk -F'\t' -v OFS='\t' '$1 == "judged" { ok[$2, $3] = 1 }
    $1 == "row" { if (!(($2, $3) in ok)) { print "record.sh: " $2 " " $3 ": no verdict ok in this run, left out" > "/dev/stderr"; next }
        cmd = "sh bench/digest.sh " $2 " " $3; cmd | getline d; close(cmd); $0 = $0 OFS d }
    { print }' "$to.new" > "$to" && rm -f "$to.new"
echo "$to: $(grep -c '^row' "$to") rows"
