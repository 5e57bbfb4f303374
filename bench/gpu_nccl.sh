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
# Every row is one run of kcp-check: as threads of one process, or as processes of mpirun.
# NCCL is found as the loader finds it, or beside PyTorch.
B=${1:-build}
program=$B/kcp-check
ONE=${ONE-1} SPLIT=${SPLIT-1} STRUCK=${STRUCK-KILL STOP} COUNTS=${COUNTS:-2 4}
[ -n "$SHARED" ] && HOW=processes REPEATED="" ONE=""
HOW=${HOW:-threads processes} STAGES=${STAGES-08 13 14 15 16} REPEATED=${REPEATED-08 13}
CHECKS=${CHECKS-08/gpu_graph_ranks 20/gpu_narrow 20/gpu_from 20/gpu_split}
OUT=${OUT:-$B/nccl}
mkdir -p "$OUT"
L=$(mktemp -d) || exit 1
here=$(cd "$(dirname "$0")/.." && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
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
cat >"$L/rank" <<'END'
echo $$ >"$L/id.$OMPI_COMM_WORLD_RANK"; exec "$@"
END
export L
processes() {       # n options...
    n=$1; shift; log=$L/processes-$n$(echo "$*" | tr -c 'a-z0-9\n' _).txt; t=$(now)
    if [ -n "$SHARED" ]; then
        LIMIT=150 sh "$here/tests/share_gpu.sh" $n "$program" --device "$@" >"$log" 2>&1
    else timeout 150 mpirun -n $n "$program" --device "$@" >"$log" 2>&1; fi
    row "$*" processes $n $? $t "$log"
}
# A signal to the last of n processes while they exchange. KILL: mpirun names it, status
# 137. STOP: all the others report it within the timeout, status 1. s: from the signal on.
struck() {          # signal n
    last=$(($2 - 1)) log=$L/$1-$2.txt i=0; rm -f "$L"/id.*
    KCP_TIMEOUT_S=8 timeout 60 mpirun -n $2 sh "$L/rank" "$program" --device \
        --exchange 0 >"$log" 2>&1 & all=$!
    until grep -q 'exchange trials' "$log" || [ $i = 300 ]; do
        sleep 0.1; i=$((i + 1)); done
    sleep 3
    t=$(now); kill -$1 "$(cat "$L/id.$last")"
    wait $all; status=$?
    kill -KILL "$(cat "$L/id.$last")" 2>/dev/null
    case $1.$status in
        KILL.137) grep -q "rank $last .*signal 9" "$log" && status=0 ;;
        STOP.1) [ "$(grep -c 'in exchange.* made no progress' "$log")" -ge $last ] &&
                    status=0 ;;
    esac
    row "$1 rank $last of --exchange 0" processes $2 $status $t "$log"
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
echo; nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c
shown <"$table"
tar czf "$OUT/nccl_logs.tgz" -C "$L" . && rm -rf "$L"
exit $failed
