#!/bin/sh
# mutate.sh -- mutation testing: small mistakes at random places, and who sees them.
#
# Book: CONTRIBUTING.md, "Mutation testing".  Checked by: tests/cli/lies.sh, a mistake
# that it must catch.  Next: tests/processes.mk, mutate.
# Usage: mutate.sh BUILD N SEED FILE...; LIMIT= seconds in all (0: any), MIN= percent.
#
# A mutant is one operator or number of one line. It is compiled into a copy of the
# tree, and the judge runs, the stage of the file's number first. It is caught when the
# judge fails, or does not end. Who survives runs on inputs from outside the lists, other
# seeds and the full list: where nothing moves there either, no result has changed.
set -u
export LC_ALL=C
B=${1:?} N=${2:?} SEED=${3:?}; shift 3
[ $# -gt 0 ] || { echo "mutate.sh: FILES: found '', expected C files" >&2; exit 2; }
case $N$SEED in *[!0-9]*)
    echo "mutate.sh: found N=$N SEED=$SEED, expected numbers" >&2; exit 2 ;;
esac
for f; do [ -f "$f" ] && [ "${f%.c}" != "$f" ] || {
    echo "mutate.sh: FILES: found '$f', expected C files" >&2; exit 2; }
done
LIMIT=${LIMIT:-0} MIN=${MIN:-0}
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
trap 'exit 1' INT TERM
mkdir -p "$W/tree/build"
tar cf - Makefile ref comm cuda tests bench/*.mk book/*.mk book/labs/*.mk |
    tar xf - -C "$W/tree" || exit 1
(cd "$B" && find ref comm cuda tests made.* -name '*.[od]' -o -name 'made.*' |
    grep -v '\.cu\.' | tar cf - -T -) | tar xf - -C "$W/tree/build" || exit 1
build() { make -s -C "$W/tree" CUDA_HOME=none CC="${CC:-gcc}" build/kcp-check; }
build >"$W/log" 2>&1 || { tail -3 "$W/log"; exit 1; }

# Every place: file, line, column, what stands there, what will; no strings.
cat >"$W/sites.awk" <<'AWK'
BEGIN {
    pair(" + ", " - "); pair(" - ", " + "); pair(" * ", " + "); pair(" / ", " * ")
    pair(" < ", " <= "); pair(" <= ", " < "); pair(" > ", " >= "); pair(" >= ", " > ")
    pair(" == ", " != "); pair(" != ", " == "); pair(" && ", " || ")
    pair(" || ", " && "); pair(" += ", " -= "); pair(" -= ", " += ")
    pair(" = 0;", " = 1;"); pair(" = 1;", " = 0;"); pair(" + 1", " + 2")
    pair(" - 1", " - 0"); pair("[0]", "[1]"); pair("exp2(", "exp(")
    pair(" 0 : ", " 1 : "); pair("continue;", ";"); pair("? ", "? !")
}
function pair(a, b) { from[++n] = a; to[n] = b }
FNR == 1 { comment = 0; depth = 0 }
{
    line = $0
    if (comment) { if (line ~ /\*\//) comment = 0; next }
    if (line ~ /^[ \t]*\/\*/) { if (line !~ /\*\//) comment = 1; next }
    if (line ~ /^[{]/) depth = 1
    if (line ~ /^[}]/) depth = 0
    if (!depth || line ~ /^#/ || line ~ /"/) next
    sub(/\/\*.*$/, "", line)
    for (i = 1; i <= n; i++)
        for (at = 0; (p = index(substr(line, at + 1), from[i])) > 0; at += p)
            printf "%s\t%d\t%d\t%s\t%s\n", FILENAME, FNR, at + p, from[i], to[i]
}
AWK
awk -f "$W/sites.awk" "$@" |
    awk -v s="$SEED" 'BEGIN { srand(s) } { print rand() "\t" $0 }' |
    sort -n | head -n "$N" | cut -f2- >"$W/sites"

# The judge on the copy. The file's own stage first: most are seen there.
stages() {
    own=$(basename "$1" | sed -n 's/^\([0-9][0-9]\)_.*/\1/p')
    [ -n "$own" ] || own=$(echo "$1" | sed -n 's|.*/\([0-9][0-9]\)_[^/]*/.*|\1|p')
    all="06 07 01 02 03 04 05 09 10 11 12 14 08 13 15 16 18 19 20"
    case $1 in comm/*) all="07 06 14 08 13 15 16 20 18 19 12" ;; esac
    echo $own $all | tr ' ' '\n' | awk '!seen[$0]++'
}
caught() {                     # FILE option...: 0 when some stage fails
    file=$1; shift
    for s in $(stages "$file"); do
        (cd "$W/tree" && timeout 120 build/kcp-check --quiet --stage $s --limit 10 "$@") \
            >"$W/out" 2>&1 || { why="stage $s"; return 0; }
    done
    return 1
}
mutant() {                     # FILE LINE COLUMN FROM TO
    awk -v l="$2" -v c="$3" -v a="$4" -v b="$5" 'FNR == l {
        $0 = substr($0, 1, c - 1) b substr($0, c + length(a)) } { print }' "$1" \
        >"$W/tree/$1"
}
restore() { cp "$1" "$W/tree/$1"; touch "$W/tree/$1"; }

start=$(date +%s) tab=$(printf '\t')
: >"$W/rows"
while IFS=$tab read -r file line column from to; do
    [ "$LIMIT" = 0 ] || [ $(($(date +%s) - start)) -lt "$LIMIT" ] || break
    mutant "$file" "$line" "$column" "$from" "$to"
    if ! build >"$W/log" 2>&1; then verdict=none why="it does not compile"
    elif caught "$file"; then verdict=caught
    elif caught "$file" --seed 1009 || caught "$file" --seed 2003 --full; then
        verdict=SURVIVED why="seen from outside the lists alone, $why"
    else verdict=equal why="nothing moves on other seeds and the full list either"; fi
    echo "$verdict $file:$line '$from' -> '$to': $why"
    echo "$verdict $file" >>"$W/rows"
    restore "$file"
done <"$W/sites"

awk -v min="$MIN" -v seed="$SEED" '
    $1 != "none" { n[$2]++; c[$2] += $1 == "caught"; s[$2] += $1 == "SURVIVED" }
    { all[$1]++ }
    END {
        for (f in n) {
            moved = c[f] + s[f]
            printf "%-40s %4d mutants, %4d change a result, caught %s\n", f, n[f],
                moved, moved ? sprintf("%.1f %%", 100 * c[f] / moved) : "-" | "sort"
        }
        close("sort")
        moved = all["caught"] + all["SURVIVED"]
        score = moved ? 100 * all["caught"] / moved : 0
        printf "mutate: seed %s: %d caught, %d survived, ", seed, all["caught"],
            all["SURVIVED"]
        printf "%d change no result seen, %d do not compile: %.1f %%\n", all["equal"],
            all["none"], score
        exit !moved || score < min
    }' "$W/rows"
