#!/bin/sh
# gpu_nccl.sh -- the ranks on GPUs of their own: judged, killed, stopped; a table last.
#
# Book: chapter 20.  Checked by: its table.  Next: ../comm/backend/nccl.c.
#
#   sh bench/gpu_nccl.sh [BUILD]     on a machine of 2 GPUs or more; its table: $OUT
#   SHARED=1 sh bench/gpu_nccl.sh [BUILD]          on one: all ranks share it
#
# STAGES are judged (08 13 14 15 16; 08/v3_prepare_scan: one variant), with the options ASK
# (--quick), over COUNTS ranks (2 4), HOW as (threads processes), REPEATED a hundred
# times (08 13); CHECKS over processes alone (08/gpu_graph_ranks ..). Empty, each of these
# leaves something out: ONE, what needs no second GPU; SPLIT, a caller's communicator as
# threads; STRUCK, who is lost (KILL STOP).
#
# With SHARED=1 each rank is a process that says it is a host of its own, as in
# tests/share_gpu.sh: slowly, for processes take turns on the GPU, and over sockets.
#
# Every row is one run of kcp-check: as threads of one process, or as processes with
# torchrun's variables. NCCL is found as the loader finds it, or beside PyTorch.
B=${1:-build}
program=$B/kcp-check
ONE=${ONE-1} SPLIT=${SPLIT-1} STRUCK=${STRUCK-KILL STOP} COUNTS=${COUNTS:-2 4}
[ -n "$SHARED" ] && HOW=processes REPEATED="" ONE=""
HOW=${HOW:-threads processes} STAGES=${STAGES-08 13 14 15 16} REPEATED=${REPEATED-08 13}
CHECKS=${CHECKS-08/gpu_graph_ranks 20/gpu_narrow 20/gpu_from 20/gpu_split}
OUT=${OUT:-$B/nccl}
mkdir -p "$OUT"
L=$(mktemp -d) || exit 1
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK KCP_RENDEZVOUS
gpus=$(nvidia-smi -L | wc -l)
[ "$gpus" -ge 2 ] || [ -n "$SHARED" ] || {
    echo "gpu_nccl.sh: $gpus GPUs, expected 2 or more, or SHARED=1"; exit 1; }
. "$(dirname "$0")/nccl_home.sh"
ldd "$program" | grep 'not found' && { echo "gpu_nccl.sh: carry these"; exit 1; }
table=$OUT/nccl.tsv
printf 'what\thow\tn\tstatus\tseconds\tsays\n' >"$table"
shown() {
    awk -F '\t' '{ printf "%-30s %-9s %5s  %-6s %7s  %s\n", $1, $2, $3, $4, $5, $6 }'
}
failed=0
now() { date +%s.%N; }
row() {     # what ranks n status began file
    s=$(awk -v a="$5" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }')
    named=$(echo "$1" | sed 's/--stage \([0-9]*\) --variant /\1 /')
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$named" "$2" "$3" "$4" "$s" \
        "$(tail -n 40 "$6" | grep -E 'OK|FAIL|lost|kcp-check:|passed' |
           tail -1 | tr '\t' ' ' | cut -c1-110)" \
        >>"$table"
    tail -1 "$table" | shown
    [ "$4" = 0 ] || failed=1
}
threads() {         # n options...
    n=$1; shift; log=$L/threads-$n$(echo "$*" | tr -c 'a-z0-9\n' _).txt; t=$(now)
    timeout 100 "$program" --device --backend nccl --ranks $n "$@" >"$log" 2>&1
    row "$*" threads $n $? $t "$log"
}
start() {           # n options...: ids of the processes in $ids
    n=$1; shift; ids=""; r=0
    while [ $r -lt $n ]; do
        own="LOCAL_RANK=$r"
        [ -z "$SHARED" ] || own="LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 NCCL_HOSTID=rank$r
            NCCL_SOCKET_IFNAME=lo"
        # shellcheck disable=SC2086
        env $own WORLD_SIZE=$n RANK=$r KCP_RENDEZVOUS="file:$L/meet.$$" \
            "$program" --device "$@" >"$L/rank$r" 2>&1 &
        ids="$ids $!"; r=$((r + 1))
    done
}
processes() {       # n options...
    t=$(now); start "$@"; status=0
    for id in $ids; do wait $id || status=$?; done
    n=$1; shift; log=$L/processes-$n$(echo "$*" | tr -c 'a-z0-9\n' _).txt
    cat "$L"/rank? >"$log"; rm -f "$L"/rank?
    row "$*" processes $n $status $t "$log"
}
# A signal to the last of n processes, once they exchange: the others must end with 1
# and name it. s is the time from the signal until all of them had ended.
struck() {          # signal n
    export KCP_TIMEOUT_S=8
    start $2 --exchange 0
    last=$(($2 - 1)); victim=${ids##* }; others=${ids% *}; status=0; i=0
    until grep -q 'exchange trials' "$L/rank0" || [ $i = 300 ]; do
        sleep 0.1; i=$((i + 1)); done
    sleep 3
    t=$(now); kill -$1 $victim
    (sleep 40; kill -KILL $ids 2>/dev/null) & dog=$!
    for id in $others; do wait $id; [ $? = 1 ] || status=hung; done
    r=0
    while [ $r -lt $last ]; do
        grep -q "rank $last was lost in exchange" "$L/rank$r" || status=unnamed
        r=$((r + 1)); done
    cat "$L"/rank? >"$L/$1-$2.txt"
    row "$1 rank $last of --exchange 0" processes $2 $status $t "$L/rank0"
    kill $dog 2>/dev/null; kill -KILL $victim 2>/dev/null; wait $victim 2>/dev/null
    rm -f "$L"/rank?
    unset KCP_TIMEOUT_S
}
alone() {           # ranks what command...: a run that finds its GPUs by itself
    n=$1 what=$2; shift 2; log=$L/$(echo "$what" | tr -c 'a-z0-9\n' _).txt; t=$(now)
    timeout 150 "$@" >"$log" 2>&1
    row "$what" threads "$n" $? $t "$log"
}
has() { for f in "$@"; do
    [ -x "$B/$f" ] || { echo "no $B/$f: not run"; return 1; }; done; }
only() { echo "--stage $1" | sed 's#/# --variant #'; }      # 08, or 08/v3_prepare_scan
most=4; [ "$gpus" -ge 4 ] || most=2
for v in gpu_from gpu_split; do      # a caller's communicator, and one that is split
    [ -n "$SPLIT" ] && [ -z "$SHARED" ] &&
        alone 1-$most "$v" "$program" --device --stage 20 --variant $v
done
here=$(cd "$(dirname "$0")/.." && pwd)
[ -n "$ONE" ] && alone 1 "captured in a graph" "$program" --device --stage 08 \
    --variant gpu_graph
[ -n "$ONE" ] && has kcp-run kcp-arrays && alone 1-5 "kcp-run --device gpu" \
    sh "$here/tests/cli/run_device.sh" "$B" "$(cd "$OUT" && pwd)/run_device.txt"
[ -n "$ONE" ] && has kda gdn && alone 1-3 "examples" \
    sh "$here/tests/cli/examples.sh" "$B"
for n in $COUNTS; do
    [ $n -le "$gpus" ] || [ -n "$SHARED" ] || continue
    for how in $HOW; do
        $how $n --exchange 25
        for check in $CHECKS; do
            # shellcheck disable=SC2046
            [ $how = threads ] || processes $n $(only $check)
        done
        for stage in $STAGES; do
            # shellcheck disable=SC2046
            $how $n $ASK $(only $stage)
        done
    done
    for stage in $REPEATED; do
        # shellcheck disable=SC2046
        alone $n "100 times the same bits: ${stage%%/*}" "$program" --device \
            --backend nccl --ranks $n --repeats 100 $(only $stage) \
            --case "kda live H=2 K=128 V=128 lengths=900,77 R=$n l2norm h0 dht"
    done
    case $STRUCK in *KILL*) struck KILL $n ;; esac
done
case $STRUCK in *STOP*) struck STOP 2 ;; esac
if [ -n "$ONE" ] && command -v mpirun >/dev/null 2>&1; then
    t=$(now)
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 \
        mpirun --oversubscribe -n 2 "$program" --device --exchange 5 \
            >"$L/mpirun.txt" 2>&1
    row "--exchange 5" mpirun 2 $? $t "$L/mpirun.txt"
fi
echo; nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c
shown <"$table"
tar czf "$OUT/nccl_logs.tgz" -C "$L" . && rm -rf "$L"
exit $failed
