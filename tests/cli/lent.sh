#!/bin/sh
# lent.sh -- a communicator that a caller lends, its NCCL a library of ours: no GPU.
#
# Book: chapter 20, "What is promised to whom".  Checked by: make test, which runs it.
# Next: lent.c.
# A rank is killed, stopped, aborted by its owner: named. It is freed, or left in order:
# no loss. KCP_WATCH=0: why nobody is named. A call that is captured first, a pair that
# talks first: nothing is asked of the others. Two communicators at once: each its own.
program=${1:-build}/kcp-lent
unset KCP_TIMEOUT_S KCP_WATCH KCP_SECRET KCP_TRUST_NETWORK KCP_WINDOWS
timeout 120 "$program"
status=$?
[ $status = 0 ] || echo "lent.sh: $program ends with $status"
exit $status
