#!/bin/sh
# beside.sh -- an old build's kcp-bench beside a new one's, in one run on one GPU.
#
# Book: chapter 18.  Checked by: tests/cli/beside.sh.  Next: gpu_bench.sh.
#
#   sh bench/beside.sh --build COMMIT      that commit's kcp-bench: its path is printed
#   sh bench/beside.sh OLD NEW             two programs: a line a row; status 1 where NEW
#                                          takes more than PERCENT= (2) longer, or lacks a row
#
# Whole forwards and backwards (stages 08 and 13), each program's newest variants. OLD and
# NEW take turns, old new new old, ROUNDS= (2) times; a row is the median of its turns.
# CASES= names some of those below. A path of a program must not move between the two
# steps: a build folder may travel to the machine with the GPU, for example.
PERCENT=${PERCENT:-2} ROUNDS=${ROUNDS:-2}
bad() { echo "beside.sh: $*" >&2; exit 2; }
if [ "$1" = --build ]; then
    cd "$(dirname "$0")/.." || exit 2
    at=$(git rev-parse --verify -q "$2^{commit}") || bad "$2: found no such commit"
    tree=build/beside/$(echo "$at" | cut -c1-7)
    mkdir -p "$tree" && git archive "$at" | tar -xf - -C "$tree" || exit 2
    make -s -C "$tree" -j"$(nproc)" build/kcp-bench >&2 || exit 1
    echo "$tree/build/kcp-bench"
    exit 0
fi
[ $# = 2 ] || bad "found $# programs, expected OLD and NEW"
for p; do [ -x "$p" ] || bad "$p: found no such program, expected a kcp-bench"; done
case $ROUNDS in [1-9]) ;; *) bad "ROUNDS=$ROUNDS: expected 1 to 9" ;; esac
case $PERCENT in ''|*[!0-9.]*) bad "PERCENT=$PERCENT: expected a number" ;; esac
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT

# The README's cases, and the few heads of chapter 18.
size() {
    case $1 in
        kda_8192_96) echo "-T 8192 -H 96" ;;        kda_65536_32) echo "-T 65536 -H 32" ;;
        kda_8191_96) echo "-T 8191 -H 96" ;;        kda_65536_8) echo "-T 65536 -H 8" ;;
        kda_strong) echo "-T 8192 -H 96 --gate strong" ;;
        gdn_8192_32) echo "-T 8192 -H 16 --HV 32 --model gdn" ;;
        gdn_32768_64) echo "-T 32768 -H 16 --HV 64 --model gdn" ;;
        gdn_32768_32) echo "-T 32768 -H 16 --HV 32 --model gdn" ;;
        gdn_8192_8) echo "-T 8192 -H 4 --HV 8 --model gdn" ;;
        packed) echo "-T 32768 -H 64 --sequences 20" ;;
        *) return 1 ;;
    esac
}
CASES=${CASES:-kda_8192_96 kda_8191_96 kda_strong kda_65536_32 kda_65536_8 gdn_8192_32 \
gdn_32768_64 gdn_32768_32 gdn_8192_8 packed}
for c in $CASES; do size "$c" >/dev/null || bad "CASES: found $c, expected one of beside.sh's"; done

# CASE WHO PROGRAM: rows "case stage who us" of one turn. Of several variants of a stage
# the fastest counts: a name may have changed.
turn() {
    # shellcheck disable=SC2046
    "$3" --newest --stages 08,13 $(size "$1") >"$W/out" 2>"$W/err" || {
        echo "beside.sh: $1, $2: status $?: $(tail -1 "$W/err")"
        : >"$W/failed"
    }
    awk -v c="$1" -v who="$2" '
        /^stage +pass +variant/ { end = index($0, " us ") + 2; next }
        end && /^[01][0-9]_/ { us = substr($0, end - 9, 10) + 0
            if (us > 0 && (!($1 in least) || us < least[$1])) least[$1] = us }
        END { for (s in least) print c, s, who, least[s] }' "$W/out" >>"$W/rows"
}
old=$1 new=$2 round=0
: >"$W/rows"
while [ $round -lt "$ROUNDS" ]; do
    for c in $CASES; do
        turn "$c" old "$old"; turn "$c" new "$new"
        turn "$c" new "$new"; turn "$c" old "$old"
    done
    round=$((round + 1))
done
for c in $CASES; do echo "$c 08_forward"; echo "$c 13_backward"; done |
    awk -v percent="$PERCENT" -v turns=$((2 * ROUNDS)) '
    function median(k,   n, i, j, x, v) {
        n = count[k]
        for (i = 1; i <= n; i++) v[i] = us[k, i]
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && v[j] < v[j - 1]; j--) { x = v[j]; v[j] = v[j - 1]; v[j - 1] = x }
        return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    FILENAME != "-" { k = $1 " " $2 " " $3; us[k, ++count[k]] = $4; next }
    FNR == 1 { printf "%-14s%-14s%10s%10s%9s\n", "case", "stage", "old us", "new us", "new/old" }
    {
        a = $0 " old"; b = $0 " new"; word = "ok"
        if (count[a] != turns || count[b] != turns) {
            printf "%-14s%-14s old %d, new %d of %d turns: LACKS A ROW\n", $1, $2, count[a],
                   count[b], turns
            bad++
            next
        }
        rows++
        if (median(b) > median(a) * (1 + percent / 100)) { word = "SLOWER"; slower++; bad++ }
        printf "%-14s%-14s%10.1f%10.1f%9.3f  %s\n", $1, $2, median(a), median(b),
               median(b) / median(a), word
    }
    END { printf "beside.sh: %d rows within %s %% of the old build, %d not\n", rows - slower, percent, bad
          exit bad > 0 }' "$W/rows" - || exit 1
[ ! -e "$W/failed" ]
