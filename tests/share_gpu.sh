#!/bin/sh
# share_gpu.sh -- R ranks over NCCL on one GPU: processes that NCCL takes for R hosts.
#
# Book: CONTRIBUTING.md, "How the judge works".  Checked by: cli/wrong_comm.sh, SHARED=1.
# Usage: share_gpu.sh R COMMAND...; LIMIT= seconds (600).  Next: cli/wrong_comm.sh.
#
# NCCL takes one rank per GPU, unless two ranks are on different hosts: each process names
# a host of its own (NCCL_HOSTID), and they exchange over this machine's sockets. That is
# slow and measures nothing, but every form, message and collective is NCCL's own.
R=${1:-}
case $R in '' | *[!0-9]* | 0)
    echo "share_gpu.sh: found '$R', expected a number of ranks, then a command" >&2
    exit 2 ;;
esac
shift
[ $# -gt 0 ] || { echo "share_gpu.sh: found no command, expected one" >&2; exit 2; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none \
    NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-lo}" job=kcp$$
exec timeout "${LIMIT:-600}" mpirun -n "$R" sh -c \
    'NCCL_HOSTID=$job.${OMPI_COMM_WORLD_RANK:-$PMI_RANK} exec "$@"' sh "$@"
