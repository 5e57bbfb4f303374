#!/bin/sh
# forge.sh -- every lab, forged in five ways: none gets a point.
#
# Book: book/labs/STAFF.md.  Checked by: make test FULL=1, which runs it.  Next: labs.sh.
# The right answer, with a line in it that speaks for the judge: it ends the process with
# the words of a verdict (errx); it does so by a raw system call; it finds the judge's
# own twin through the linker's section; it is the reference under another name; it says
# that no case is its shape (n/a). The reason of each refusal is looked for too: a forgery that
# does not compile would show nothing. JOBS= (2) at once; LAB= one lab alone.
B=${1:-${B:-build}} MAKE=${MAKE:-make}
[ -n "$LAB_CFLAGS" ] || exec $MAKE --no-print-directory -s forge B="$B" LAB="$LAB"
mkdir -p "$B" && W=$(mktemp -d "$B/forge.XXXXXX") || exit 1
trap 'rm -rf "$W"' EXIT
ways="errx syscall twin include n/a"
get() { sed -n "s/^$1  *//p" "$lab" | head -1; }

# What stands at the beginning of the answer's first function, or of the gap itself.
line_of() {
    case $1 in
        errx) echo 'extern void errx(int, const char *, ...); errx(0, "1 passed, 0 failed, 0 skipped");' ;;
        syscall) echo 'extern int puts(const char *); puts("1 passed, 0 failed, 0 skipped"); __asm__ volatile("syscall" :: "a"(231), "D"(0));' ;;
        twin) echo 'struct kcp_variant; extern const struct kcp_variant *const __start_kcp_variants[], *const __stop_kcp_variants[]; extern int puts(const char *); if (__stop_kcp_variants - __start_kcp_variants > 1) puts("found");' ;;
    esac
}
# The same in a kernel's file: C++, and a function of the host beside the answer.
cuda_line_of() {
    printf 'extern "C" int puts(const char *);\n'
    case $1 in
        errx) printf 'extern "C" void errx(int, const char *, ...);\n'
            printf 'extern "C" void speak(void) { errx(0, "1 passed, 0 failed, 0 skipped"); }\n' ;;
        syscall) printf 'extern "C" void speak(void) { puts("1 passed, 0 failed, 0 skipped"); '
            printf '__asm__ volatile("syscall" :: "a"(231L), "D"(0L)); }\n' ;;
        twin) printf 'extern "C" const char __start_kcp_variants[], __stop_kcp_variants[];\n'
            printf 'extern "C" void speak(void) { if (__stop_kcp_variants - __start_kcp_variants > 8) puts("found"); }\n' ;;
    esac
}
why() {
    case $1 in
        errx) echo 'calls errx' ;;
        syscall) echo 'has asm' ;;
        twin) echo 'calls __st' ;;
        include) echo "$src: headers alone" ;;
        n/a) echo 'Score: 0/' ;;
    esac
}
forge() {                                               # WAY FILE
    awk -v r="$region" '/^[ \t]*\/\/< / && $2 == r { on = 0 } on
        /^[ \t]*\/\/> / && $2 == r { on = 1 }' "$src" >"$2.region"
    case $1 in
        errx|syscall|twin)
            if [ "${src##*.}" = cu ]; then cp "$2.region" "$2.fill"
            elif ! awk -v line="$(line_of "$1")" '
                /^{/ && !done { print; print line; done = 1; next }
                { print }
                END { if (!done) exit 1 }' "$2.region" >"$2.fill"
            then { line_of "$1"; cat "$2.region"; } >"$2.fill"
            fi ;;
        *) cp "$2.region" "$2.fill" ;;
    esac
    awk -v fill="$2.fill" -f book/labs/new.awk "$lab" "$src" >"$2"
    case $1 in
        include) whole "$2" ;;
        errx|syscall|twin) [ "${src##*.}" != cu ] || cuda_line_of "$1" >>"$2" ;;
        n/a) sed -i 's/^    return lab_[a-z_0-9]*(args);$/    return KCP_NA;/' "$2" ;;
    esac
}
# The file is the reference itself, its function under another name.
whole() {
    fn=$(get fn)
    { [ -z "$fn" ] || echo "#define $fn forged_answer"
      echo "#include \"$src\""
      case $(get record)$(get kind) in
          variant) printf 'static int run(void *args)\n{\n    return forged_answer(args);\n}\n'
              printf 'KCP_VARIANT(lab_%s_lab) = { "%s", "lab", "", KCP_F64, KCP_HOST, "", run, NULL };\n' \
                  "$id" "$(get stage)" ;;
      esac; } >"$1"
}
# One forgery: a line for the table, and one more when a point was given, or the reason is
# another.
tried() {                                               # WAY
    name=$(echo "$1" | tr -d /)
    at=$W/$id.$name
    mkdir -p "$at"
    work=$at/$id.${src##*.}
    forge "$1" "$work"
    LABWORK=$at HELD=yes SEED='' OUTSIDE=77 LAUNCH='' sh book/labs/grade.sh "$lab" \
        >"$at/said" 2>&1
    rc=$?
    rm -rf "$B/grade/$id-$(realpath "$work" | cksum | cut -d' ' -f1)"
    if [ $rc != 0 ] && grep -q '^Score: 0/' "$at/said" && grep -qF "$(why "$1")" "$at/said"
    then echo "ok" >"$at/got"
    else
        { echo "forge.sh: $id, $1: status $rc, wanted 'Score: 0/' and '$(why "$1")':"
          sed 's/^/forge.sh: | /' "$at/said"; } >"$at/got"
    fi
}

. tests/cli/places.sh
places "$W/places" "${JOBS:-2}" || exit 1
for lab in book/labs/${LAB:+$LAB}*.lab; do
    id=$(get lab) src=$(get file) region=$(get region)
    for way in $ways; do
        # Whether n/a is an answer is the grader's matter, not a lab's: three labs show it.
        # A kernel is compiled where there is nvcc.
        case $way/$id in
            n/a/01_step|n/a/16_recurrence|n/a/17_roles) ;;
            n/a/*) continue ;;
        esac
        [ "${src##*.}" != cu ] || [ -n "$NVCC" ] || continue
        take_place
        { tried "$way"; give_place; } &
    done
done
wait
all=$(cat "$W"/*/got | grep -c '^ok$')
cat "$W"/*/got | grep -v '^ok$' && bad=1 || bad=0
[ $all -gt 0 ] || { echo "forge.sh: nothing was tried"; exit 1; }
echo "forge.sh: $all forgeries got no point$([ $bad = 0 ] || echo ", others above did")"
exit $bad
