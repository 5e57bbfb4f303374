#!/bin/sh
# run_processes.sh -- kcp-run as a launcher's processes: the bits that threads give.
#
# Book: chapter 20.  Checked by: make test, which runs it.  Next: bench/run/processes.c.
. "$(dirname "$0")/run_common.sh"

# same_bits R options...: as R processes and as R threads, the same files and bits; only
# rank 0 speaks.
same_bits() {
    R=$1; shift
    rm -rf threads processes
    gives threads --ranks "$R" "$@"
    as_processes "$R" processes "$@" || fail "$* of $R: $(cat said.*)"
    [ -s said.1 ] && fail "rank 1 says $(cat said.1)"
    if diff -r threads processes >stderr; then pass
    else fail "$* of $R: $(head -5 stderr)"; fi
}
"$arrays" layer in 13 4 2 4 3 5 kda raw 1 || exit 1
same_bits 3 --l2norm --beta sigmoid --form chain
same_bits 2 --l2norm --beta sigmoid --canonical 4
same_bits 4 --l2norm --beta sigmoid --form scan --cuts 0,0,4,4,13
[ -e processes/dq.npy ] || fail "no gradients were compared"
# What one process cannot do, it says, and the others do not wait for ever.
RANK=1 WORLD_SIZE=2 "$run" --in in --out no --ranks 3 >said 2>&1
[ $? = 2 ] && grep -q "^kcp-run: rank 1: torchrun: found 2 processes" said && pass ||
    fail "$(cat said)"
RANK=0 WORLD_SIZE=2 KCP_TIMEOUT_S=1 "$run" --in in --out no >said 2>&1
[ $? = 1 ] && grep -q "rank 1 did not come in time" said && pass || fail "$(cat said)"
[ -e no ] && fail "output of a job that did not meet"
by="mpirun not found"
if command -v mpirun >/dev/null 2>&1; then
    by="mpirun too"
    rm -rf threads processes
    gives threads --ranks 3
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe \
        -n 3 "$run" --in in --out processes >said 2>&1 || fail "mpirun: $(cat said)"
    if diff -r threads processes >stderr; then pass; else fail "mpirun: $(head -5 stderr)"; fi
fi
echo "kcp-run as processes, bit for bit: $passed passed, $failed failed; $by"
[ $failed -eq 0 ]
