#!/bin/sh
# nccl_stand_in.sh -- tests the NCCL backend on CPUs, over substitutes for the CUDA
# runtime and NCCL: every call, every form bit for bit, a late rank, a lost rank.
#
# Book: chapter 20, "What is promised to whom".  Checked by: tests/stand_in.mk.
# Usage: nccl_stand_in.sh BUILD [few]; with `few`, a rank is lost in only one form, for a
# build under a sanitizer.
# Next: ../20_clusters/stand_in/ranks.c.
B=$(cd "${1:-build}" && pwd) || exit 2
cd "$(dirname "$0")/../20_clusters/stand_in" || exit 2
failed=0

# The substitutes' headers must agree with CUDA's and NCCL's headers, if installed.
home=${CUDA_HOME:-/usr/local/cuda}
headers=""
if [ -f "$home/include/cuda_runtime_api.h" ] && [ -f "$home/include/nccl.h" ]; then
    for file in cudart.c libnccl.c; do
        ${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -fsyntax-only -isystem "$home/include" \
            "$file" || failed=1
    done
else
    headers=" (no headers of CUDA and NCCL to compare with)"
fi
unset KCP_WINDOWS KCP_TIMEOUT_S KCP_STAND_IN_DROPS
output=$(LD_LIBRARY_PATH="$B/stand_in" timeout 300 "$B/stand_in/kcp-stand-in" \
    $2 2>&1) || failed=1
echo "$output$headers"
exit $failed
