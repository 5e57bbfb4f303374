#!/bin/sh
# run_processes.sh -- kcp-run as a launcher's processes: the bits that threads give.
#
# Book: chapter 20.  Checked by: make test, which runs it.  Next: bench/run/processes.c.
B=$(cd "${1:-build}" && pwd) || exit 1
run="$B/kcp-run" arrays="$B/kcp-arrays"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0
wrong() { echo "run_processes.sh: $*"; failed=1; }
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE \
    KCP_RENDEZVOUS KCP_SECRET KCP_TRUST_NETWORK KCP_JOB TORCHELASTIC_RUN_ID
export KCP_KEY_DIR="$dir/keys" KCP_TIMEOUT_S=60

# alike R options...: as R processes and as R threads, the same files and bits; only
# rank 0 speaks.
alike() {
    R=$1; shift
    rm -rf threads processes
    "$run" --in in --out threads --ranks $R "$@" >said 2>&1 || wrong "$(cat said)"
    ids="" r=0
    while [ $r -lt $R ]; do
        WORLD_SIZE=$R RANK=$r LOCAL_WORLD_SIZE=$R "$run" --in in --out processes "$@" \
            >"said.$r" 2>&1 & ids="$ids $!"; r=$((r + 1))
    done
    for id in $ids; do wait $id || wrong "$* of $R: $(cat said.*)"; done
    [ -s said.1 ] && wrong "rank 1 says $(cat said.1)"
    diff -r threads processes >said || wrong "$* of $R: $(head -5 said)"
}
"$arrays" layer in 13 4 2 4 3 5 kda raw 1 || exit 1
alike 3 --l2norm --beta sigmoid --form chain
alike 2 --l2norm --beta sigmoid --canonical 4
alike 4 --l2norm --beta sigmoid --form scan --cuts 0,0,4,4,13
[ -e processes/dq.npy ] || wrong "no gradients were compared"
# What one process cannot do, it says, and the others do not wait for ever.
RANK=1 WORLD_SIZE=2 "$run" --in in --out no --ranks 3 >said 2>&1
[ $? = 2 ] && grep -q "^kcp-run: rank 1: torchrun: found 2 processes" said ||
    wrong "$(cat said)"
RANK=0 WORLD_SIZE=2 KCP_TIMEOUT_S=1 "$run" --in in --out no >said 2>&1
[ $? = 1 ] && grep -q "rank 1 did not come in time" said || wrong "$(cat said)"
[ -e no ] && wrong "output of a job that did not meet"
said="mpirun not found"
if command -v mpirun >/dev/null 2>&1; then
    said="mpirun too"
    "$run" --in in --out threads --ranks 3 >said 2>&1
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe \
        -n 3 "$run" --in in --out processes >said 2>&1 || wrong "mpirun: $(cat said)"
    diff -r threads processes >said || wrong "mpirun: $(head -5 said)"
fi
[ $failed = 0 ] && echo "run_processes.sh: kcp-run as processes, bit for bit; $said"
exit $failed
