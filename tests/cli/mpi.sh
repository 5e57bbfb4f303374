#!/bin/sh
# mpi.sh -- tests ranks as MPI processes: correct runs, lost ranks, refused calls.
# Book: chapter 20.
# Without mpirun, only a few tests run. STEP='mpirun.mpich -n' selects another launcher.
. "$(dirname "$0")/run_common.sh"
check=$B/kcp-check calls=$B/kcp-wrong-calls
step=${STEP:-mpirun -n}
# one STATUS WORDS command...: checks that the command exits with STATUS and prints WORDS.
one() {
    want=$1 words=$2; shift 2
    timeout 200 "$@" >output 2>&1
    got=$?
    case $step.$want in *mpich*.[1-9]) [ $got = 0 ] || want=$got ;; esac  # 1, 2 or 9
    [ $got = "$want" ] && grep -q -- "$words" output && pass ||
        fail "$*: status $got, no '$words' in $(cat output)"
}
# expect STATUS WORDS N command...: like `one`, with N processes.
expect() { want_=$1 words_=$2 n_=$3; shift 3; one "$want_" "$words_" $step $n_ "$@"; }

# The sources must open no port, and libkcp.so must not need MPI.
(cd "$top" && git grep -nE '\b(listen|accept) ?\(' -- '*.[ch]' '*.cu' '*.cuh'
 cd "$top" && git grep -n 'sys/socket\.h' -- comm ref bench) >output 2>/dev/null
[ -s output ] && fail "a socket: $(cat output)" || pass
ldd "$B/libkcp.so" >output && ! grep -q libmpi output && pass || fail "libkcp.so: $(cat output)"
# Tests wrong values of environment variables, and launchers of another MPI.
one 2 '^kcp-check: KCP_TIMEOUT_S=soon: expected' env KCP_TIMEOUT_S=soon "$check"
# In a build without MPI, a launcher is refused with a message.
${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -I"$top/ref" -I"$top" "$top/tests/cli/wrong_calls.c" \
    "$top/comm/backend/mpi_launch.c" -L"$B" -lkcp -Wl,-rpath,"$B" -o none >output 2>&1 ||
    fail "without MPI: $(cat output)"
one 2 'mpirun started 2 processes: this program was built without MPI' \
    env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 ./none cross
one 2 'built without MPI' ./none cross
if ! command -v ${step%% *} >/dev/null || ! ldd "$check" | grep -q 'libmpi'; then
    echo "mpi.sh: no mpirun, or built without MPI: $passed passed, $failed failed"
    [ $failed -eq 0 ]
    exit
fi
for launcher in PMI_SIZE=4,PMI_RANK=0 SLURM_STEP_NUM_TASKS=4,SLURM_PROCID=1 \
    WORLD_SIZE=2,RANK=0; do
    one 2 'processes, MPI knows of 1' env $(echo $launcher | tr , ' ') \
        timeout 30 "$check" --exchange 1
done

# Tests the judge over processes: exchanges, forward, backward, mutants of halos, and
# messages about a wrong number of ranks.
for n in 2 3 4 7; do expect 0 ' 0 numbers wrong' $n "$check" --ranks $n --exchange 20; done
for s in 08 13; do
    expect 0 '  ok      ref .* messages' 3 "$check" --stage $s --variant ref
done
expect 0 '^OK: .* 0 survived' 4 "$check" --stage 14
expect 0 'mutant_no_M .* not decidable with R = 2' 2 "$check" --stage 08
expect 2 "stage 05 runs on one rank: start it without mpirun" 2 "$check" --stage 05
expect 2 "found 'R=2', expected R=3" 3 "$check" --stage 13 --variant ref \
    --case 'live gdn R=2 lengths=30'

# kcp-run must give equal bits over processes and over threads.
same_bits() {
    R=$1; shift
    rm -rf processes
    gives threads --ranks "$R" "$@"
    expect 0 . $R "$run" --in in --out processes "$@"
    alike processes threads 0
}
arrays layer in 48 4 2 4 6 5 kda raw 1 || exit 1
forms=$("$run" --help | sed -n 's/^ *--form \([a-z_|]*\)$/\1/p' | tr '|' ' ')
[ -n "$forms" ] || { echo "mpi.sh: kcp-run --help names no form"; exit 1; }
for form in $forms; do
    same_bits 3 --l2norm --beta sigmoid --form $form
done
same_bits 2 --l2norm --beta sigmoid --canonical 4
same_bits 4 --l2norm --beta sigmoid --form scan --cuts 0,0,4,4,48
has processes/dq.npy
mv in layer; arrays layer in 45 3 2 4 3 5 kda free 1
same_bits 3 --gate softplus --sum local
rm -rf in; mv layer in
expect 2 'found 2 processes, expected as many' 2 "$run" --in in --out no --ranks 3
# Bad input must give one line and status 2, even if only one rank has bad input.
bad() {
    expect 2 "$@"
    [ "$(grep -c '^kcp-run:' output)" = 1 ] && pass || fail "${*}: not one line: $(cat output)"
}
mkdir full && : >full/x
bad 'rank 0: --chunk: found' 3 "$run" --in in --out no --chunk 0
bad 'rank 0: .*no-such-folder' 3 "$run" --in no-such-folder --out no
bad 'rank 0: --out: full is not empty' 3 "$run" --in in --out full
bad 'rank 2: --form: ' 2 "$run" --in in --out no : -n 1 "$run" --in in --out no --form no
[ -e no ] && fail "a run with bad input has written outputs"
# If the arguments of ranks differ, the message must name the argument and both values.
expect 1 'rank 0: .*scale: rank 1 has 2, rank 0 has 1' 1 "$run" --in in --out no --scale 1 : -n 1 "$run" --in in \
    --out no --scale 2
[ -e no ] && fail "ranks with unequal arguments have written outputs"

# A send and a receive of unequal sizes must give an error on each rank, not a hang.
for way in unequal unequal_long short long; do
    expect 1 'sent a message of another size' 3 env KCP_TIMEOUT_S=5 "$calls" $way
done
expect 1 'rank 2 of 3: .*rank 1: out of paper' 3 "$calls" fails
expect 1 'did not complete within 2 s' 3 env KCP_TIMEOUT_S=2 "$calls" disagree
expect 2 'rank 1 refuses its options' 3 "$calls" alone
for way in peer empty cross; do expect 0 'status 0' 3 "$calls" $way; done

# struck SIGNAL STATUS WORDS N: sends SIGNAL to rank 2 of 4 during an exchange. At least N
# lines must contain WORDS.
cat >rank <<'END'
echo $$ >id.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec "$@"
END
struck() {
    rm -f id.*
    KCP_TIMEOUT_S=4 timeout 60 $step 4 sh rank "$check" --exchange 0 >output 2>&1 & all=$!
    i=0
    until grep -q 'exchange trials' output || [ $i = 300 ]; do sleep 0.1; i=$((i + 1)); done
    sleep 1
    began=$(date +%s)
    kill -$1 "$(cat id.2)"
    wait $all
    got=$? took=$(($(date +%s) - began))
    kill -KILL "$(cat id.2)" 2>/dev/null
    [ $got = $2 ] && [ $took -le 20 ] && [ "$(grep -c "$3" output)" -ge $4 ] && pass ||
        fail "$1: status $got after $took s: $(cat output)"
}
case $step in
    *mpich*) struck KILL 9 'EXIT CODE: 9' 1 ;;
    *) struck KILL 137 'process rank 2 .*signal 9' 1 ;;       # the launcher names it
esac
# The first rank that gives up names the rank from which it expects a message. The named
# rank may itself wait for rank 2.
struck STOP 1 'in exchange.* rank [0-3]: .* did not complete within 4 s' 3
echo "ranks over MPI: $passed passed, $failed failed"
[ $failed -eq 0 ]
