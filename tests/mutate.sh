#!/bin/sh
# mutate.sh -- mutation testing: the judge must find small mistakes at random places.
# Book: CONTRIBUTING.md, "Mutation testing".
# Usage: mutate.sh BUILD N SEED FILE... LIMIT= limits the seconds of the run (0: no limit).
# MIN= is the least percentage of mutants to catch. TABLE= names a file of result rows,
# which the next run continues. CASE= is kcp-check's --limit in seconds (120). JOBS= is the
# number of workers (1), each with a copy of the tree.
#
# A mutant changes one operator or number of one line. Its outputs are compared on fifty
# cases of the file's stage and ten of each other stage that may use the file (kcp-check
# --keep, --against). The judge's lists lack these cases. The mutant counts if an output
# changes by more than ten times its limit, or if the process crashes or hangs. Then one of
# the judge's lists must fail or not end, and must pass without the mistake.
set -u
export LC_ALL=C
B=${1:?} N=${2:?} SEED=${3:?}; shift 3
[ $# -gt 0 ] || { echo "mutate.sh: FILES: found '', expected C files" >&2; exit 2; }
case $N$SEED in *[!0-9]*)
    echo "mutate.sh: found N=$N SEED=$SEED, expected numbers" >&2; exit 2 ;;
esac
for f; do [ -f "$f" ] && [ "${f%.c}" != "$f" ] || {
    echo "mutate.sh: FILES: found '$f', expected a .c file that exists" >&2; exit 2; }
done
LIMIT=${LIMIT:-0} MIN=${MIN:-0} CASE=${CASE:-120} TABLE=${TABLE:-} JOBS=${JOBS:-1}
case $LIMIT$MIN$CASE$JOBS in *[!0-9]*)
    echo "mutate.sh: found LIMIT=$LIMIT MIN=$MIN CASE=$CASE JOBS=$JOBS, expected" \
        "numbers" >&2
    exit 2 ;;
esac
unset WORLD_SIZE RANK SLURM_NTASKS OMPI_COMM_WORLD_SIZE
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
trap 'exit 1' INT TERM
tree=$W/tree
mkdir -p "$tree/build" "$W/kept" "$W/taken"
tar cf - Makefile ref comm cuda tests bench/*.mk book/*.mk book/labs/*.mk |
    tar xf - -C "$tree" || exit 1
(cd "$B" && find ref comm cuda tests made.* -name '*.[od]' -o -name 'made.*' |
    grep -v '\.cu\.' | tar cf - -T -) | tar xf - -C "$tree/build" || exit 1
# No mutant runs a kernel.
build() { make -s -C "$tree" B=build CUDA_HOME=none CC="${CC:-gcc}" build/kcp-check; }
build >"$W/log" 2>&1 || { tail -3 "$W/log"; exit 1; }
# Copies the source files, because the originals may be edited during the run.
mkdir "$W/clean" && tar cf - "$@" | tar xf - -C "$W/clean" || exit 1

# Lists all places that a mutant can change: file, line, column, text, replacement. Skips
# lines with strings.
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
    awk -v s="$SEED" 'BEGIN { x = s % 2147483646 + 1; for (i = 0; i < 9; i++) next_x() }
        function next_x() { x = x * 16807 % 2147483647 }       # gives the same numbers in any awk
        { next_x(); print x "\t" $0 }' |
    sort -n | head -n "$N" | cut -f2- >"$W/sites"

# Prints the number in the name of the file or of the file's folder.
own_stage() { echo "$1" | sed -n 's|.*/\([0-9][0-9]\)_.*|\1|p'; }
# Prints the stages to judge: first the file's own stage, which catches most mutants.
stages() {
    own=$(own_stage "$1")
    all="06 04 07 05 08 12 14 01 02 03 09 10 11 17 13 18 19 20 16 15"
    case $1 in
        comm/*) all="07 06 14 08 13 16 15 20 18 19 12 00" ;;
        ref/core/*) all="08 00 20 13 07 12 06 04 14 16 15" ;;
    esac
    echo $own $all | tr ' ' '\n' | awk '!seen[$0]++'
}
failed_on() {                  # KCP-CHECK option...
    (cd "$tree" && timeout 1200 "$@" --quiet --stop --limit "$CASE") >"$me/out" 2>&1
    [ $? -ne 0 ]
}
# A failure counts only if the same command passes without the mistake on this machine.
# Each such command runs once.
passes() {                     # option...
    name=right.$(echo "$*" | tr -c 'a-z0-9\n' _)
    [ -s "$W/$name" ] || {
        if failed_on "$W/right" "$@"; then
            echo no >"$W/$name"
            echo "mutate.sh: $*: fails without a mistake" >&2
        else echo yes >"$W/$name"; fi; }
    [ "$(cat "$W/$name")" = yes ]
}
caught() {                     # STAGE...: succeeds if the judge fails on a stage
    for s; do
        for list in --quick ""; do
            failed_on build/kcp-check --stage $s $list || continue
            passes --stage $s $list || continue
            why="stage $s"
            return 0
        done
    done
    return 1
}
# Prints the stages whose outputs the file can change. Stages 15 and 17 use few files of
# other chapters, and no other stage uses files of chapters 15, 17 and 20.
outputs_of() {
    for s in $(stages "$1"); do
        case $s:$1 in
            00:* | 06:* | 18:* | 19:* | 20:*) ;;
            15:ref/15* | 17:ref/17* | 15:ref/06* | *:comm/* | *:ref/core/*) echo $s ;;
            15:* | 17:*) ;;
            *:ref/15* | *:ref/17* | *:ref/20*) ;;
            *) echo $s ;;
        esac
    done
}
# Succeeds if the stage gets fifty cases instead of ten: the file's own stage or, for files
# without a stage, the layers 08, 13 and 14.
many() {                       # FILE STAGE
    own=$(own_stage "$1")
    case $own.$2 in
        .08 | .13 | .14) return 0 ;;
        "$2.$2") return 0 ;;
    esac
    return 1
}
# When first needed, computes a stage's outputs without a mistake, in two runs. Fails if the
# outputs of the two runs differ, because such outputs cannot show a mistake.
kept() {                       # STAGE [--quick]
    f=$W/kept/$1${2:-}
    if [ ! -e "$f" ] && mkdir "$f.taken" 2>/dev/null; then
        "$W/right" --stage "$@" --seed $OUTSIDE --keep "$f.2" & second=$!
        "$W/right" --stage "$@" --seed $OUTSIDE --keep "$f.1"
        wait $second
        cmp -s "$f.1" "$f.2" || {
            echo "mutate.sh: stage $1: outputs differ from run to run" >&2; : >"$f.1"; }
        mv "$f.1" "$f"
        rm -f "$f.2"
    fi
    while [ ! -e "$f" ]; do sleep 1; done
    [ -s "$f" ]
}
# Sets $moved to 0 if the mistake changes no bit of the outputs, 1 if an output changes by
# more than ten times its limit or the process crashes or hangs, else 2.
moves() {                      # FILE
    moved=0 by=
    for s in $(outputs_of "$1"); do
        few=--quick
        if many "$1" $s; then few=; fi
        kept $s $few || continue
        (cd "$tree" && timeout 300 build/kcp-check --stage $s --seed $OUTSIDE $few \
            --against "$W/kept/$s$few") >"$me/out" 2>&1
        case $? in
            0) continue ;;
            3) moved=2; [ -n "$by" ] || by=$(tail -1 "$me/out") ;;
            1) moved=1 by=$(grep '^moved by' "$me/out") ;;
            124) moved=1 by="stage $s: no end after 300 s" ;;
            *) moved=1 by="stage $s: the process ended abnormally" ;;
        esac
        [ $moved = 2 ] || return
    done
}
mutant() {                     # FILE LINE COLUMN FROM TO
    awk -v l="$2" -v c="$3" -v a="$4" -v b="$5" 'FNR == l {
        $0 = substr($0, 1, c - 1) b substr($0, c + length(a)) } { print }' \
        "$W/clean/$1" >"$tree/$1"
}
restore() { cp "$W/clean/$1" "$tree/$1"; touch "$tree/$1"; }

ulimit -d 4000000 2>/dev/null   # KiB a process; a mutant may allocate without end
OUTSIDE=7000001
start=$(date +%s) tab=$(printf '\t')
late() { [ "$LIMIT" != 0 ] && [ $(($(date +%s) - start)) -ge "$LIMIT" ]; }
is_in_table() { awk -F"$tab" -v r="$row$tab" 'index($0, r) == 1 { n = 1 }
    END { exit !n }' "$W/table"; }
: "${TABLE:=$W/table}"
[ -s "$TABLE" ] || echo "file	line	column	was	became	seed	verdict	why" >"$TABLE"
[ "$TABLE" = "$W/table" ] || ln -sf "$(realpath "$TABLE")" "$W/table"
cp "$W/tree/build/kcp-check" "$W/right"
record() {                       # VERDICT WHY: a row of the table
    echo "$1 $file:$line '$from' -> '$to': $2"
    printf '%s\t%s\t%s\t%s\n' "$row" "$SEED" "$1" "$2" >>"$TABLE"
}
tried() {                      # records the verdict on a mutant that compiles
    moves "$file"
    case $moved in
        0) record same "not a bit of any output moves" ;;
        2) if caught $(stages "$file" | head -1); then record small "$by; seen by $why"
           else record small "$by; its own stage does not see it"; fi ;;
        1) if caught $(stages "$file"); then record caught "$why; $by"
           else record SURVIVED "$by"; fi ;;
    esac
}
# A worker has a separate source tree, and judges mutants that no other worker has taken.
worker() {                     # NUMBER
    me=$W/worker$1 tree=$W/worker$1/tree n=0
    mkdir -p "$me" && cp -Rp "$W/tree" "$me/" || exit 1
    while IFS=$tab read -r file line column from to; do
        n=$((n + 1))
        late && break
        mkdir "$W/taken/$n" 2>/dev/null || continue
        row="$file$tab$line$tab$column$tab$from$tab$to"
        is_in_table && continue
        mutant "$file" "$line" "$column" "$from" "$to"
        if build >"$me/log" 2>&1; then tried
        else record none "it does not compile"; fi
        restore "$file"
    done <"$W/sites"
    rm -rf "$me"
}
for j in $(seq "$JOBS"); do worker $j & done
wait
sed 1d "$W/table" | awk -F"$tab" '{ print $7, $1 }' >"$W/rows"

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
        printf "%d change nothing, %d too little, %d do not compile: %.1f %%\n",
            all["same"], all["small"], all["none"], score
        exit !moved || score < min
    }' "$W/rows"
