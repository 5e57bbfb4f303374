#!/bin/sh
# generated.sh -- calls the programs with random options and values. Each call must exit
# with status 2 and one line that names the program, make no file, and not hang.
#
# Book: chapter 20.  Checked by: make test, which runs it.  Next: ../fuzz/words.c.
# Usage: generated.sh BUILD; SEED= seed of the draws, N= command lines with several
# options per program (30), ALL=1: every option with every value, 4300 lines.
#
# Options are read from --help, so new options are tested too. The last word of each
# command line is an unknown option, so nothing is computed.
B=$(cd "${1:-build}" && pwd) || exit 2
N=${N:-30} SEED=${SEED:-1}
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
cd "$W" || exit 2
failed=0 tried=0
mkdir in; mkfifo pipe
printf '%s\n' x '' -1 0 1 99999999999999999999 -99999999999999999999 1e400 nan 0x10 \
    '1 2' 1,2 ,, -- --help=1 '%n%s' / . "$W/in" "$W/pipe" "$W/none/x" /dev/null \
    "$(printf '%05000d' 7)" >values
refused() {                      # words...
    tried=$((tried + 1))
    timeout 10 "$B/$program" "$@" --no-such-option >out 2>err </dev/null
    status=$?
    [ $status = 2 ] && [ "$(wc -l <err)" = 1 ] && [ ! -s out ] &&
        grep -q "^$program: ." err && return
    echo "generated.sh: $program $(echo "$*" | cut -c1-150): status $status, $(head -c 200 err)"
    failed=1
}
for program in kcp-run kcp-check kcp-bench; do
    [ -x "$B/$program" ] || continue
    "$B/$program" --help | grep -oE -- '(^|[ (])-(-[A-Za-z][A-Za-z_-]*|[A-Za-z])' |
        tr -d ' (' | sort -u | grep -vx -- '--help\|-h\|--version' >options
    [ "$(wc -l <options)" -ge 10 ] || { echo "generated.sh: $program --help: few options"; failed=1; }
    # Writes command lines: each option alone, each option with one drawn value (ALL=1:
    # with every value), then lines of up to five options. Each word is on a line; "end of
    # line" ends a command line.
    awk -v n="$N" -v seed="$SEED" -v all="$ALL" '
        NR == FNR { o[no++] = $0; next } { v[nv++] = $0 }
        function end(s) { printf "%send of line\n", s }
        END { srand(seed)
            for (i = 0; i < no; i++) {
                end(o[i] "\n")
                end(o[i] "\n" v[int(nv * rand())] "\n")
                for (j = 0; all && j < nv; j++) {
                    end(o[i] "\n" v[j] "\n")
                    if (o[i] ~ /^--/) end(o[i] "=" v[j] "\n")
                }
            }
            for (i = 0; i < n; i++) {
                s = ""
                for (k = int(5 * rand()); k >= 0; k--) {
                    s = s o[int(no * rand())] "\n"
                    if (rand() < 0.8) s = s v[int(nv * rand())] "\n"
                }
                end(s)
            } }' options values >drawn
    set --
    while IFS= read -r word; do
        if [ "$word" = "end of line" ]; then refused "$@"; set --
        else set -- "$@" "$word"; fi
    done <drawn
done
[ $tried -gt 0 ] || { echo "generated.sh: found no programs in $B"; failed=1; }
[ "$(ls | tr '\n' ' ')" = "drawn err in options out pipe values " ] ||
    { echo "generated.sh: something was made: $(ls)"; failed=1; }
[ $failed = 0 ] && echo "generated.sh: $tried command lines refused, a line each; seed $SEED"
exit $failed
