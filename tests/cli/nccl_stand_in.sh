#!/bin/sh
# nccl_stand_in.sh -- the NCCL backend on CPUs, over libraries that stand in for CUDA's
# runtime and NCCL: every form bit for bit, ranks that are lost, a watch that is late.
#
# Book: chapter 20, "What is promised to whom".  Checked by: tests/stand_in.mk.
# Usage: nccl_stand_in.sh BUILD [few]; ALL=1: ranks lost at every call, in every way, as
# .ci/nightly asks; few: one of each, for a build under a sanitizer.
# Next: ../20_clusters/stand_in/ranks.c.
#
# Of a lent communicator a rank is killed, stopped, aborted by its owner: named, also by
# ranks that hang in a call. It is freed, or left in order: no loss. KCP_WATCH=0: why
# nobody is named. A call that is captured first, a pair that talks first: nothing is
# asked of the others. Two communicators at once: each its own.
B=$(cd "${1:-build}" && pwd) || exit 2
cd "$(dirname "$0")/../20_clusters/stand_in" || exit 2
failed=0

# The stand-ins' own headers must say what CUDA's and NCCL's say, where there are some.
home=${CUDA_HOME:-/usr/local/cuda}
headers=""
if [ -f "$home/include/cuda_runtime_api.h" ] && [ -f "$home/include/nccl.h" ]; then
    for file in cudart.c moves.c libnccl.c; do
        ${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -fsyntax-only -isystem "$home/include" \
            "$file" || failed=1
    done
else
    headers=" (no headers of CUDA and NCCL to compare with)"
fi
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK KCP_RENDEZVOUS KCP_SECRET \
    KCP_TRUST_NETWORK KCP_JOB KCP_WATCH KCP_WINDOWS KCP_TIMEOUT_S KCP_STAND_IN_DROPS \
    SLURM_NTASKS OMPI_COMM_WORLD_SIZE TORCHELASTIC_RUN_ID
said=$(LD_LIBRARY_PATH="$B/stand_in" timeout 900 "$B/stand_in/kcp-stand-in" \
    ${2:-${ALL:+full}} 2>&1) || failed=1
echo "$said$headers"
exit $failed
