#!/bin/sh
# processes.sh -- ranks as processes on this machine, no GPU: right, lost, and refused.
#
# Book: chapter 20.  Checked by: make test, which runs it.  Next: ../judge/ranks.c.
program=${1:-build}/kcp-check
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0
wrong() { echo "processes.sh: $*"; failed=1; }
now() { date +%s; }
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK KCP_RENDEZVOUS KCP_TIMEOUT_S \
    KCP_SECRET KCP_TRUST_NETWORK KCP_JOB TORCHELASTIC_RUN_ID
export KCP_KEY_DIR="$dir/keys"

# start N options...: N processes with torchrun's variables, meeting through a file;
# their ids in $ids, what rank r says in $dir/r.
start() {
    n=$1; shift; ids=""; r=0
    while [ $r -lt $n ]; do
        WORLD_SIZE=$n RANK=$r LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n \
            KCP_RENDEZVOUS="file:$dir/meet" KCP_TIMEOUT_S=${timeout:-60} "$program" "$@" >"$dir/$r" 2>&1 &
        ids="$ids $!"; r=$((r + 1))
    done
}
id_of() { echo $ids | cut -d' ' -f$(($1 + 1)); }

# What is right: rank 0 reports, the others are silent.
start 3 --exchange 40
r=0
for id in $ids; do wait $id || wrong "exchange: rank $r exits with $?: $(cat "$dir/$r")"
    r=$((r + 1)); done
grep -q '^OK: 320 exchanges.* 0 numbers wrong' "$dir/0" || wrong "$(cat "$dir/0")"
[ -s "$dir/1" ] && wrong "rank 1 says $(cat "$dir/1")"
for stage in 08 13; do
    start 3 --stage $stage --variant ref
    for id in $ids; do wait $id || wrong "stage $stage: $(cat "$dir/0")"; done
    grep -q '  ok      ref .* messages' "$dir/0" ||
        wrong "stage $stage: $(cat "$dir/0")"
done
# Mutants too: two that only other ranks can show, and with FULL=1 all of stage 14.
fourteen() {                              # WORDS option...
    words=$1; shift
    start 4 --stage 14 "$@"
    for id in $ids; do wait $id || wrong "stage 14 $*: $(cat "$dir/0")"; done
    grep -q "$words" "$dir/0" || wrong "stage 14 $*: $(cat "$dir/0")"
}
if [ -n "$FULL" ]; then fourteen '^OK: .* 0 survived'
else
    fourteen '  ok      ref ' --variant ref
    fourteen '^OK: 1 mutants caught, 0 survived' --variant mutant_local_sum
    fourteen '^OK: 1 mutants caught, 0 survived' --variant mutant_x0_first_rank
fi

# A case of other ranks than there are is refused by all, and nobody waits.
start 3 --stage 13 --variant ref --case 'live gdn R=2 lengths=30'
for id in $ids; do wait $id; [ $? = 2 ] || wrong "R=2 on 3 processes: $(cat "$dir/0")"
done
grep -q "^kcp-check: --case: found 'R=2', expected R=3" "$dir/1" ||
    wrong "$(cat "$dir/1")"

# struck SIGNAL SECONDS: rank 2 of 4 gets it in the middle of an exchange. All others
# end with 1 and say who is lost. SECONDS is their timeout.
struck() {
    timeout=$2
    start 4 --exchange 0
    trap 'kill -KILL $ids; rm -rf "$dir"' EXIT
    i=0
    until grep -q 'exchange trials' "$dir/0" || [ $i = 600 ]; do
        sleep 0.1; i=$((i + 1)); done
    sleep 2
    kill -$1 $(id_of 2)
    began=$(now)
    (sleep 120; kill -KILL $ids) >/dev/null 2>&1 & dog=$!      # who never ends fails
    for r in 0 1 3; do
        wait $(id_of $r)
        [ $? = 1 ] || wrong "$1: rank $r does not end with 1"
        grep -q "rank 2 was lost in exchange" "$dir/$r" ||
            wrong "$1: rank $r says $(cat "$dir/$r")"
    done
    took=$(($(now) - began))
    kill $dog; wait $dog 2>/dev/null
    kill -KILL $(id_of 2) 2>/dev/null
    wait $(id_of 2) 2>/dev/null
    trap 'rm -rf "$dir"' EXIT
    # What was waited for: not 60 s. A busy machine has the rest of the time.
    [ $took -le 30 ] || wrong "$1: the others took $took s"
    timeout=""
}
# An end is known at once, and no timeout is waited for.
struck KILL 60
# Silence is known by the timeout, whatever was being sent when it began.
struck STOP 4

# One that never comes is named, in time.
began=$(now)
WORLD_SIZE=3 RANK=0 LOCAL_WORLD_SIZE=3 KCP_TIMEOUT_S=1 KCP_RENDEZVOUS="file:$dir/meet" \
    "$program" --exchange 1 >"$dir/0" 2>&1 && wrong "rank 0 alone is content"
grep -q 'rank 1 did not come in time (2 missing)' "$dir/0" || wrong "$(cat "$dir/0")"
[ $(($(now) - began)) -le 30 ] || wrong "rank 0 waited $(($(now) - began)) s, not one"

# Bad values: status 2, one line.
refuses() {
    want=$1; shift
    env "$@" "$program" --exchange 1 >"$dir/out" 2>"$dir/err"
    status=$?
    [ $status = 2 ] || wrong "$* exits with $status, not 2"
    [ "$(wc -l <"$dir/err")" = 1 ] || wrong "$* says $(cat "$dir/err")"
    grep -q "$want" "$dir/err" || wrong "$* says $(cat "$dir/err")"
}
refuses '^kcp-check: WORLD_SIZE=0: ' WORLD_SIZE=0 RANK=0
refuses '^kcp-check: RANK=3: ' WORLD_SIZE=3 RANK=3
refuses '^kcp-check: RANK=one: ' WORLD_SIZE=3 RANK=one
refuses '^kcp-check: LOCAL_RANK=-1: ' WORLD_SIZE=3 RANK=0 LOCAL_RANK=-1
refuses '^kcp-check: MASTER_PORT=70000: ' WORLD_SIZE=3 RANK=1 MASTER_PORT=70000
refuses '^kcp-check: KCP_TIMEOUT_S=soon: ' KCP_TIMEOUT_S=soon
refuses '^kcp-check: KCP_WATCH=off: expected a whole number from 0 to 1$' KCP_WATCH=off
refuses '^kcp-check: KCP_WINDOWS=yes: ' KCP_WINDOWS=yes
refuses '^kcp-check: KCP_RENDEZVOUS=tcp:x: ' WORLD_SIZE=3 RANK=1 KCP_RENDEZVOUS=tcp:x
refuses '^kcp-check: SLURM_PROCID=4: ' SLURM_NTASKS=4 SLURM_PROCID=4
refuses '^kcp-check: OMPI_COMM_WORLD_RANK= : ' OMPI_COMM_WORLD_SIZE=2 \
    OMPI_COMM_WORLD_RANK=' '
refuses '^kcp-check: RANK=1 without WORLD_SIZE: ' RANK=1
refuses '^kcp-check: WORLD_SIZE=2 without RANK: ' WORLD_SIZE=2
refuses '^kcp-check: OMPI_COMM_WORLD_RANK=1 without ' OMPI_COMM_WORLD_RANK=1
refuses '^kcp-check: PMI_SIZE=4: a launcher that is not known' PMI_SIZE=4 PMI_RANK=0
refuses '^kcp-check: MV2_COMM_WORLD_SIZE=2: ' MV2_COMM_WORLD_SIZE=2
refuses '^kcp-check: PMI_RANK=0: ' PMI_RANK=0
refuses '^kcp-check: MASTER_ADDR=: ' OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 \
    OMPI_COMM_WORLD_LOCAL_SIZE=1
SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0 "$program" --exchange 2 >"$dir/out" 2>&1 ||
    wrong "a batch script's own shell is taken for srun: $(cat "$dir/out")"

# Slurm's variables, by TCP; and mpirun itself.
r=0; ids=""
while [ $r -lt 2 ]; do
    SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 \
        SLURM_PROCID=$r SLURM_LOCALID=$r SLURM_NODELIST='localhost' KCP_TIMEOUT_S=60 \
        "$program" --exchange 5 >"$dir/$r" 2>&1 &
    ids="$ids $!"; r=$((r + 1))
done
for id in $ids; do wait $id || wrong "srun's variables: $(cat "$dir/0" "$dir/1")"; done
said="mpirun not found: torchrun's and Slurm's variables only"
if command -v mpirun >/dev/null 2>&1; then
    said="mpirun too"
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 KCP_TIMEOUT_S=60 \
        mpirun --oversubscribe -n 3 "$program" --exchange 10 >"$dir/0" 2>&1 ||
        wrong "mpirun: $(cat "$dir/0")"
    grep -q '3 processes of mpirun' "$dir/0" || wrong "mpirun: $(cat "$dir/0")"
fi
# Ranks that end at once, of which none has said a word: nobody waits for one that it has
# not told of its end, until KCP_TIMEOUT_S. One in three runs did.
begin=$(now)
for i in 1 2 3 4 5 6 7 8 9 10; do
    KCP_TIMEOUT_S=40 sh "$(dirname "$0")/../share_gpu.sh" 4 env CUDA_VISIBLE_DEVICES= \
        "$program" --device --quiet --stage 13 --variant v4_scans_finish >"$dir/out" 2>&1
done
[ $(($(now) - begin)) -lt 40 ] || wrong "ranks that end at once: $(($(now) - begin)) s"
# share_gpu.sh, which wants no GPU of a command that wants none: rank 0 is heard, then
# what others say; the worst status is handed on, also that of a rank that is killed.
shared() {                                # STATUS command...
    want=$1; shift
    sh "$(dirname "$0")/../share_gpu.sh" "$@" >"$dir/out" 2>"$dir/err"
    [ $? = "$want" ] || wrong "share_gpu.sh $*: $(cat "$dir/out" "$dir/err")"
}
shared 0 3 "$program" --stage 08 --variant ref
grep -q '  ok      ref .* messages' "$dir/out" || wrong "shared: $(cat "$dir/out")"
shared 2 3 "$program" --stage 13 --variant ref --case 'live gdn R=2 lengths=30'
[ "$(grep -c '^rank [012]: kcp-check: --case' "$dir/err")" = 3 ] ||
    wrong "shared, refused: $(cat "$dir/err")"
shared 137 2 sh -c 'echo "$NCCL_HOSTID"; [ "$RANK" = 0 ] || kill -9 $$'
[ -s "$dir/out" ] || wrong 'shared: no host of its own'
shared 2 x
shared 2 2
[ $failed = 0 ] && echo "processes.sh: right, lost and refused as it should be; $said"
exit $failed
