# rows.sh -- functions that judge a row (a test) of a lab; grade.sh sources this file.
# Book: staff.md.
# A student's file becomes dir/lab.so, which the judge loads into a separate process. The
# verdict is the judge's exit status, whatever the student's process prints.
# `built` is `yes`, `no` (compiler or linker error), or the reason why no row is judged.

# Prints the required functions that the student's file lacks. Without this test, a file
# that lacks a function would link with the library's function and pass.
missing() {
    for name in $(get defines); do
        nm "$1" | awk -v name="$name" '$NF == name && $2 ~ /^[TRDB]$/ { found = 1 }
            END { exit !found }' || printf '%s ' "$name"
    done
}
make_it() {
    # shellcheck disable=SC2086
    $MAKE --no-print-directory -s B="$J" LABDIR="$dir" LABKIND="$kind" $HOST "$1" \
        >"$dir/build" 2>&1
}
compile() {                           # output file, option...
    to=$1; shift
    # shellcheck disable=SC2086
    if [ "$kind" = patch ] && [ $ext = cu ]; then
        cp -r "${src%/*}" "$dir/with" && cp "$work" "$dir/with/${src##*/}" &&
            timeout 600 $NVCC $LAB_NVFLAGS "$@" "$dir/with/$(get unit)" -o "$to"
    elif [ $ext = cu ]
    then timeout 300 $NVCC $LAB_NVFLAGS -I"${src%/*}" "$@" "$work" -o "$to"
    else timeout 60 $CC $LAB_CFLAGS -I"${src%/*}" "$@" "$work" -o "$to"
    fi
}
# Links NAME.so, from which the judge loads a variant (`lab`, or one that a row names) or, in
# labs of kind check, exchange and plan, a function. A frame is a file of this repository
# that calls the student's code. Labs of kind patch and train need no NAME.so, because
# their code is linked into whole programs.
share() {                             # name
    case $kind in patch|train) return 0 ;; esac
    name=lab_${id}_$1
    case $kind in
        check) name=lab_check ;;
        exchange) name=kcp_exchange_run ;;
        plan) name=kcp_plan_owned ;;
    esac
    if [ "${name%_"$1"}" = $name ]
    then echo "void $name(void);
        __attribute__((visibility(\"default\"))) void (*const lab_function)(void) = $name;"
    else echo "struct kcp_variant; extern const struct kcp_variant $name;
        __attribute__((visibility(\"default\")))
        const struct kcp_variant *const kcp_variant = &$name;"
    fi >"$dir/$1.stub.c"
    frame=$(get frame) libs="-Wl,-u,comm_moves $J/libkcp-lab.a -lm"
    # shellcheck disable=SC2086
    [ -z "$frame" ] || $CC $LAB_CFLAGS -c "$frame" -o "$dir/frame.o" || return 1
    frame=${frame:+$dir/frame.o}
    [ $ext = c ] ||
        libs="$libs -L$LAB_CUDA/lib64 -Wl,-rpath,$LAB_CUDA/lib64 -lcudart -lstdc++"
    # shellcheck disable=SC2086
    $CC -fPIC -shared -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -Wl,-z,defs -w \
        "$dir/$1.stub.c" "$dir/lab.$o" $frame $libs -lpthread -ldl -o "$dir/$1.so" \
        >>"$dir/build" 2>&1
}
share_all() {
    for named in lab $(sed -n 's/^score .*--variant \([a-z0-9_]*\).*/\1/p' "$dir/rows"); do
        [ -e "$dir/$named.so" ] || share "$named" || return 1
    done
}
held_to() {                           # builds the judge and the library unless HELD is set
    [ -z "$HELD" ] || return 0
    [ -e "$J/kcp-check" ] ||
        echo "   (compiling the judge; only the first time)"
    # shellcheck disable=SC2086
    flock "$B/grade.lock" $MAKE --no-print-directory -s -j"$(nproc)" B="$J" $HOST \
        lab-judge >"$dir/build" 2>&1 && return
    echo "   the judge does not compile:"
    tail -3 "$dir/build"
    exit 2
}
build() {
    built=no
    if [ $ext = cu ] && [ -z "$NVCC" ]; then built="not compiled: no nvcc"; return; fi
    if ! compile "$dir/lab.$o" -c >"$dir/build" 2>&1; then
        echo "   $work does not compile:"
        grep -A 2 'error' "$dir/build" | sed 's/^/   /; 12q'
        return
    fi
    lacks=$(missing "$dir/lab.$o")
    if [ -n "$lacks" ]; then
        echo "   $work has no ${lacks% }, which the lab requires"
    elif [ $ext = c ] && readelf -SW "$dir/lab.$o" | grep -q 'init_array\|\.ctors'; then
        echo "   $work has a function that runs before main, which could print a verdict"
    elif theirs=$(nm -u "$dir/lab.$o" | sed -n 's/^ *U \(\(kcp_\)\{0,1\}ref_.*\)/\1/p' | grep .); then
        echo "   $work uses $(echo $theirs), with which the judge compares"
    elif ! share_all; then
        echo "   $work does not link:"
        grep "$id\|undefined\|multiple" "$dir/build" | sed 's/^/   /; 6q'
    else built=yes; fi
}

# edited NAME EDIT: builds NAME.so from the reference, with a sed edit of one region.
edited() {
    from=$(get plants)
    # shellcheck disable=SC2086
    set -- "$1" "$2" ${from:-$src $(get region) $(get fn)}
    sed "s/^fn .*/fn $5/; s/^region .*/region $4/; s/^kind .*/kind variant/" "$lab" \
        >"$dir/$1.lab"
    echo "$2" >"$dir/$1.sed"
    for edit in /dev/null "$dir/$1.sed"; do
        mv "$dir/$1.c" "$dir/$1.same" 2>/dev/null
        awk -v so="$1" -v edit="$edit" -f book/labs/new.awk "$dir/$1.lab" "$3" >"$dir/$1.c"
    done
    if cmp -s "$dir/$1.same" "$dir/$1.c"; then
        echo "grade: $staff: '$2' changes nothing in region $4 of $3" >&2; exit 2
    fi
    $CC -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -ffp-contract=off -fPIC -shared -w \
        -Iref "$dir/$1.c" -Wl,--exclude-libs,ALL -Wl,-u,comm_moves "$J/libkcp-lab.a" -lm -lpthread -ldl \
        -o "$dir/$1.so" || { echo "grade: $staff: '$2'" >&2; exit 2; }
}

# Prints a failure: all lines of the first failing test, one line of each later test.
tell() {
    program=$J/kcp-check
    case $kind in exchange|plan) program=$J/kcp-lab-check ;; esac
    awk -v whole=${whole:-1} -v p="$program" -v so="$so" '
        /^  FAIL / && n++ { exit }
        /^(  FAIL |the (check|process) )/ { on = 1 }
        on && /^(  FAIL |        |    (rank|chunks) |the (check|process) )/ {
            sub(/^ *(FAIL )? */, "")
            sub(/--variant [^ ]+/, "--variant " so)
            sub(/alone: [^ ]+ /, "alone: " p " ")
            print "   " $0
            if (!whole) exit
        }' "$out"
    whole=0
}
# Finds a known mistake: compares the student's results of the failed case with the results
# of each wrong answer in the lab file. If results are equal, prints that answer's hint.
hint() {
    [ -z "$hinted" ] && [ "$kind" = variant ] && [ -z "$twist" ] && [ -z "$(get ranks)" ] ||
        return 0
    words=$(sed -n "s/.*alone: .*--case '\(.*\)'.*/\1/p" "$out" | head -1)
    [ -n "$words" ] || return 0
    hinted=yes k=0
    sed -n 's/^wrong *//p' "$lab" >"$dir/mistakes"
    while read -r mistake; do
        k=$((k + 1)) says=$(sed -n 's/^hint *//p' "$lab" | sed -n ${k}p)
        case $says in ''|-) continue ;; esac
        edited "like$k" "$mistake"
        if timeout 120 "$J/kcp-check" --stage "${stage%%_*}" --reference "$(here "$dir/like$k.so")" \
                --variant "$so" --case "$words" </dev/null >"$dir/like$k.out" 2>&1; then
            echo "   hint: on that case yours behaves like one that $says: reread $(get book)"
            return 0
        fi
    done <"$dir/mistakes"
}
# Repeats the run with sanitizers in the judge's process, and prints the line of the student's
# file that failed. If the first run was stopped ($stood is set), `timeout` sends only
# one signal (--foreground), because a second signal could interrupt the report.
line_of() {
    [ $ext = c ] && [ -z "$shown" ] || return 0
    compile "$dir/lab.asan.o" -c -fsanitize=address,undefined -fno-sanitize-recover=all \
        -O0 >"$dir/build" 2>&1 && make_it "$dir/asan" || return 0
    shown=yes stood=$1 limit=300
    shift
    [ -z "$stood" ] || limit="--foreground -s SEGV $((${LIMIT:-10} + 5))"
    # shellcheck disable=SC2086
    ASAN_OPTIONS=detect_leaks=0:protect_shadow_gap=0:handle_abort=1 \
        UBSAN_OPTIONS=print_stacktrace=1 sh -c "$small" \
        timeout -k 60 $limit "$dir/asan" "$@" >"$out.asan" 2>&1
    at=$(grep -o "$work:[0-9]*" "$out.asan" | head -1)
    what=$(sed -n 's/.*runtime error: //p
                   s/.*AddressSanitizer: \([a-zA-Z-]*\).*/\1/p' "$out.asan" | head -1)
    [ -n "$at" ] || return 0
    echo "   $at: ${stood:-$what}: $(sed -n "${at##*:}s/^ *//p" "$work")"
}

# judge TITLE POINTS option...: judges the student's object $so and adds the result. The
# output is limited to 16 MiB, so that endless output does not fill the disk.
small='ulimit -f 32768; exec "$0" "$@"'
# In a lab on the host, a process may use 4 GiB of private memory. The judge sets this
# limit for variants; `limited` sets it for checks, exchanges, plans and launched ranks.
# (GPU labs have no such limit: use a cgroup or a container, see staff.md.)
limited="ulimit -d 4194304; $small"
stuck='the program was at this line when it was stopped'
last() { tail -1 "$out" | grep . || echo "it ended without a verdict"; }
judge() {
    title=$1 points=$2
    shift 2
    case $kind in
        check) set -- "$J/kcp-lab-check" "$so" "$stage" "$@" ;;
        exchange) set -- "$J/kcp-lab-check" "$form" "$so" "$@" ;;
        plan) set -- "$J/kcp-lab-check" plan "$so" "$@" ;;
        patch) set -- "$dir/check" "$@" ;;
        *) set -- "$J/kcp-check" --stage "${stage%%_*}" --variant "$so" "$@" ;;
    esac
    limits=$small launch=$LAUNCH         # a launcher starts ranks as processes
    case $kind in check|exchange|plan) launch= ;; esac
    case $kind.$ext in check.c | exchange.c | plan.c) limits=$limited ;; esac
    [ -z "$LAUNCH" ] || [ $ext = cu ] || limits=$limited
    most=120                             # a whole program judges the long list, on a GPU
    [ "$kind" != patch ] || most=600
    # shellcheck disable=SC2086
    sh -c "$limits" timeout -k 5 ${LIMIT:-$most} $launch "$@" >"$out" 2>&1
    rc=$?
    case $kind in
        check) shift 2; set -- - "$@" ;;
        exchange) shift 3; set -- "$form" - "$@" ;;
        plan) shift 3; set -- plan - "$@" ;;
        patch) ;;
        *) shift 5; set -- --here --stage "${stage%%_*}" --variant "$record" "$@" ;;
    esac
    case $rc in
        0) if [ "$kind" != patch ] || grep -q '^[1-9][0-9]* passed, 0 failed' "$out"
           then add "$title" "$points" ok
           else add "$title" "$points" failed "it ended without a verdict"; fi ;;
        1) if last | grep -q '^0 passed, 0 failed, [1-9]'; then
               if [ $ext = c ] && [ "$kind" != patch ]; then
                   add "$title" "$points" failed "every case is n/a, which gets no points"
               else                                     # no GPU
                   add "$title" "$points" "not run" "compiled, not run: no GPU"
               fi
               return
           fi
           add "$title" "$points" failed; tell; hint
           if grep -q 'no verdict within\|does not end\|went by' "$out"; then
               line_of "$stuck" "$@"
           elif grep -q 'wrote \(past\|before\|into\)\|killed by signal' "$out"; then
               line_of "" "$@"
           fi ;;
        2) add "$title" "$points" failed "$(last)" ;;
        124) add "$title" "$points" "too slow" "no answer in ${LIMIT:-$most} s"
             line_of "$stuck" "$@" ;;
        153) add "$title" "$points" failed "it prints without end" ;;
        *) add "$title" "$points" crashed "signal $((rc > 128 ? rc - 128 : rc))"
           line_of "" "$@" ;;
    esac
}

# speed TITLE POINTS NAME RATIO [option...]: compares the times of variants `lab` and NAME
# in one run. NAME `best` is KCP's fastest variant. With NAME `form`, compares the student's
# exchange algorithm to KCP's fastest exchange algorithm.
speed() {
    title=$1 points=$2 name=$3 ratio=$4 gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
    shift 4
    # A wrong kernel gets no points for speed.
    if [ -n "$lost" ]; then
        add "$title" "$points" failed "not timed: its numbers are wrong"
        return
    fi
    case $name in
        form) mine=$form least=2; set -- --ranks "$gpus" "$@" ;;
        *) mine=lab least=1; set -- --stage "${stage%%_*}" "$@" ;;
    esac
    [ "$gpus" -ge $least ] || { no_gpus $least; return; }
    on_gpus
    make_it "$dir/bench"
    timeout ${LIMIT:-300} "$dir/bench" "$@" >"$out" 2>"$out.err"
    rc=$?
    # kcp-bench's columns: stage, pass (if any), variant, time; over ranks: stage, variant, form, time.
    said=$(awk -v than="$name" -v mine="$mine" -v ratio="$ratio" '
        $1 !~ /^[0-9][0-9]_/ { next }
        than == "form" || $2 == "forward" || $2 == "backward" { $2 = $3; $3 = $4 }
        $3 + 0 <= 0 { next }
        $2 == mine { if (!yours || $3 < yours) yours = $3; next }
        (than == "form" || than == "best" || $2 == than) && (!best || $3 < best) {
            best = $3; name = $2 }
        END { if (yours && best) printf("%s yours %.1f us, %s %.1f us",
                  best >= ratio * yours ? "ok" : "slower", yours, name, best) }' "$out")
    if [ $rc != 0 ] || [ -z "$said" ]
    then add "$title" "$points" failed "status $rc of kcp-bench"
    else add "$title" "$points" "${said%% *}" "${said#* }"; fi
}
on_gpus() {                           # from here on the judge has the kernels
    [ "$J" != "$B" ] || return 0
    J=$B HOST=
    rm -f "$dir/check"                # linked without the kernels
    flock "$B/grade.lock" $MAKE --no-print-directory -s -j"$(nproc)" B="$B" lab-judge \
        >"$dir/build" 2>&1
}
no_gpus() {                           # LEAST: there are fewer GPUs than LEAST
    if [ "$1" = 1 ]; then add "$title" "$points" "not run" "compiled, not run: no GPU"
    else add "$title" "$points" "not run" "$gpus GPUs, expected $1 or more"; fi
}

# emulated TEST: runs the producer warps of lab step 18_producer on the CPU.
emulated() {
    if ! command -v "${CXX:-g++}" >/dev/null; then
        add "$title" "$points" "not run" "no C++ compiler"; return
    fi
    [ -x "$dir/producer" ] || timeout 120 "${CXX:-g++}" -std=c++17 -O1 -g -w -I. -Iref \
        -DSTUDENT="\"$(realpath "$work")\"" book/labs/producer.cpp -o "$dir/producer" \
        >"$dir/build" 2>&1 || {
        add "$title" "$points" "no build"
        grep error "$dir/build" | sed 's/^/   /; 6q'; lost=yes; return; }
    # A student's function that ends the process does not know this number.
    secret=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
    sh -c "$limited" timeout -k 5 ${LIMIT:-60} "$dir/producer" "$1" "$secret" >"$out" 2>&1
    rc=$?
    case $rc in
        0) if grep -q "^verdict $secret: 0 failed" "$out"
           then add "$title" "$points" ok; return; fi
           add "$title" "$points" failed "it ended without a verdict" ;;
        1) add "$title" "$points" failed; sed -n 's/^  FAIL  /   /p' "$out" ;;
        124) add "$title" "$points" "too slow" "no answer in ${LIMIT:-60} s" ;;
        *) add "$title" "$points" crashed "signal $((rc > 128 ? rc - 128 : rc))" ;;
    esac
    lost=yes
}

# linked VARIANT|- option...: runs a judge that is linked with the student's object. Over
# NCCL each GPU is a rank; on one GPU, two processes share it, if a launcher is found.
linked() {
    gpus=$(nvidia-smi -L 2>/dev/null | wc -l) variant=$1 judged=$kind launched=$LAUNCH
    shift
    case " $* " in
        *" nccl "*)
            [ "$gpus" -gt 0 ] || { no_gpus 2; return; }
            on_gpus
            if [ "$gpus" -gt 1 ]; then set -- "$@" --ranks "$gpus"
            elif ldd "$B/kcp-check" | grep -q libmpi; then
                LAUNCH="sh tests/share_gpu.sh 2" title="$title (two ranks on one GPU)"
                shift 3; set -- --device "$@"
            else no_gpus 2; return; fi ;;
        *" --device "*) [ "$gpus" -gt 0 ] || { no_gpus 1; return; } ;;
    esac
    [ "$variant" = - ] || set -- "$@" --variant "$variant"
    if [ -n "$lost" ]; then add "$title" "$points" failed "a row above failed"
    elif make_it "$dir/check"; then kind=patch; judge "$title" "$points" "$@"; kind=$judged
    else add "$title" "$points" "no build" "$(tail -1 "$dir/build")"
    fi
    LAUNCH=$launched
}

# Compares the student's line "// bound:" (what limits the kernel) with recorded counters.
bound() {
    right=$(awk -F '\t' -v name="$(get counters)" '
        FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        $1 != "counter" || $at["variant"] != name || $at["stage"] != "17_ladder" { next }
        { w = $at["stalled"]
          if ($at["dram"] >= 75) w = "memory"
          else if ($at["tensor"] >= 75) w = "tensor"
          else if ($at["issue"] >= 60) w = "issue"
          else if (w ~ /^long/) w = "global"
          else if (w ~ /^short/) w = "shared"
          else sub(/ .*/, "", w) }
        END { print w }' bench/results/*-1gpu.tsv)
    mine=$(sed -n 's,^// bound: *\([a-z?]*\).*,\1,p' "$work" | head -1)
    if [ "$mine" = "$right" ]; then add "$title" "$points" ok
    else
        add "$title" "$points" failed "// bound: ${mine:-?}: the counters show another"
        built="no bound"
    fi
}

# train STEPS LIMIT (lab 8): compares the losses of the student's program on four ranks
# with the losses of the library's program on one rank.
train() {
    [ -z "$lost" ] || { add "$title" "$points" failed "a row above failed"; return; }
    make_it "$dir/text"
    make_it "$J/kcp-text"
    ours=$B/grade/losses.$1.$(cat README.md book/*.md | cksum | cut -d' ' -f1)
    [ "$ours" -nt "$J/kcp-text" ] || "$J/kcp-text" --ranks 1 --steps "$1" >"$ours" 2>&1
    # shellcheck disable=SC2086
    sh -c "$limited" timeout -k 5 ${LIMIT:-600} "$dir/text" --ranks 4 --steps "$1" \
        >"$out" 2>&1
    said=$(awk -v limit="$2" '/^  R = / { sub(/^ *R = [0-9]+ */, ""); line[n++] = $0 }
        /^  The curves/ { far += !($6 <= limit) }
        END { print n == 4 && !far && line[0] == line[2] ? "same" : "other" }' "$out" "$ours")
    if [ "$said" = same ]; then add "$title" "$points" ok
    else
        add "$title" "$points" failed "the losses differ from those of one rank"
        grep 'R = \|curves\|kcp-text:\|FAIL' "$out" | sed 's/^ */   /' | head -5
        lost=yes
    fi
}
# Computes the speedup of a training step from one rank to four, with one core per rank.
speed_up() {
    cores=$(nproc)
    if [ -n "$lost" ]; then add "$title" "$points" failed "not timed: the losses differ"
    elif [ "$cores" -lt 4 ]; then add "$title" "$points" "not run" "$cores cores, expected 4"
    else
        said=$(sed -n 's/^  ms per step: \([0-9.]*\) on [0-9]* ranks*, \([0-9.]*\) on one.*/\1 \2/p' \
            "$dir/out.1" | head -1 | awk -v ratio="$1" '{ x = $2 / $1
            printf("%s %.2f times as fast on four ranks", x >= ratio ? "ok" : "slower", x) }')
        add "$title" "$points" "${said%% *}" "${said#* }"
    fi
}

# Prints a path that contains a slash, as dlopen needs.
here() { case $1 in /*) echo "$1" ;; *) echo "./$1" ;; esac; }

# row TITLE POINTS HOW: judges one row.
row() {
    title=$1 points=$2 how=$3
    [ "${how# *}" != bound ] || { bound; return; }
    case $how in *emulated*) emulated "${how##* }"; return ;; esac
    case $built in
        yes) ;;
        no) add "$title" "$points" "no build"; return ;;
        "no bound") add "$title" "$points" "no bound" "name it first"; return ;;
        *) add "$title" "$points" "not run" "$built"; return ;;
    esac
    record=$(echo "$how" | sed -n 's/.*--variant \([a-z0-9_]*\).*/\1/p')
    record=${record:-lab} so=$(here "$dir/${record:-lab}.so")
    eval "set -- $(echo "$how" | sed 's/--variant [a-z0-9_]*//')"
    case $kind/$1 in
        check/plant) edited mutant_planted "$2"
                     judge "$title" "$points" "$(here "$dir/mutant_planted.so")" ;;
        */train) train "$2" "$3" ;;
        */speedup) speed_up "$2" ;;
        */linked) shift; linked "$@"
                  case $last in ok | "not run") ;; *) lost=yes ;; esac ;;
        */compile) add "$title" "$points" ok ;;
        */speed) shift; speed "$title" "$points" "$@" ;;
        check/*|exchange/*|plan/*) judge "$title" "$points" "$1"
                                   [ "$last" = ok ] || lost=yes ;;
        *) seed=$(echo "$how" | sed -n 's/.*--seed \([0-9]*\).*/\1/p')
           [ -z "$seed" ] || set -- "$@" --seed $((seed + ${SEED:-0}))
           [ -z "$twist" ] || set -- --reference "$(here "$dir/twist.so")" "$@"
           judge "$title" "$points" "$@"
           case $last in ok | "not run") ;; *) lost=yes ;; esac ;;
    esac
}
