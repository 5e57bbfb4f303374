#!/bin/sh
# gpu_ranks.sh -- times whole layers on 1, 2 and all GPUs, after check_gpus.py.
# Book: chapter 20.
#
#   OUT=DIR python3 bench/check_gpus.py [BUILD]; OUT=DIR sh bench/gpu_ranks.sh [BUILD]
#   python3 bench/records.py add DIR NAME COMMIT
#
# For each number of tokens in TOKENS and each exchange algorithm, times a forward that saves
# for backward, the backward, and a forward that saves nothing. Then times short calls, also
# as replays of a CUDA graph. If .peers/ has FLA, also times FLA's context parallelism for the
# first of TOKENS. The script ends after LIMIT (240) s. FLA starts no case in the last KEEP (90) s.
B=${1:-build} LIMIT=${LIMIT:-240} OUT=${OUT:-$B/check_gpus} here=$(dirname "$0")
began=$(date +%s)
left() { echo $((LIMIT - $(date +%s) + began)); }
log() { echo "gpu_ranks.sh: $* ($(left) s left)"; }
all=$(nvidia-smi -L 2>/dev/null | wc -l)
[ "$all" -ge 2 ] || { echo "gpu_ranks.sh: found $all GPUs, expected 2 or more"; exit 1; }
[ -s "$OUT/judge.txt" ] || {
    echo "gpu_ranks.sh: $OUT/judge.txt not found: run check_gpus.py first"; exit 1; }
. "$here/nccl_home.sh"
ours() {             # ours FILE OPTION...: kcp-bench with these options writes FILE.tsv
    f=$1; shift
    [ "$(left)" -gt 8 ] && timeout "$(left)" "$B/kcp-bench" --tsv "$OUT/$f.tsv" -H 32 \
        -w 5 -n 30 "$@" >>"$OUT/bench.txt" 2>&1 || log "$f: not all of it was timed"
}
bare="--stage 08 --save none"
for t in ${TOKENS:-131072 262144 32768}; do
    for m in kda gdn; do
        for n in $(printf '%s\n' "$all" 2 1 | sort -nru); do
            ours ${m}_${n}x1_t$t --ranks $n --model $m -T $t
            ours ${m}_${n}x1_t${t}_bare --ranks $n --model $m -T $t $bare
        done
    done
    log "timed $t tokens"
    [ -d .peers ] && [ ! -s "$OUT/torchrun.txt" ] || continue
    export TRITON_CACHE_AUTOTUNING=1 FLA_FLASH_KDA=0 PYTHONDONTWRITEBYTECODE=1
    PYTHONPATH="$PWD/.peers" timeout "$(left)" torchrun --nproc-per-node "$all" \
        bench/peers/fla_ops.py --seconds $(($(left) - ${KEEP:-90})) \
        "$OUT/kda_${all}x1_t$t.tsv" "$OUT/gdn_${all}x1_t$t.tsv" 2>"$OUT/torchrun.txt" ||
        tail -3 "$OUT/torchrun.txt"
    log "timed FLA"
done
for m in kda gdn; do
    for t in 1024 4096 16384; do
        for n in 1 "$all"; do
            ours ${m}_${n}x1_short$t --ranks $n --model $m -T $((t * all)) $bare --replay \
                --unsent --forms all_gather,chain
        done
    done
done
log "timed all"
