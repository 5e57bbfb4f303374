#!/bin/sh
# gpu_faults.sh -- ranks on GPUs, one of which is lost: a row for each way.
#
# Book: chapter 20, "What is promised to whom".  Checked by: its table.
# Next: faults.c.
#
#   sh bench/gpu_faults.sh [BUILD]        $AT_ONCE jobs (6); a row a fault and survivor
#                                         goes to $OUT/faults.tsv, a row a form to
#                                         gpu_faults.tsv
#
# Rank 1 of $RANKS (2) is killed in every call of forward and backward over NCCL, in
# each form; its GPU is full; a caller aborts the communicator that he lent, or the rank
# that uses it is killed or stopped. ONE_GPU=1: all ranks on GPU 0, each of which NCCL takes for a
# machine of its own (NCCL_HOSTID), so that bytes go through sockets; then no GPU is
# full alone, no threads are asked, and memory is measured only where nobody dies, after
# an abort: what all ranks together have less than before. In the column missing_MiB
# stands what the surviving process had free less afterwards than before, where it was
# alone on its GPU: each form's first and middle call, and the last two; else -. Before
# is after a run of the same form in which nobody was lost. 32 MiB and more are FAIL.
# ALONE=1: these rows only. FORMS: which forms (all four). NCCL's own words, where
# NCCL_DEBUG asks for them, go to $OUT/nccl.txt, for the ranks print their rows. COMMIT:
# which one this is, for the table's first line.
B=${1:-build}
program=$B/kcp-faults
OUT=${OUT:-$B/faults}
mkdir -p "$OUT"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$(dirname "$0")/nccl_home.sh"
export KCP_TIMEOUT_S=${KCP_TIMEOUT_S:-5}
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK KCP_RENDEZVOUS
export NCCL_DEBUG_FILE=${NCCL_DEBUG_FILE:-$OUT/nccl.%p}
table=$OUT/faults.tsv
printf 'what\tform\tcall\tstatus\tlost\tseconds\tmissing_MiB\tagain\tok\twhy\n' >"$table"
RANKS=${RANKS:-2}
[ -z "$ONE_GPU" ] || export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo}
job() {                                             # name words...
    name=$1; shift; r=$RANKS; others=""
    while [ $r -gt 0 ]; do
        r=$((r - 1)); local=$r
        [ -z "$ONE_GPU" ] || { local=0; export NCCL_HOSTID=$name-$r; }
        WORLD_SIZE=$RANKS RANK=$r LOCAL_RANK=$local KCP_JOB="$name" \
            KCP_RENDEZVOUS="file:$dir/$name" timeout ${LIMIT:-40} "$program" "$@" \
            >"$OUT/$name.$r" 2>"$OUT/$name.$r.err" &
        [ $r = 1 ] || others="$others $r:$!"
    done
    for one in $others; do
        wait ${one#*:}
        status=$?; r=${one%:*}
        [ -s "$OUT/$name.$r" ] || printf '%s\t%s\t%s\t%s\t\t\t\t\tFAIL\t%s\n' "$1" \
            "${2:--}" "${3:-0}" $status "$(tail -1 "$OUT/$name.$r.err")" \
            >"$OUT/$name.$r"
        [ "$1" = count ] || cat "$OUT/$name.$r" >>"$table"
    done
}
began=$(date +%s)
job count count
wait
cat "$OUT/count.1" "$OUT/count.1.err" "$OUT/count.0.err"
[ -n "$ONE_GPU" ] || export KCP_FAULTS_ALONE=1
n=0
if [ -z "$ONE_GPU" ]; then
    job memory memory
    wait
    timeout ${LIMIT:-40} "$program" aborted >"$OUT/aborted" 2>"$OUT/aborted.err"
    cat "$OUT/aborted" >>"$table"
    tail -3 "$OUT/aborted.err"
    n=2
fi
for way in abort kill stop; do
    [ -z "$ONE_GPU" ] || [ $way != abort ] || export KCP_FAULTS_ALONE=1
    for form in ${FORMS:-all_gather chain pipeline scan}; do
        job "lent-$form-$way" lent $form $way
        wait
        n=$((n + 1))
    done
    [ -z "$ONE_GPU" ] || unset KCP_FAULTS_ALONE
done
for form in ${FORMS:-all_gather chain pipeline scan}; do
    grep "	$form	" "$OUT/count.1"
done >"$OUT/forms"
while read -r count form calls; do
    for call in 1 $((calls / 2)); do
        job "kill-$form-$call" kill "$form" "$call"
        wait
    done
    n=$((n + 2))
done <"$OUT/forms"
unset KCP_FAULTS_ALONE
while [ -z "$ALONE" ] && read -r count form calls; do
    call=1
    while [ $call -le "$calls" ]; do
        if [ $call != 1 ] && [ $call != $((calls / 2)) ]; then
            job "kill-$form-$call" kill "$form" $call &
            n=$((n + 1))
            [ $((n % ${AT_ONCE:-6})) = 0 ] && wait
        fi
        call=$((call + 1))
    done
done <"$OUT/forms"
wait
for f in "$OUT"/nccl.[0-9]*; do
    [ ! -s "$f" ] || { echo "== ${f##*/}"; cat "$f"; } >>"$OUT/nccl.txt"
    rm -f "$f"
done
cut -c1-150 "$table"
{
    echo "# $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)" \
        "x $(nvidia-smi -L | wc -l), $(date -u +%F),${COMMIT:+ commit $COMMIT,}" \
        "$RANKS ranks${ONE_GPU:+ on one GPU, over sockets}," \
        "KCP_TIMEOUT_S=$KCP_TIMEOUT_S, windows ${KCP_WINDOWS:-0}"
    awk -F '\t' 'NR == 1 { print "what\tform\tpoints\tsurvivors\tended\tnamed\tlongest s\t" \
                            "met anew\talone\tmissing MiB"; next }
        { k = $1 "\t" $2
          if (!(k in n)) { order[++kinds] = k; missing[k] = "-"; alone[k] = 0 }
          point = $1 ~ /^lent|^aborted/ ? k : k "\t" $3
          if (!(point in seen)) { seen[point] = 1; points[k]++ }
          n[k]++; ended[k] += $4 != 0 && $4 != 124; named[k] += $5 == 1
          anew[k] += $8 == "0"; if ($6 > longest[k]) longest[k] = $6
          if ($7 != "-" && $7 != "") {
              alone[k]++
              if (missing[k] == "-" || $7 + 0 > missing[k] + 0) missing[k] = $7 } }
        END { for (i = 1; i <= kinds; i++) { k = order[i]
              printf "%s\t%d\t%d\t%d\t%d\t%.1f\t%d\t%d\t%s\n", k, points[k], n[k], ended[k], named[k],
                     longest[k], anew[k], alone[k], missing[k] } }' "$table"
} >"$OUT/gpu_faults.tsv"
cat "$OUT/gpu_faults.tsv"
echo "gpu_faults.sh: $n points in $(($(date +%s) - began)) s; $(grep -c '	FAIL	' \
    "$table") rows FAIL"
! grep -q '	FAIL	' "$table"
