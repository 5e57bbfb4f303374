#!/bin/sh
# gpu_bench.sh -- judges all stages on one GPU, and times kernels and other systems.
# Book: chapter 18.
#
#   sh bench/gpu_bench.sh [BUILD]                      writes to $OUT, default BUILD/bench
#   python3 bench/records.py add $OUT NAME COMMIT      then adds rows to bench/results
#
# The script ends after LIMIT (470) seconds. In case a_live, ALL=1 also times slow, early
# variants. CASES selects names in cases(); the first eight fill README.md's one-GPU table.
# Other systems are in folder .peers/ (peers/fetch.sh); a missing system is skipped.
B=${1:-build} LIMIT=${LIMIT:-470}
OUT=${OUT:-$B/bench}
began=$(date +%s)
left() { echo $((LIMIT - $(date +%s) + began)); }
log() { echo "gpu_bench.sh: $* ($(left) s left)"; }
within() {           # within SECONDS COMMAND...: ends COMMAND SECONDS before LIMIT
    t=$(($(left) - $1)); shift
    [ $t -gt 10 ] || { log "no time left for $2"; return 1; }
    timeout $t "$@"
}
cases() {            # prints each case's name and options of kcp-bench
    layers="--stage 08,13" l=546,2185,1092,2731,1638
    echo "a_live $layers -T 8192 -H 96
        a_none --stage 08 -T 8192 -H 96 --save none
        b_live $layers -T 65536 -H 32
        b_none --stage 08 -T 65536 -H 32 --save none
        gdn8192 $layers -T 8192 -H 16 --HV 32 --model gdn
        gdn8192_none --stage 08 -T 8192 -H 16 --HV 32 --model gdn --save none
        gdn32768 $layers -T 32768 -H 16 --HV 32 --model gdn
        gdn32768_none --stage 08 -T 32768 -H 16 --HV 32 --model gdn --save none
        a_strong $layers -T 8192 -H 96 --gate strong
        a_less $layers -T 8191 -H 96
        a_more $layers -T 8193 -H 96
        a_gdn $layers -T 8192 -H 96 --model gdn
        h8 $layers -T 65536 -H 8
        gdn32 $layers -T 8192 -H 32 --model gdn
        gdn64 $layers -T 32768 -H 16 --HV 64 --model gdn
        packed $layers -H 64 --lengths $l,$l,$l,$l
        dplr --stage 16 -T 8192 -H 64 -K 64 -V 64 --model dplr" | sed 's/^ *//'
}
names=$(cases | cut -d' ' -f1)
CASES=${CASES:-$names}
for c in $CASES; do
    echo "$names" | grep -qx "$c" || { log "CASES: found '$c', expected:" $names; exit 2; }
done
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
[ "$gpus" -ge 1 ] || { echo "gpu_bench.sh: no GPU found: nothing was run"; exit 1; }
mkdir -p "$OUT" || exit 1
echo "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)," \
    "$(date -u +%F)" | tee "$OUT/machine.txt"

make -j"$(nproc)" B="$B" "$B/kcp-check" "$B/kcp-bench" >"$B.txt" 2>&1 ||
    { tail -5 "$B.txt"; exit 1; }
! command -v cuobjdump >/dev/null || python3 bench/digest.py "$B" >"$OUT/digests.tsv"
log built

# KCP_BENCH_WRONG makes all results wrong, so every row must have verdict FAIL.
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
    log "KCP_BENCH_WRONG=1: status $status, expected 1; $fails of $rows rows FAIL, expected all"
    exit 1
fi
printf 'what\tsays\njudged rows\tKCP_BENCH_WRONG=1 kcp-bench %s: %s of %s rows say FAIL\n' \
    "$wrong" "$fails" "$rows" >"$OUT/notes.tsv"

# Judges all stages concurrently, because references on the CPU take most of the time.
ids="" failed=0
for s in $(ls cuda/*/v[0-9]*.cu | sed 's#cuda/\([0-9][0-9]\).*#\1#' | sort -u); do
    within 150 "$B/kcp-check" --device --stage "$s" >"$judged/judge.$s" 2>&1 & ids="$ids $!"
done
for id in $ids; do wait "$id" || failed=$((failed + 1)); done
cat "$judged"/judge.* >"$OUT/judge.txt"
grep -E '^ +(FAIL|MARGINAL|skip)' "$OUT/judge.txt"
log "judged: $failed stages failed"

# Times KCP's kernels, one file per case. Later, peers/*.py append rows of other systems.
for c in $CASES; do
    options=$(cases | sed -n "s/^$c  *//p")
    newest=--newest
    if [ $c = a_live ] && [ -n "${ALL:-}" ]; then newest=; fi
    # shellcheck disable=SC2086
    within 5 "$B/kcp-bench" --tsv "$OUT/$c.tsv" $options $newest ||
        log "$c: not all of it was timed"
done
log "timed our kernels"

# Times other systems, which in the first case also compile and tune kernels on all cores.
export TRITON_CACHE_AUTOTUNING=1 FLA_FLASH_KDA=0 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$PWD/.peers${PYTHONPATH:+:$PYTHONPATH}"
files=$(for c in $CASES; do [ $c != dplr ] && [ -s "$OUT/$c.tsv" ] && echo "$OUT/$c.tsv"; done)
within 60 python3 bench/peers/fla_ops.py --others $files
within 5 python3 bench/peers/fla_ops.py --seconds $(($(left) - 60)) $files
log "timed other systems"
