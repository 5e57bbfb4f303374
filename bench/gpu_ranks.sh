#!/bin/sh
# gpu_ranks.sh -- one run on several GPUs: judged over NCCL, then whole layers timed
# over 1, 2 and all ranks, and another system's context parallelism; a table last.
#
# Book: chapter 20.  Checked by: bench/records.py, which keeps no row without a verdict.
# Next: peers/fla_ops.py.
#
#   sh bench/gpu_ranks.sh [BUILD]        BUILD/kcp-check, kcp-bench are there
#   python3 bench/records.py add $OUT NAME COMMIT       afterwards, on this machine
#
# LIMIT: seconds that it may take (240); KEEP of them after theirs (60). TOKENS, HEADS:
# the case (131072, 32). JUDGED: stages, or 08/v3_prepare_scan (08 13). MORE: further options
# of kcp-bench; ASK: of kcp-check (--quick). .peers/ as for gpu_bench.sh; without it
# nothing of theirs is timed, and no time is kept for it.
B=${1:-build} LIMIT=${LIMIT:-240} TOKENS=${TOKENS:-131072} HEADS=${HEADS:-32}
OUT=${OUT:-$B/ranks}
began=$(date +%s)
left() { echo $((LIMIT - $(date +%s) + began)); }
say() { echo "gpu_ranks.sh: $* ($(left) s left)"; }
within() {           # seconds to keep back, command...: what remains is its limit
    t=$(($(left) - $1)); shift
    [ $t -gt 8 ] || { say "no time left for $2 $3"; return 1; }
    timeout $t "$@"
}
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
[ "$gpus" -ge 2 ] || { echo "gpu_ranks.sh: $gpus GPUs, expected 2 or more"; exit 1; }
mkdir -p "$OUT" || exit 1
name=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)
echo "$gpus x $name, $(date -u +%F)" | tee "$OUT/machine.txt"

# The kernels that will run, for records.py; - where only the programs were carried here.
! command -v cuobjdump >/dev/null || python3 bench/digest.py "$B" >"$OUT/digests.tsv"
[ "$(wc -l <"$OUT/digests.tsv")" -gt 1 ] || rm "$OUT/digests.tsv"

# Once over all GPUs, every form: the verdicts that a record needs.
for s in ${JUDGED-08 13}; do
    within ${LEAVE:-60} "$B/kcp-check" $ASK --device --backend nccl --ranks "$gpus" \
        --stage $(echo $s | sed 's#/# --variant #') \
        >"$OUT/judge.$(echo $s | tr / .).part" 2>&1 &
done
wait
cat "$OUT"/judge.*.part >"$OUT/judge.txt"; rm -f "$OUT"/judge.*.part
grep -E '^ +(FAIL|MARGINAL)|passed' "$OUT/judge.txt"
say judged
case " $MORE " in *" --judge "*)           # rows over ranks, judged where they are timed
    within 5 sh bench/wrong_row.sh "$B" "$OUT" --ranks "$gpus" --stages 08 --forms chain ||
        { say "stopped: no row of a wrong number was seen to FAIL"; exit 1; } ;;
esac

# Ours: the case as it is taught, then theirs beside it; the rest while there is time.
# One segment a rank, and four: 32 chains leave three quarters of a GPU idle.
# Alone, one GPU takes whichever of its plans is best.
ours() {                       # file, options...
    f=$1; shift
    within 5 "$B/kcp-bench" --tsv "$OUT/$f.tsv" -T "$TOKENS" -H "$HEADS" -w 5 -n 30 \
        $MORE "$@" || say "$f: not timed to its end"
}
four="--ranks $gpus --segments $((4 * gpus))" bare="--stages 08 --save none"
all="$OUT/kda_${gpus}x1.tsv $OUT/gdn_${gpus}x1.tsv"
ours kda_${gpus}x1 --ranks "$gpus"
ours gdn_${gpus}x1 --ranks "$gpus" --model gdn
say "timed ours over all"

theirs() {
    [ -d .peers ] || return
    [ -r .peers/FLA_COMMIT ] && FLA_COMMIT=$(cat .peers/FLA_COMMIT) && export FLA_COMMIT
    export TRITON_CACHE_AUTOTUNING=1 FLA_FLASH_KDA=0 PYTHONDONTWRITEBYTECODE=1
    JOBS=$(($(nproc) / gpus)) PYTHONPATH="$PWD/.peers" within ${KEEP:-60} \
        torchrun --nproc-per-node "$gpus" bench/peers/fla_ops.py \
        --seconds $(($(left) - ${KEEP:-60} - 15)) $all 2>"$OUT/torchrun.txt" ||
        tail -3 "$OUT/torchrun.txt"
    say "timed theirs"
}
theirs

ours kda_${gpus}x1_bare --ranks "$gpus" $bare --unsent
ours gdn_${gpus}x1_bare --ranks "$gpus" $bare --model gdn --unsent
for t in 1024 4096 32768; do        # tokens a rank: the call, and a graph of it
    ours kda_${gpus}x1_t${t}_bare --ranks "$gpus" $bare -T $((t * gpus)) --replay
done
ours kda_${gpus}x1_reuse --ranks "$gpus" --reuse-M
ours kda_${gpus}x1_strong_bare --ranks "$gpus" $bare --gate strong
for by in less:-1 more:1; do        # a token shorter, a token longer
    T=$((TOKENS + ${by#*:})) name=kda_${gpus}x1_${by%:*}
    ours ${name}_bare --ranks "$gpus" $bare -T $T
    ours ${name}_strong_bare --ranks "$gpus" $bare -T $T --gate strong
done
ours kda_${gpus}x4_bare $four $bare
ours kda_${gpus}x4 $four
ours gdn_${gpus}x4 $four --model gdn
ours gdn_${gpus}x4_bare $four $bare --model gdn
ours kda_1x1 --ranks 1
ours kda_1x8 --ranks 1 --segments 8
ours kda_1x1_bare --ranks 1 $bare
ours gdn_1x8 --ranks 1 --segments 8 --model gdn
ours gdn_1x1 --ranks 1 --model gdn
ours gdn_1x1_bare --ranks 1 $bare --model gdn
ours kda_2x4 --ranks 2 --segments 8
ours gdn_2x4 --ranks 2 --segments 8 --model gdn
ours kda_${gpus}x4_strong $four --gate strong
ours kda_${gpus}x4_reuse $four --reuse-M
ours kda_2x1 --ranks 2
say "timed ours"
