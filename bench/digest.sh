#!/bin/sh
# digest.sh -- a number for what a variant runs on a GPU: other only if that is other.
#
# Book: chapter 18.  Checked by: tests/cli/digest.sh.  Next: digest/main.c.
#
#   sh bench/digest.sh 04_chunk v2_warp [BUILD]   its digest, or - (see below)
#   sh bench/digest.sh --all [BUILD]              stage, variant, nvcc, digest, as TSV;
#                                                 also: recorded digests that hold it
#   sh bench/digest.sh --sets [BUILD]             the same; functions: of what it is;
#                                                 record.sh keeps these
#   sh bench/digest.sh --functions [BUILD]        every GPU function of every object
#   sh bench/digest.sh --compare A B              two folders of builds; 1: some differ
#   sh bench/digest.sh --added A B                functions of B that A has not; 1: some
#
# A digest is over the machine code of the GPU functions in the variant's object and in
# those that its host code calls. No name, no comment and no line is in it: after a
# rename --compare says "same" of every variant; "fewer": all are functions of A, but B
# can launch less of them, as when a fallback went. --all has besides a row `comm`, of
# the host code of the exchange, which records over ranks name too, and a row a path, of
# its line in the table of paths: which kernel is taken when, with what geometry.
# bench/results/functions.tsv keeps what recorded digests were made of (FUNCTIONS: any
# other such file): a variant that can launch less than when it was recorded, and nothing new,
# is as it was.
# --added looks at functions wherever they lie: for files that were split, and for a B
# of which some objects are built only.
# A digest is comparable with one of the same compiler alone. It is - where an object is
# not there, or older than its sources (--compare takes builds as they are). Nothing is
# compiled here but the program that reads the objects: BUILD has them, or has not.
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C
tool=build/kcp-digest
for f in bench/digest/* ref/core/version.c; do
    [ "$tool" -nt "$f" ] && continue
    mkdir -p build
    ${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -Wall -Wextra -Werror -Iref -I. \
        bench/digest/*.c ref/core/version.c -o "$tool.$$" && mv "$tool.$$" "$tool" ||
        exit 1
    break
done
# What moves maps between GPUs; until November 2026 it lay in comm/ itself.
exchange="comm/form/*.o comm/backend/nccl*.o comm/all_gather.o comm/chain.o \
          comm/exchange.o comm/pipeline.o comm/scan.o comm/nccl*.o"
rows() {                        # build, the objects' pattern, options...
    b=$1 pattern=$2 fresh="" old=""; shift 2
    # shellcheck disable=SC2086
    for o in $(cd "$b" 2>/dev/null && ls -d $pattern 2>/dev/null); do
        if [ -n "$checked" ] && newer "$b/$o"; then old="$old $b/$o"
        else fresh="$fresh $b/$o"; fi
    done
    # shellcheck disable=SC2086
    if [ -n "$fresh$old" ]; then "$tool" "$@" $fresh --old $old
    elif [ "$1" != --host ]; then printf 'stage\tvariant\tnvcc\tdigest\n'; fi
}
all() {                         # build, more options...
    b=$1; shift
    rows "$b" 'cuda/*/*.cu.o cuda/*/*/*.cu.o' "$@"
}
besides() {                     # build
    rows "$1" "$exchange" --host
    [ ! -r "$paths" ] || paths_of "$paths"
}
# Each row of the table of paths; a condition's macros count as what they stand for.
paths=ref/core/paths.def
paths_of() {
    ${CC:-cc} -x c -E -P "$1" >"$tool.$$" && "$tool" --paths "$tool.$$"
    rm -f "$tool.$$"
}
# The kernels' rows, an empty line, the others.
sets() { all "$1" --sets; echo; besides "$1"; }
# Is a source of this object newer than the object? Its list is nvcc's own (-MMD).
newer() {
    d=${1%.o}.d
    [ -r "$d" ] || return 1
    # shellcheck disable=SC2046
    find $(tr ' :' '\n' <"$d" | grep -E '^(\./)?(cuda|ref|comm|tests)/' | sort -u) \
        -newer "$1" 2>&1 | grep -q .
}
built() {
    for b in "$@"; do
        ls "$b"/cuda/*/*.cu.o >/dev/null 2>&1 && continue
        echo "digest.sh: $b: found no objects of kernels, expected a build" >&2; exit 2
    done
}
case $1 in
--sets)
    checked=1
    sets "${2:-build}" | awk -F '\t' '
        NF < 4 { second = 1; next }
        second { if (n > 1 && $1 != "stage") print $1, $2, $3, $4, ""; next }
        { n++; print }' OFS='\t' ;;
--all)
    checked=1
    sets "${2:-build}" |
        awk -F '\t' -v kept="${FUNCTIONS:-bench/results/functions.tsv}" '
        function within(a, b,   f, i, m, had) {
            m = split(b, f, " ")
            for (i = 1; i <= m; i++) had[f[i]] = 1
            m = split(a, f, " ")
            for (i = 1; i <= m; i++) if (!(f[i] in had)) return 0
            return m > 0
        }
        BEGIN {
            OFS = FS
            while ((getline line < kept) > 0) {
                split(line, c, FS)
                if (!n++) { for (i = 1; i in c; i++) at[c[i]] = i; continue }
                by[n] = c[at["nvcc"]]; digest[n] = c[at["digest"]]
                made_of[n] = c[at["functions"]]
            }
            print "stage", "variant", "nvcc", "digest", "also"
        }
        NF < 4 || $1 == "stage" { next }
        {
            also = ""
            for (i = 2; i <= n && $4 != "-"; i++)
                if (by[i] == $3 && digest[i] != $4 && within($5, made_of[i]))
                    also = also (also == "" ? "" : " ") digest[i]
            print $1, $2, $3, $4, also
        }' ;;
--functions) all "${2:-build}" --functions ;;
--added)
    built "$2" "$3"
    { all "$2" --functions; all "$3" --functions | sed 's/^/then /'; } | awk -F '\t' '
        $1 ~ /^(then )?object$/ { next }
        !sub(/^then /, "") { have[$3] = 1; next }
        { n++ }
        !($3 in have) { print; bad++ }
        END { printf "digest.sh: %d functions: %d not there before\n", n, bad
              exit bad > 0 }' ;;
--compare)
    built "$2" "$3"
    { all "$2" --sets; all "$3" --sets | sed 's/^/then /'; } | awk -F '\t' '
        BEGIN { OFS = FS; print "stage", "variant", "A", "B", "is" }
        $1 ~ /^(then )?stage$/ { next }
        { second = sub(/^then /, ""); k = $1 OFS $2
          if (!(k in seen)) key[++n] = k
          seen[k] = 1
          if (second) { b[k] = $4; by_b[k] = $3; of_b[k] = $5 }
          else { a[k] = $4; by_a[k] = $3; of_a[k] = $5 } }
        # Are the functions of B among those of A?
        function within(k,   f, i, m, had) {
            m = split(of_a[k], f, " ")
            for (i = 1; i <= m; i++) had[f[i]] = 1
            m = split(of_b[k], f, " ")
            for (i = 1; i <= m; i++) if (!(f[i] in had)) return 0
            return m > 0
        }
        END {
            for (i = 1; i <= n; i++) {
                k = key[i]; is = "same"
                if (a[k] != b[k]) is = within(k) ? "fewer" : "other"
                if (a[k] == "-" || b[k] == "-" || by_a[k] != by_b[k])
                    is = "not comparable"
                if (!(k in a)) is = "only in B"
                if (!(k in b)) is = "only in A"
                count[is]++
                print k, k in a ? a[k] : "-", k in b ? b[k] : "-", is | "sort"
            }
            close("sort")
            bad = n - count["same"] - count["fewer"]
            printf "digest.sh: %d variants: %d same, %d fewer, %d not\n", n,
                   count["same"], count["fewer"], bad
            exit bad > 0
        }' ;;
[0-9]*)
    checked=1; all "${3:-build}" | awk -F '\t' -v s="$1" -v v="$2" '
        $1 == s && $2 == v { d = $4 } END { print d == "" ? "-" : d }' ;;
*) echo "digest.sh: found '$1', expected a stage and a variant, or an option" >&2
   exit 2 ;;
esac
