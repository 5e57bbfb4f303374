#!/bin/sh
# share_gpu.sh -- runs R ranks over NCCL on one GPU, as if on R hosts.
# Book: CONTRIBUTING.md, "How the judge works".
# Usage: share_gpu.sh R COMMAND... LIMIT= limits the seconds (600).
#
# NCCL refuses two ranks on one GPU unless the ranks are on different hosts. So each
# process sets a different host id (NCCL_HOSTID), and the processes communicate over
# sockets of this machine. The traffic is NCCL's; the times mean nothing. COMMAND may be
# a Python program that torchrun starts elsewhere: the variables of torchrun are set.
R=${1:-}
case $R in '' | *[!0-9]* | 0)
    echo "share_gpu.sh: found '$R', expected a number of ranks, then a command" >&2
    exit 2 ;;
esac
shift
[ $# -gt 0 ] || { echo "share_gpu.sh: found no command, expected one" >&2; exit 2; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none \
    NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-lo}" job=kcp$$ \
    WORLD_SIZE="$R" LOCAL_WORLD_SIZE="$R" LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 \
    MASTER_PORT=$((20000 + $$ % 12000))
exec timeout "${LIMIT:-600}" mpirun -n "$R" sh -c \
    'RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} && export RANK &&
    NCCL_HOSTID=$job.$RANK exec "$@"' sh "$@"
