#!/bin/sh
# generated.sh -- every option of the programs with rubbish, and several at once.
#
# Book: chapter 20, "What is promised to whom".  Checked by: make test, which runs it.
# Usage: generated.sh BUILD; SEED= of what is drawn, N= lines of several options a
# program. ALL=1: every option with every value, some 4300 lines; else one drawn each.
# Next: tests/fuzz/options.c, the same of the parser alone.
#
# Options are those that --help names, so a new one is tried without being listed here.
# The last word is one that no program knows: nothing is computed, and whatever stands
# before it, the answer is status 2, one line that names the program, and nothing else.
B=${1:-build} N=${N:-30} SEED=${SEED:-1}
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
failed=0 tried=0
mkdir "$W/in"; mkfifo "$W/pipe"
long=$(printf '%05000d' 7)
values() {                      # a value a line
    printf '%s\n' x '' -1 0 1 99999999999999999999 -99999999999999999999 1e400 nan \
        0x10 '1 2' 1,2 ,, -- --help=1 '%n%s' / . "$W/in" "$W/pipe" "$W/none/x" \
        /dev/null "$long"
}
# refused PROGRAM words...: the last word is refused, or one before it.
refused() {
    program=$1; shift
    tried=$((tried + 1))
    (cd "$W" && timeout 10 "$at/$program" "$@" --no-such-option) >"$W/out" 2>"$W/err" \
        </dev/null
    status=$?
    if [ $status != 2 ] || [ "$(wc -l <"$W/err")" != 1 ] || [ -s "$W/out" ] ||
       ! grep -q "^$program: .*expected " "$W/err"; then
        echo "generated.sh: $program $(echo "$*" | cut -c1-150): status $status," \
            "$(head -c 200 "$W/err")"
        failed=$((failed + 1))
    fi
}
at=$(cd "$B" && pwd) || exit 1
for program in kcp-run kcp-check kcp-bench; do
    [ -x "$B/$program" ] || continue
    "$B/$program" --help | grep -oE -- '(^|[ (])-(-[A-Za-z][A-Za-z_-]*|[A-Za-z])' |
        tr -d ' (' | sort -u | grep -vx -- '--help\|-h\|--version' >"$W/options"
    [ "$(wc -l <"$W/options")" -ge 10 ] || {
        echo "generated.sh: --help of $program names few options"; failed=1; }
    values >"$W/values"
    while IFS= read -r option; do
        refused $program "$option"
        [ -n "$ALL" ] || continue
        while IFS= read -r value; do
            refused $program "$option" "$value"
            case $option in --*) refused $program "$option=$value" ;; esac
        done <"$W/values"
    done <"$W/options"
    # Several at once, drawn.
    awk -v n="$N" -v seed="$SEED" 'NR == FNR { o[no++] = $0; next } { v[nv++] = $0 }
        END { srand(seed)
            for (i = 0; i < no; i++)
                printf "%s\n%s\nend of line\n", o[i], v[int(nv * rand())]
            for (i = 0; i < n; i++) {
                k = 1 + int(5 * rand())
                for (j = 0; j < k; j++) {
                    printf "%s\n", o[int(no * rand())]
                    if (rand() < 0.8) printf "%s\n", v[int(nv * rand())]
                }
                print "end of line" } }' "$W/options" "$W/values" >"$W/drawn"
    set --
    while IFS= read -r word; do
        if [ "$word" = "end of line" ]; then refused $program "$@"; set --
        else set -- "$@" "$word"; fi
    done <"$W/drawn"
done
# Every program says its name and its version: of those that make test builds, so that
# none is an old one. kcp-test is Criterion's.
versions=0
for program in "$at"/kcp-*; do
    [ -x "$program" ] && [ ! -d "$program" ] || continue
    name=${program##*/}
    case $name in kcp-test|kcp-check-*|kcp-lab-check|kcp-finish|kcp-faults|kcp-precision)
        continue ;;
    esac
    versions=$((versions + 1))
    (cd "$W" && timeout 10 "$program" --version) </dev/null 2>&1 |
        grep -qx "$name [0-9]*\.[0-9]*\.[0-9]*" ||
        { echo "generated.sh: $name --version"; failed=$((failed + 1)); }
done
[ $versions -ge 2 ] || { echo "generated.sh: found no programs in $B"; failed=1; }
[ "$(ls "$W" | tr '\n' ' ')" = "drawn err in options out pipe values " ] ||
    { echo "generated.sh: something was made: $(ls "$W")"; failed=1; }
[ $failed = 0 ] && 
    echo "generated.sh: $tried command lines refused, a line each; seed $SEED;" \
    "$versions programs say their version"
exit $((failed > 0))
