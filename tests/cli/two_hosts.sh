#!/bin/sh
# two_hosts.sh -- runs two ranks as if on two hosts: through the loopback network only.
# Book: chapter 20, "Slurm, and two hosts".
#
# Usage: two_hosts.sh [BUILD]. Needs mpirun and a build with MPI. Two processes of one
# machine get different NCCL_HOSTID. NCCL's P2P and shared memory are off, so NCCL sends
# through its network transport, over the interface lo; the script fails if NCCL's log names
# another transport. With one GPU both processes use it, and nothing is timed. Without a GPU
# only MPI over TCP on lo is tested. This is no run on two hosts: there is one clock, one
# memory and no network card. $OUT (BUILD/two_hosts) gets nccl.tsv and log.txt for
# records.py. LIMIT (300) seconds per job; ONLY, a pattern, selects jobs.
OUT=$(realpath -m "${OUT:-${1:-build}/two_hosts}") LIMIT=${LIMIT:-300}
seconds=${KCP_TIMEOUT_S:-30}
. "$(dirname "$0")/run_common.sh"
check=$B/kcp-check
command -v mpirun >/dev/null && ldd "$check" 2>/dev/null | grep -q libmpi || {
    echo "two_hosts.sh: no mpirun, or $check was built without MPI: nothing was run"; exit 0; }
mkdir -p "$OUT" && : >"$OUT/log.txt"
. "$top/bench/nccl_home.sh"
export OMPI_MCA_btl=self,tcp OMPI_MCA_pml=ob1 OMPI_MCA_btl_tcp_if_include=lo \
    OMPI_MCA_oob_tcp_if_include=lo
export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo
export KCP_TIMEOUT_S=$seconds
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
device= way="MPI over TCP"
machine="2 processes" driver=
[ "$gpus" = 0 ] || {
    device=--device way="NCCL through its network transport"
    smi=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)
    machine="2 x ${smi%%, *}" driver=${smi##*, }
    [ "$gpus" != 1 ] || machine="2 processes on one ${smi%%, *}"; }
echo "$machine, $driver, $(date -u +%F)" >"$OUT/machine.txt"
printf 'what\tranks\tok\tfailed\tlate\tseconds\tdate\tmachine\tdriver\tsays\n' >"$OUT/nccl.tsv"
# both ARGUMENT...: runs kcp-check in two processes with different NCCL_HOSTID.
both() {
    timeout "$LIMIT" mpirun -n 1 env NCCL_HOSTID=host-a "$check" $device "$@" : \
        -n 1 env NCCL_HOSTID=host-b "$check" $device "$@"
}
row() {                    # WHAT STATUS SECONDS SAYS: prints and records a job
    ok=0; [ "$2" != 0 ] || ok=1
    failed=$((failed + 1 - ok))
    printf '%s\t2\t%s\t%s\t0\t%s\t%s\t%s\t%s\t%s\n' "$1" $ok $((1 - ok)) "$3" \
        "$(date -u +%F)" "$machine" "$driver" "$4" >>"$OUT/nccl.tsv"
    printf 'two_hosts.sh: %-28s %-6s %4s s  %s\n' "$1" \
        "$([ $ok = 1 ] && echo passed || echo FAILED)" "$3" "$4"
}
job() {                    # WHAT COMMAND...: passes if the command's status is 0
    what=$1 began=$(date +%s); shift
    echo "$what" | grep -qE "${ONLY:-}" || return 0
    "$@" >"$OUT/output" 2>&1
    status=$?
    { echo "== $what: status $status"; cat "$OUT/output"; } >>"$OUT/log.txt"
    row "$what" $status $(($(date +%s) - began)) \
        "$(grep -E '^  FAIL|passed|wrong' "$OUT/output" | head -1 | cut -c1-90)"
}
# NCCL's log must name its socket transport, and no other.
transport() {
    NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET,P2P,SHM both --exchange 20 >"$OUT/info" 2>&1 &&
        grep -q 'via NET/Socket' "$OUT/info" &&
        ! grep -qE 'via (P2P|SHM|NET/IB)' "$OUT/info"
}
# A process that ends or stops must end the run within the timeout and 20 seconds more.
lost() {                   # SIGNAL
    KCP_TIMEOUT_S=8 both --exchange 0 >"$OUT/lost" 2>&1 &
    run=$! began=$(date +%s)
    sleep 6
    pid=$(pgrep -P "$(pgrep -P "$(pgrep -P $run -n timeout || echo $run)" -n mpirun)" kcp-check |
        tail -1)
    [ -n "$pid" ] && kill -"$1" "$pid" || { cat "$OUT/lost"; kill $run; return 1; }
    wait $run
    status=$?
    kill -KILL "$pid" 2>/dev/null
    cat "$OUT/lost"
    echo "status $status after $(($(date +%s) - began - 6)) s"
    [ $status != 0 ] && [ $(($(date +%s) - began)) -lt 34 ]
}
[ -z "$device" ] || job "transport" transport
job "exchanges" both --exchange 40
for s in 07 08 13 14; do job "stage $s" both --quick --stage $s; done
for signal in KILL STOP; do job "lost rank, $signal" lost $signal; done
[ "$gpus" -lt 2 ] || [ ! -x "$B/kcp-bench" ] || for m in kda gdn; do
    job "times, $m" timeout "$LIMIT" "$B/kcp-bench" --ranks 2 --model $m -T 32768 -H 32 \
        --stage 08 --save none -w 5 -n 20 --tsv "$OUT/${m}_two_hosts.tsv"
done
echo "two_hosts.sh: $machine, $way, over lo: $failed jobs failed"
[ $failed = 0 ]
