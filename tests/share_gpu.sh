#!/bin/sh
# share_gpu.sh -- R ranks over NCCL on one GPU: processes that NCCL takes for R hosts.
#
# Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/processes.sh.
# Usage: share_gpu.sh R COMMAND...; LIMIT= seconds (600).  Next: cli/wrong_comm.sh.
#
# NCCL wants a GPU a rank and refuses two ranks on one, unless they are on two hosts:
# each process says it is on its own (NCCL_HOSTID), and they talk over sockets of this
# machine. That is slow and measures nothing, but every form, message and collective is
# NCCL's own. What rank 0 says is printed, then what the others say on stderr. Status:
# the largest of any rank's.
R=${1:-}
case $R in '' | *[!0-9]* | 0)
    echo "share_gpu.sh: found '$R', expected a number of ranks, then a command" >&2
    exit 2 ;;
esac
shift
[ $# -gt 0 ] || { echo "share_gpu.sh: found no command, expected one" >&2; exit 2; }
dir=$(mktemp -d) || exit 1
ids=""
trap 'for id in $ids; do kill $id 2>/dev/null; done; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
unset MASTER_ADDR MASTER_PORT KCP_SECRET KCP_JOB TORCHELASTIC_RUN_ID SLURM_NTASKS \
    OMPI_COMM_WORLD_SIZE
export WORLD_SIZE="$R" LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 KCP_KEY_DIR="$dir/keys" \
    KCP_RENDEZVOUS="file:$dir/meet" NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-lo}"
r=$R
while [ "$r" -gt 0 ]; do
    r=$((r - 1))
    RANK=$r NCCL_HOSTID=kcp$$.$r timeout "${LIMIT:-600}" "$@" \
        >"$dir/$r.out" 2>"$dir/$r.err" </dev/null &
    ids="$! $ids"                       # rank 0 first
done
worst=0 r=0
for id in $ids; do
    wait "$id"
    status=$?
    [ $status -le $worst ] || worst=$status
done
cat "$dir/0.out"
while [ "$r" -lt "$R" ]; do
    sed "s/^/rank $r: /" "$dir/$r.err" >&2
    r=$((r + 1))
done
exit $worst
