#!/bin/sh
# lies.sh -- a variant that crashes, hangs, exits or refuses is a failure, and is named.
#
# Book: CONTRIBUTING.md, "How the judge works".  Checked by: the honest one, which passes.
# Usage: lies.sh BUILD.  Next: tests/judge/plants/liar.c.
B=$(cd "${1:-build}" && pwd) || exit 1
top=$PWD
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
cd "$W" || exit 1
passed=0 failed=0 ids=
unset WORLD_SIZE RANK SLURM_NTASKS OMPI_COMM_WORLD_SIZE
fail() { failed=$((failed + 1)); echo "  FAIL  lies: $*"; }
pass() { passed=$((passed + 1)); }

# lie STATUS WORDS NAME option...: the judge ends with that status and says the words.
lie() {
    want=$1 words=$2 name=$3; shift 3
    ${CC:-cc} -std=c11 -O1 -shared -fPIC -I"$top/ref" -DLIE="$name" \
        "$top/tests/judge/plants/liar.c" -o liar.so || fail "$name does not compile"
    timeout 100 "$B/kcp-check" --stage 07 --variant ./liar.so "$@" >said 2>&1
    status=$?
    if [ $status -ne "$want" ]; then fail "$name: status $status: $(tail -1 said)"
    elif ! grep -q -- "$words" said; then fail "$name: no '$words': $(tail -3 said)"
    else pass; fi
}

# again: the command that the failure printed, as it stands there, fails in the same way.
again() {
    sed -n 's/^ *case [0-9]* [a-z0-9 ]*: //p' said | head -1 >command
    grep '^  FAIL ' said | head -1 >before
    timeout 100 sh ./command >said.again 2>&1
    status=$?
    if [ ! -s command ]; then fail "$name: no command is printed"
    elif [ $status -ne 1 ] || ! grep '^  FAIL ' said.again | head -1 | cmp -s before -
    then fail "$name: status $status of $(cat command): $(grep FAIL said.again | head -1)"
    else pass; fi
}

lie 0 '^1 passed, 0 failed' HONEST
lie 0 '^1 passed, 0 failed' HONEST --here
lie 1 'liar: it ended its process with status 0, without a verdict' EXITS
lie 1 'liar: it ended its process with status 0, without a verdict' EXITS_AT_ONCE
lie 1 'liar: it ended its process with status 0' EXITS_LATE
grep -q "case [0-9]* alone: .* --stage 07 --variant ./liar.so" said && pass || fail 'no case is named'
again
lie 1 'liar: it ran past its time .*--limit 1' HANGS --limit 1
grep -q 'went by without a verdict' said && pass || fail 'hangs, and is asked on and on'
again
lie 1 'liar: it was killed by signal 11' CRASHES
again
lie 1 'liar: it was killed by signal 9' KILLS_ITSELF
lie 1 'liar: returned status 3' TAKES_MEMORY
lie 1 'nothing ran: what was asked for' REFUSES
lie 2 'found .mutant_liar., expected a variant' NAMED
lie 2 'ended its process with status 0' EXITS_LOADED
lie 2 'ran past its time' HANGS_LOADED --limit 1
# A pass that is n/a is said, and counted, and no 0 under --strict.
lie 0 'backward n/a in' NO_BACKWARD
lie 3 ' backward n/a in [0-9]' NO_BACKWARD --quiet --strict
lie 3 ' forward n/a in [0-9]' NO_FORWARD --quiet --strict
grep -q '^OK, INCOMPLETE: .* 1 n/a$' said && pass || fail "n/a is not counted: $(tail -2 said)"
# "any shape" is a promise; what is refused is counted where less is promised.
lie 1 "FAIL  .* n/a, and its record says 'any shape'" SOME
again
lie 0 ' takes [0-9]* of [0-9]* cases: V up to 8' SOME_SAID --quiet
lie 1 'FAIL' ONCE
again
lie 1 'differs when run again' ONCE_WIDE       # and it refuses case 0
again
# What takes other calls before it to fail: they are in the command.
lie 1 'S differs when run again' MARKS
grep -q "case [0-9]* behind .* --case '.*;" said && pass || fail "no case before it: $(cat said)"
again
lie 1 'S differs when run again' TWICE --case 'kda H=1 HV=2 K=4 V=4 lengths=20 R=2 id=3007 again'
again
lie 1 'liar: S head' EMPTY             # in cases whose number says so
again
cp liar.so 'a b.so'
"$B/kcp-check" --stage 07 --variant './a b.so' --seed 5 >said 2>&1
again
"$B/kcp-check" --stage 07 --variant twin --reference ./liar.so >said 2>&1
again
if "$B/kcp-check" --stage 07 --device | grep -q 'no device'; then
    lie 1 'nothing ran: what was asked for' NO_GPU
fi

# ---- ranks: those that were asked for are in the command, and a launcher is named
cat >nothing.c <<'C'
#include "kcp.h"
static int run(void *args) { return args ? KCP_OK : KCP_BAD; }
static const struct kcp_variant nothing = { "14_conv", "nothing", "it writes nothing",
                                            KCP_F64, KCP_HOST, "any shape", run, NULL };
const struct kcp_variant *const kcp_variant = &nothing;
C
${CC:-cc} -std=c11 -shared -fPIC -I"$top/ref" nothing.c -o nothing.so || fail 'nothing.c'
name=nothing ranked='--stage 14 --variant ./nothing.so --ranks 2' case='kda lengths=20 R=2'
"$B/kcp-check" $ranked --case "$case" >said 2>&1
grep -q ' alone: .* --ranks 2$' said && pass || fail "--ranks is not said: $(cat said)"
again
for r in 1 0; do
    WORLD_SIZE=2 RANK=$r LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 KCP_RENDEZVOUS="file:$W/meet" \
        KCP_KEY_DIR="$W/keys" KCP_TIMEOUT_S=60 "$B/kcp-check" $ranked \
        --case "$case" >said.$r 2>&1 &
    ids="$ids $!"
done
wait $ids
grep -q ' alone, under a launcher with 2 ranks (torchrun): .* --ranks 2$' said.0 && pass ||
    fail "no launcher is named: $(cat said.0)"

# ---- of 13's trials the forward before it is judged, in a shared object's process too
# behind WRONG STATUS WORDS
behind() {
    ${CC:-cc} -std=c11 -O1 -shared -fPIC -I"$top/ref" -DWRONG="$1" \
        "$top/tests/judge/plants/behind.c" -o behind.so || fail 'behind.c does not compile'
    timeout 100 "$B/kcp-check" --stage 13 --variant ./behind.so --case \
        'live kda R=2 HV=2 K=8 V=6 C=16 lengths=40,9 h0 dht save=all' >said 2>&1
    status=$?
    if [ $status -ne "$2" ]; then fail "behind $1: status $status: $(tail -1 said)"
    elif ! grep -q -- "$3" said; then fail "behind $1: no '$3': $(tail -3 said)"
    else pass; fi
}
behind 0 0 '^1 passed, 0 failed'
behind 1 1 'behind: forward: o rank 0 head 0: error'
behind 2 1 "behind: rank 0 wrote past forward's ht"

# ---- mutate.sh finds mistakes, and refuses what is no file; it calls this file too
if [ -z "${MUTATED:-}" ]; then
(cd "$top" && JOBS=1 sh tests/mutate.sh "$B" 1 7 ref/04_chunk.c) >said 2>&1 &&
    grep -q '^mutate: seed 7: 1 caught, 0 survived' said && pass ||
    fail "mutate: $(tail -2 said)"
(cd "$top" && sh tests/mutate.sh "$B" 2 1 ref/none.c) >said 2>&1
[ $? = 2 ] && grep -q "FILES: found 'ref/none.c', expected" said && pass ||
    fail 'mutate: a file that is none'
fi
echo "lies: $passed passed, $failed failed"
[ $failed -eq 0 ]
