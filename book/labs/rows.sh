# rows.sh -- the ways to judge a row; grade.sh reads this with its variables.
#
# Book: labs/STAFF.md.  Checked by: try.sh, tests/cli/labs.sh.  Next: check_main.c.
# built is yes, or no, or why nothing was compiled here.

make_it() {
    $MAKE --no-print-directory -s B="$B" LABWORK="$W" "$1" >"$tmp/$id.build" 2>&1
}

# What would be called only for the judge's own answer, or to find it at run time; and
# what would end the judge, speak in its place, or leave processes behind it.
forbidden='^(ref_|kcp_stages$|kcp_variants$|dl(v?sym|m?open)$|_Z[0-9]+v[0-9B]_)'
ending='^(_?exit|_Exit|quick_exit|v?fork|_Fork|clone|exec[lv][pe]*|fexecve|popen|'
ending="${ending}system|posix_spawnp?|kill|killpg|signal|sigaction|syscall|prctl)$"
calls() {
    nm -u "$B/grade/$id.$o" | awk -v no="$1" '$NF ~ no { printf "%s ", $NF }'
}
build() {
    built=no
    rm -f "$program" "$program-asan" "$B/kcp-grade-bench-$id"
    if [ $ext = cu ] && [ -z "$NVCC" ]; then built="not compiled: no nvcc"; return; fi
    [ -e "$B/tests/judge/main.o" ] ||
        echo "   (compiling what it is held to: minutes, the first time)"
    make_it "$B/tests/judge/main.o"
    if ! make_it "$B/grade/$id.$o"; then
        echo "   $work does not compile:"
        grep -v '^make' "$tmp/$id.build" | grep -m 4 -A 3 'error' | sed 's/^/   /' ||
            tail -3 "$tmp/$id.build"
        return
    fi
    called=$(calls "$forbidden") ended=$(calls "$ending")
    if [ -n "$called" ]; then
        echo "   $work calls ${called% }: the reference is not yours to call"
    elif [ -n "$ended" ]; then
        echo "   $work calls ${ended% }: the judge's process is not yours to end"
    elif ! make_it "$program"; then
        echo "   $work does not link:"
        grep -v '^make' "$tmp/$id.build" | grep "$id\|undefined\|multiple" |
            sed 's/^/   /; 6q'
    else built=yes; fi
}

# Another recurrence, or a planted mistake: the reference with the edit done to its
# region, as a shared object. edited NAME EDIT
edited() {
    from=$(get plants); from=${from:-$src $(get region) $(get fn)}
    # shellcheck disable=SC2086
    set -- "$1" "$2" $from
    sed "s/^fn .*/fn $5/; s/^region .*/region $4/; s/^kind .*/kind variant/" "$lab" \
        >"$tmp/$1.lab"
    region "$4" "$3" >"$tmp/$1.region"
    sed -e "$2" "$tmp/$1.region" >"$tmp/$1.fill"
    if cmp -s "$tmp/$1.region" "$tmp/$1.fill"; then
        echo "grade: $staff: '$2' changes nothing in region $4 of $3" >&2; exit 2
    fi
    awk -v so="$1" -v fill="$tmp/$1.fill" -f book/labs/new.awk "$tmp/$1.lab" "$3" \
        >"$tmp/$1.c"
    $CC -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -ffp-contract=off -fPIC -shared -w \
        -Iref "$tmp/$1.c" -o "$tmp/$1.so" || { echo "grade: $staff: '$2'" >&2; exit 2; }
}
region() {                                              # NAME FILE
    awk -v r="$1" '/^[ \t]*\/\/< / && $2 == r { on = 0 } on
                   /^[ \t]*\/\/> / && $2 == r { on = 1 }' "$2"
}

# What a failure says: the first one whole, of later tests a line each.
tell() {
    awk -v whole=${whole:-1} -v p="$program" '
        /^  FAIL / && n++ { exit }
        /^(  FAIL |the check)/ { on = 1 }
        on && /^(  FAIL |        |    (rank|chunks) |the check)/ {
            sub(/^ *(FAIL )? */, "")
            sub(/alone: /, "alone: " p " ")
            print "   " $0
            if (!whole) exit
        }' "$out"
    whole=0
}
# The line of the student's file at which it broke: the same run again, under the
# sanitizers. stood: it was stopped because it did not end, by one signal: timeout would
# send another to its group, and that one may be caught inside the first one's report.
line_of() {
    [ $ext = c ] && [ -z "$shown" ] && make_it "$program-asan" || return 0
    shown=yes stood=$1 limit=60
    shift
    [ -z "$stood" ] || limit="--foreground -s SEGV $((${LIMIT:-10} + 5))"
    # shellcheck disable=SC2086
    ASAN_OPTIONS=detect_leaks=0:protect_shadow_gap=0:handle_abort=1 \
        UBSAN_OPTIONS=print_stacktrace=1 sh -c "$small" \
        timeout -k 5 $limit "$program-asan" "$@" >"$out.asan" 2>&1
    at=$(grep -o "$work:[0-9]*" "$out.asan" | head -1)
    what=$(sed -n 's/.*runtime error: //p
                   s/.*AddressSanitizer: \([a-zA-Z-]*\).*/\1/p' "$out.asan" | head -1)
    [ -n "$at" ] || return 0
    echo "   $at: ${stood:-$what}: $(sed -n "${at##*:}s/^ *//p" "$work")"
}

# judge TITLE POINTS option...: run the program, say what came of it. One that prints
# without end is stopped at 16 MiB, before it fills the disk.
small='ulimit -f 32768; exec "$0" "$@"'
last() { tail -1 "$out" | grep . || echo "it ended without a verdict"; }
judge() {
    title=$1 points=$2
    shift 2
    # shellcheck disable=SC2086
    sh -c "$small" timeout -k 5 ${LIMIT:-120} $LAUNCH "$program" "$@" >"$out" 2>&1
    rc=$?
    case $rc in
        0) if grep -q 'passed, 0 failed' "$out" && ! grep -q '^0 passed' "$out"
           then add "$title" "$points" ok
           else add "$title" "$points" failed "$(last)"; fi ;;
        1) if last | grep -q '^0 passed, 0 failed, [1-9]'; then    # none here to run on
               add "$title" "$points" "not run" "compiled, not run: no GPU"
               return
           fi
           add "$title" "$points" failed "$([ -s "$out" ] || last)"; tell
           ! grep -q 'wrote \(past\|before\|into\)' "$out" || line_of "" "$@" ;;
        2) add "$title" "$points" failed "$(last)" ;;
        124) add "$title" "$points" "too slow" "no answer in ${LIMIT:-120} s"
             line_of "it was here when it was stopped" "$@" ;;
        153) add "$title" "$points" failed "it prints without end" ;;
        *) add "$title" "$points" crashed "signal $((rc > 128 ? rc - 128 : rc))"
           line_of "" "$@" ;;
    esac
}

# The seconds of two variants in one run of kcp-bench. speed NAME RATIO [option...]
speed() {
    title=$1 points=$2 name=$3 ratio=$4
    shift 4
    make_it "$B/kcp-grade-bench-$id"
    timeout ${LIMIT:-120} "$B/kcp-grade-bench-$id" --stage "${stage%%_*}" "$@" \
        >"$out" 2>&1
    if grep -q 'no GPU here' "$out"; then
        add "$title" "$points" "not run" "compiled, not run: no GPU"
        return
    fi
    said=$(awk -v than="$name" -v ratio="$ratio" '
        $1 !~ /^[0-9][0-9]_/ { next }
        $2 == "forward" || $2 == "backward" { $2 = $3; $3 = $4 }
        $2 == "lab" { mine = $3; next }
        $3 + 0 > 0 && (than == "best" || $2 == than) && (!best || $3 < best) {
            best = $3; name = $2 }
        END { if (mine > 0 && best > 0) printf("%s yours %.1f us, %s %.1f us",
                  (best >= ratio * mine) ? "ok" : "slower", mine, name, best) }' "$out")
    if [ -z "$said" ]; then add "$title" "$points" failed "$(tail -1 "$out")"
    else add "$title" "$points" "${said%% *}" "${said#* }"; fi
}

# row TITLE POINTS HOW
row() {
    title=$1 points=$2 how=$3
    case $built in
        yes) ;;
        no) add "$title" "$points" "no build"; return ;;
        *) add "$title" "$points" "not run" "$built"; return ;;
    esac
    eval "set -- $how"
    case $kind/$1 in
        check/plant) edited mutant_planted "$2"
                     judge "$title" "$points" "./$tmp/mutant_planted.so" ;;
        check/*) judge "$title" "$points" "$1" ;;
        */compile) add "$title" "$points" ok ;;
        */speed) shift; speed "$title" "$points" "$@" ;;
        *) seed=$(echo "$how" | sed -n 's/.*--seed \([0-9]*\).*/\1/p')
           [ -z "$seed" ] || set -- "$@" --seed $((seed + ${SEED:-0}))
           [ -z "$twist" ] || set -- --reference "./$tmp/twist.so" "$@"
           # In the judge's own process: where it breaks is where the student's code did.
           judge "$title" "$points" --here --stage "${stage%%_*}" --variant lab "$@" ;;
    esac
}
