#!/bin/sh
# gpu_bench.sh -- judges all stages on one GPU, and times kernels and other systems.
#
# Book: chapter 18.  Checked by: bench/records.py, which keeps no row without a verdict,
# and a planted mistake: timing starts only after kcp-bench has rejected wrong numbers.
# Next: peers/fla_ops.py.
#
#   sh bench/gpu_bench.sh [BUILD]                      writes to $OUT, default BUILD/bench
#   python3 bench/records.py add $OUT NAME COMMIT      afterwards: rows of bench/results
#
# The script ends after LIMIT (470) seconds. ALL=1 also times the slow first variants. CASES
# selects from the cases below; case gdn_4x8192 is GDN on packed sequences with --lengths
# 4x8192. Other systems are in folder .peers/ (peers/fetch.sh); a missing system is skipped.
B=${1:-build} LIMIT=${LIMIT:-470}
OUT=${OUT:-$B/bench}
began=$(date +%s)
left() { echo $((LIMIT - $(date +%s) + began)); }
log() { echo "gpu_bench.sh: $* ($(left) s left)"; }
within() {           # seconds to leave, command...: runs the command in the time left
    t=$(($(left) - $1)); shift
    [ $t -gt 10 ] || { log "no time left for $2"; return 1; }
    timeout $t "$@"
}
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
[ "$gpus" -ge 1 ] || { echo "gpu_bench.sh: no GPU found: nothing was run"; exit 1; }
mkdir -p "$OUT" || exit 1
echo "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)," \
    "$(date -u +%F)" | tee "$OUT/machine.txt"

make -j"$(nproc)" B="$B" "$B/kcp-check" "$B/kcp-bench" >"$B.txt" 2>&1 ||
    { tail -5 "$B.txt"; exit 1; }
! command -v cuobjdump >/dev/null || python3 bench/digest.py "$B" >"$OUT/digests.tsv"
log built

# With KCP_BENCH_WRONG, every row must have verdict FAIL (bench/judged.c).
judged=$(mktemp -d) || exit 1
trap 'rm -rf "$judged"' EXIT
wrong="--judge --stage 08,13 -T 1024 -H 4 -w 0 -n 5"
# shellcheck disable=SC2086
within 5 env KCP_BENCH_WRONG=1 "$B/kcp-bench" $wrong --tsv "$judged/rows.tsv" \
    >"$judged/log" 2>&1
status=$?
rows=$(sed 1d "$judged/rows.tsv" | wc -l) fails=$(grep -c "	FAIL	" "$judged/rows.tsv")
if [ $status != 1 ] || [ "$rows" = 0 ] || [ "$fails" != "$rows" ]; then
    tail -3 "$judged/log"
    log "KCP_BENCH_WRONG=1: $fails of $rows rows FAIL, status $status; expected all, 1"
    exit 1
fi
printf 'what\tsays\njudged rows\tKCP_BENCH_WRONG=1 kcp-bench %s: %s of %s rows say FAIL\n' \
    "$wrong" "$fails" "$rows" >"$OUT/notes.tsv"

# Judges each stage in its own process, because references on the CPU take most of the time.
ids="" failed=0
for s in $(ls cuda/*/v[0-9]*.cu | sed 's#cuda/\([0-9][0-9]\).*#\1#' | sort -u); do
    within 150 "$B/kcp-check" --device --stage "$s" >"$judged/judge.$s" 2>&1 & ids="$ids $!"
done
for id in $ids; do wait "$id" || failed=$((failed + 1)); done
cat "$judged"/judge.* >"$OUT/judge.txt"
grep -E '^ +(FAIL|MARGINAL|skip)' "$OUT/judge.txt"
log "judged: $failed stages failed"

# Times our kernels. Each case has a file, to which rows of other systems are then appended.
l=546,2185,1092,2731,1638
CASES=${CASES:-a_live a_strong a_less a_more a_gdn b_live h8 gdn32 gdn64 packed dplr}
for c in $CASES; do
    options="--newest --stage 08,13"
    case $c in a_live) options=$([ -n "$ALL" ] || echo --newest) ;; esac
    case $c in
        a_less) size="-T 8191 -H 96" ;;     a_more) size="-T 8193 -H 96" ;;
        a_*) size="-T 8192 -H 96" ;;        b_*) size="-T 65536 -H 32" ;;
        h8) size="-T 65536 -H 8" ;;         packed) size="-H 64 --lengths $l,$l,$l,$l" ;;
        gdn32) size="-T 8192 -H 32" ;;      gdn64) size="-T 32768 -H 16 --HV 64" ;;
        gdn_[0-9]*) size="-H 16 --HV 32 --lengths ${c#gdn_}" ;;
        dplr) size="-T 8192 -H 64 -K 64 -V 64 --model dplr" ;;
        *) size="-T 8192 -H 96" ;;
    esac
    [ $c = dplr ] && options="--newest --stage 16"
    options="$size $options"
    case $c in *strong*) options="$options --gate strong" ;; esac
    case $c in *gdn*) options="$options --model gdn" ;; esac
    within 5 "$B/kcp-bench" --tsv "$OUT/$c.tsv" $options ||
        log "$c: not all of it was timed"
done
log "timed our kernels"

# Times other systems, which in the first case also compile and tune kernels on all cores.
export TRITON_CACHE_AUTOTUNING=1 FLA_FLASH_KDA=0 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$PWD/.peers${PYTHONPATH:+:$PYTHONPATH}"
files=$(for c in $CASES; do [ $c != dplr ] && [ -s "$OUT/$c.tsv" ] && echo "$OUT/$c.tsv"; done)
within 60 python3 bench/peers/others.py $files
within 5 python3 bench/peers/fla_ops.py --seconds $(($(left) - 60)) $files
log "timed other systems"
