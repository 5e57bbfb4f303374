#!/bin/sh
# gpu_faults.sh -- two ranks on two GPUs, one of which is lost: a row for each way.
#
# Book: chapter 20, "What is promised to whom".  Checked by: its table.
# Next: faults.c.
#
#   sh bench/gpu_faults.sh [BUILD]        its table: $OUT/faults.tsv; $AT_ONCE pairs (6)
#
# Rank 1 is killed in every call of forward and backward over NCCL, in each form; its
# GPU is full; a caller aborts the communicator that he lent. In the column missing_MiB
# stands what the surviving process had free less afterwards than before, where it was
# alone on its GPU: each form's first and middle call, and the last two; else -.
B=${1:-build}
program=$B/kcp-faults
OUT=${OUT:-$B/faults}
mkdir -p "$OUT"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$(dirname "$0")/nccl_home.sh"
export KCP_TIMEOUT_S=${KCP_TIMEOUT_S:-5}
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK KCP_RENDEZVOUS
table=$OUT/faults.tsv
printf 'what\tform\tcall\tstatus\tlost\tseconds\tmissing_MiB\tagain\tok\twhy\n' >"$table"
pair() {                                            # name words...
    name=$1; shift
    for r in 1 0; do
        WORLD_SIZE=2 RANK=$r LOCAL_RANK=$r KCP_RENDEZVOUS="file:$dir/$name" \
            KCP_JOB="$name" timeout ${LIMIT:-20} "$program" "$@" \
            >"$OUT/$name.$r" 2>"$OUT/$name.$r.err" &
        [ $r = 0 ] && rank0=$!
    done
    wait $rank0
    status=$?
    [ -s "$OUT/$name.0" ] || printf '%s\t%s\t%s\t%s\t\t\t\t\tFAIL\t%s\n' "$1" "${2:--}" \
        "${3:-0}" $status "$(tail -1 "$OUT/$name.0.err")" >"$OUT/$name.0"
    [ "$1" = count ] || cat "$OUT/$name.0" >>"$table"
}
began=$(date +%s)
pair count count
wait
cat "$OUT/count.1" "$OUT/count.1.err" "$OUT/count.0.err"
export KCP_FAULTS_ALONE=1
pair memory memory
wait
timeout ${LIMIT:-20} "$program" aborted >"$OUT/aborted" 2>"$OUT/aborted.err"
cat "$OUT/aborted" >>"$table"
tail -3 "$OUT/aborted.err"
n=0
while read -r count form calls; do
    for call in 1 $((calls / 2)); do
        pair "kill-$form-$call" kill "$form" "$call"
        wait
    done
    n=$((n + 2))
done <"$OUT/count.1"
unset KCP_FAULTS_ALONE
while read -r count form calls; do
    call=1
    while [ $call -le "$calls" ]; do
        if [ $call != 1 ] && [ $call != $((calls / 2)) ]; then
            pair "kill-$form-$call" kill "$form" $call &
            n=$((n + 1))
            [ $((n % ${AT_ONCE:-6})) = 0 ] && wait
        fi
        call=$((call + 1))
    done
done <"$OUT/count.1"
wait
cut -c1-150 "$table"
echo "gpu_faults.sh: $n points in $(($(date +%s) - began)) s; $(grep -c '	FAIL	' \
    "$table") rows FAIL"
! grep -q '	FAIL	' "$table"
