#!/bin/sh
# run_processes.sh -- kcp-run as a launcher's processes: the bits that threads give.
#
# Book: chapter 20.  Checked by: make test, which runs it.  Next: bench/run/processes.c.
# Usage: run_processes.sh BUILD.
. "$(dirname "$0")/run_common.sh"

# as_processes R DIR option...: R processes of one job, by torchrun's variables.
as_processes() {
    R=$1 to=$2 ids="" r=0 ended=0; shift 2
    while [ $r -lt "$R" ]; do
        WORLD_SIZE=$R RANK=$r LOCAL_WORLD_SIZE=$R "$run" --in in --out "$to" "$@" \
            >"said.$r" 2>&1 & ids="$ids $!"
        r=$((r + 1))
    done
    for id in $ids; do wait "$id" || ended=1; done
    return $ended
}
# same_bits R option...: as R processes and as R threads; only rank 0 prints.
same_bits() {
    R=$1; shift
    rm -rf processes
    gives threads --ranks "$R" "$@"
    as_processes "$R" processes "$@" || fail "$* of $R: $(cat said.*)"
    [ -s said.1 ] && fail "rank 1 prints $(cat said.1)"
    alike processes threads 0
}
"$arrays" layer in 48 4 2 4 6 5 kda raw 1 || exit 1
kda="--l2norm --beta sigmoid"
# shellcheck disable=SC2086
{
same_bits 3 $kda --form chain
same_bits 2 $kda --canonical 4
same_bits 4 $kda --form scan --cuts 0,0,4,4,48
for form in all_gather chain pipeline scan; do same_bits 4 $kda --form $form --wire bf16; done
}
rm -rf in; "$arrays" layer in 45 3 2 4 3 5 kda free 1
same_bits 3 --gate softplus --sum local
rm -rf in
"$B/kcp-check" --emit e --stage 16 --case 'live gla HV=2 K=8 V=6 C=16 lengths=90,70 h0' >stdout
mv e/case_000/forward in
same_bits 3 --model gla --chunk 16 --form scan
# What one process cannot do it reports; the others do not wait without end.
RANK=1 WORLD_SIZE=2 "$run" --in in --out no --model gla --ranks 3 >said 2>&1
[ $? = 2 ] && grep -q "^kcp-run: rank 1: torchrun" said && pass || fail "$(cat said)"
RANK=0 WORLD_SIZE=2 KCP_TIMEOUT_S=1 "$run" --in in --out no --model gla >said 2>&1
[ $? = 1 ] && grep -q "rank 1" said && pass || fail "$(cat said)"
[ -e no ] && fail "output of a job that did not meet"
by="mpirun not found"
if command -v mpirun >/dev/null 2>&1; then
    by="mpirun too"
    rm -rf processes
    gives threads --model gla --ranks 3
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe \
        -n 3 "$run" --in in --out processes --model gla >said 2>&1 || fail "mpirun: $(cat said)"
    alike processes threads 0
fi
echo "run_processes.sh: $passed passed, $failed failed; $by"
[ $failed = 0 ]
