#!/bin/sh
# Turn what one GPU run left in a folder into records in bench/results/.
#
# usage: sh bench/record.sh FOLDER NAME COMMIT
# FOLDER holds machine.txt (one line: GPU, driver, date), judge.txt (kcp-check's output)
# and *.json (kcp-bench's). A row enters only when the judge passed its variant in the
# same run; with it goes the digest of the sources it was built from (digest.sh), so
# that stale.sh can say when they have changed. Other systems' rows ("peer") enter as
# they are: what they compute is not judged here. The verdicts stand in NAME-judge.txt.
# sanitize.txt, sanitize.sh's table, may lie there alone: it gets digests too
# The README's tables are made anew; the book's are when the book is.
dir=$1 name=$2 commit=$3
kept=judge.txt
[ -r "$dir/judge.txt" ] || [ ! -r "$dir/sanitize.txt" ] || kept=sanitize.txt
for f in machine.txt $kept; do
    [ -r "$dir/$f" ] && continue
    echo "record.sh: $dir/$f: not found, expected a run's output" >&2; exit 2
done
if [ -z "$commit" ]; then
    echo "record.sh: found no commit, expected FOLDER NAME COMMIT" >&2; exit 2
fi
mkdir -p bench/results
if [ -r "$dir/sanitize.txt" ]; then
    to=bench/results/$name-sanitize.txt
    { echo "# $(head -1 "$dir/machine.txt"), commit $commit"
      while read -r stage v rest; do
          d=$(sh bench/digest.sh "$stage" "$v")
          [ "$stage" != stage ] || d=digest
          printf '%-20s %-18s' "$stage" "$v"
          printf ' %9s' $rest "  $d"; echo
      done <"$dir/sanitize.txt"; } >"$to"
    echo "$to: $(($(wc -l <"$to") - 2)) variants"
fi
[ $kept = judge.txt ] || exit 0
{ echo "# $(head -1 "$dir/machine.txt"), commit $commit"; cat "$dir/judge.txt"; } \
    > "bench/results/$name-judge.txt"
for j in "$dir"/*.json; do
    to=bench/results/$name-$(basename "$j")
    awk -v machine="$(head -1 "$dir/machine.txt")" -v commit="$commit" '
        function str(k,  s) {
            s = $0; sub(".*\"" k "\":\"", "", s); sub(/".*/, "", s); return s
        }
        function put(row) {
            sub(/^ *,?/, "", row); printf "%s  %s", n++ ? ",\n" : "", row
        }
        FNR == NR { if ($0 ~ /^[0-9][0-9]_/) stage = $1
                    if ($1 == "ok") ok[stage, $2] = 1
                    next }
        /"copy"/ {
            sub(/^{/, "{\"machine\":\"" machine "\",\"commit\":\"" commit "\",")
            print; n = 0; next                     # a file may hold several cases
        }
        /"stage"/ {
            s = str("stage"); v = str("variant")
            if ($0 ~ /"peer":/) { sub(/,$/, ""); put($0); next }
            if (!((s, v) in ok)) {
                print "record.sh: " s " " v ": no verdict ok in this run, left out" \
                    > "/dev/stderr"
                next
            }
            cmd = "sh bench/digest.sh " s " " v; cmd | getline d; close(cmd)
            sub(/},?$/, ",\"digest\":\"" d "\"}"); put($0)
        }
        /^\]}/ { print "\n]}" }' "$dir/judge.txt" "$j" > "$to" || exit 1
    echo "$to: $(grep -c '"digest"' "$to") rows"
done
[ -n "$KEEP_README" ] || sh bench/readme.sh
