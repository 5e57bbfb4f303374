#!/bin/sh
# cases.sh -- runs the rows of cases.tsv and checks exit statuses and messages.
# Book: chapter 20.
# Usage: cases.sh BUILD [PROGRAM]: runs the rows of PROGRAM, by default of all programs.
#
# A row of cases.tsv has a program, an exit status, a grep pattern, arguments, values, and
# commands that run before the program. A row with values runs once per value, with $x
# set to the value. A $x at the start of the arguments is replaced by the value before
# the shell reads the line. Pattern `=` means the first word of the arguments. Each run gets
# a fresh copy of a folder, made by the nearest row `folder` above the run's row. If the
# status is 2 and the program is not make, stderr must be one line "kcp-...: ..." that
# contains the pattern, stdout must be empty, and no file `out` may be made. Otherwise, the
# output must contain the pattern, and stderr must be empty if the status is 0.
. "$(dirname "$0")/run_common.sh"
only=${2:-}
export PYTHONPATH="$W/work" KCP_TIMEOUT_S=20

# ---- what rows call
layer() { arrays layer "$@"; }
fill() { arrays fill "$@"; }
poke() { arrays poke "$@"; }
header() {             # FILE DICTIONARY [BYTES]: a .npy header, then BYTES zero bytes
    printf '\223NUMPY\001\000%b%s' "$(printf '\\%03o\\%03o' $((${#2} % 256)) \
        $((${#2} / 256)))" "$2" >"$1"
    truncate -s +"${3:-0}" "$1"
}
f8="'descr': '<f8', 'fortran_order': False" good="'shape': (13, 2, 3)"
# $little_memory limits memory to 2 GB, except under the address sanitizer, which needs more.
little_memory=true
(ulimit -v 2000000; exec "$B/kcp-run" --version) >/dev/null 2>&1 &&
    little_memory='ulimit -v 2000000'

forms=$("$B/kcp-run" --help | sed -n 's/^ *--form //p' | tr '|' ' ')

set_program() {        # NAME: sets $program, and $exe (empty if the program was not built)
    program=${1%%:*} exe=$B/$program more=
    case $1 in
        kcp-run:in) more='--in in --out out' ;;
        kcp_check.py) exe="${python:+$python $top/tests/$program}" ;;
        make) exe="make --no-print-directory -C $top CUDA_HOME=none B=$W/b" ;;
    esac
    case $exe in "$B"/*) [ -x "$exe" ] || exe= ;; esac
    case $program.$python in kcp-run.) exe= ;; esac      # its rows need NumPy
    exe="${exe:+timeout 60 $exe}"
}
run_row() {            # one value: $x
    rm -rf "$W/work"; cp -Rp "$W/kept" "$W/work"; cd "$W/work" || exit 2
    case $arguments in '$x'*) line="$x${arguments#\$x}" ;; *) line=$arguments ;; esac
    # shellcheck disable=SC2086
    (   eval "$before" >/dev/null 2>&1 || exit 99
        eval "exec $exe $more $line" ) >"$W/stdout" 2>"$W/stderr" </dev/null
    got=$? want=$pattern why=
    [ "$pattern" = = ] && want=${line%%[ =]*}
    eval "want=\"$want\""
    if [ $got != "$status" ]; then why="status $got, expected $status"
    elif [ "$status" != 2 ]; then
        cat "$W/stdout" "$W/stderr" | grep -q -e "$want" || why="no '$want' in the output"
        [ "$status" != 0 ] || [ ! -s "$W/stderr" ] || why="output on stderr"
    elif [ "$program" = make ]; then
        grep -q -e "$want" "$W/stderr" || why="no '$want' on stderr"
    elif [ "$(wc -l <"$W/stderr")" != 1 ]; then why="$(wc -l <"$W/stderr") lines on stderr"
    elif ! grep -q -e "^kcp[a-z_.-]*: .*$want" "$W/stderr"; then why="no '$want' in the message"
    elif [ -s "$W/stdout" ]; then why="output: $(head -1 "$W/stdout")"
    elif [ -e out ] && [ ! -e "$W/kept/out" ]; then why="it made a file"
    fi
    rows=$((rows + 1))
    [ -z "$why" ] || { failed=$((failed + 1))
        echo "  FAIL  $program $line${before:+ after $before}${x:+ (x is $x)}: $why:" \
            "$(head -c 300 "$W/stderr")"; }
}
rows=0 failed=0 missing= folder=
mkdir "$W/kept"
tr '\t' '\037' <"$top/tests/cli/cases.tsv" | grep -v '^#' >"$W/rows"
while IFS=$(printf '\037') read -r program status pattern arguments values before; do
    [ "$program" != folder ] || { folder=$before; continue; }
    [ -z "$only" ] || [ "${program%%:*}" = "$only" ] || continue
    set_program "$program"
    [ -n "$exe" ] || { case $missing in *"$program"*) ;; *) missing="$missing $program" ;; esac
        continue; }
    if [ -n "$folder" ]; then
        rm -rf "$W/kept"; mkdir "$W/kept"; cd "$W/kept" || exit 2
        eval "$folder" >/dev/null || { echo "cases.sh: cannot make: $folder"; exit 1; }
        folder=
    fi
    eval "for x in ${values:-''}; do run_row; done"
done <"$W/rows"
echo "cases.sh: $rows command lines, $failed wrong${missing:+; not built:$missing}"
[ $failed = 0 ] && [ $rows -gt 0 ]
