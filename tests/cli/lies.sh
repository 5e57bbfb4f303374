#!/bin/sh
# lies.sh -- checks that a variant fails with a message if it crashes, hangs, exits,
# refuses, or differs between runs, and that an object without a variant is refused. The
# command that kcp-check prints must fail likewise.
# Book: CONTRIBUTING.md, "How the judge works".
# Usage: lies.sh BUILD.
. "$(dirname "$0")/run_common.sh"
object() {                       # SOURCE OBJECT option...
    from=$1 to=$2; shift 2
    ${CC:-cc} -std=c11 -O1 -shared -fPIC -I"$top/ref" "$@" "$from" -o "$to" ||
        fail "$from $* does not compile"
}
# judged STATUS PATTERN option...: checks kcp-check's status and output. again: checks
# that the command that kcp-check printed fails with the same first line.
judged() {
    want=$1 words=$2; shift 2
    timeout 100 "$B/kcp-check" "$@" >output 2>&1
    status=$?
    if [ $status != "$want" ]; then fail "$name: status $status: $(tail -1 output)"
    elif ! grep -q -e "$words" output; then fail "$name: no '$words': $(tail -3 output)"
    else pass; fi
}
again() {
    sed -n 's/^ *case [0-9]* [a-z0-9 ]*: //p' output | head -1 >command
    grep '^  FAIL ' output | head -1 >before
    timeout 100 sh ./command >output.again 2>&1
    [ $? = 1 ] && [ -s command ] && grep '^  FAIL ' output.again | head -1 | cmp -s before - &&
        pass || fail "$name: the command '$(cat command)': $(grep FAIL output.again | head -1)"
}

# ---- variants of liar.c: status, pattern, whether the command is run again, options
while IFS='|' read -r name status words repeat options; do
    object "$top/tests/judge/plants/liar.c" liar.so -DLIE="$name"
    # shellcheck disable=SC2086
    eval "judged $status \"$words\" --stage 07 --variant ./liar.so $options"
    [ -z "$repeat" ] || again
done <<'END'
HONEST|0|^1 passed, 0 failed||
NOTHING|1|S head 0: .* was never written|again|
HONEST|0|^1 passed, 0 failed||--here
HONEST|2|^kcp-check: --variant.*07_merge||--stage 05
EXITS|1|liar: it ended its process with status 0||
EXITS_LATE|1|liar: it ended its process with status 0|again|
EXITS_LATE|1|case [0-9]* alone: .* --stage 07 --variant ./liar.so||
HANGS|1|liar: it ran past its time .*--limit 1|again|--limit 1
CRASHES|1|liar: it was killed by signal 11|again|
TAKES_MEMORY|1|liar: returned status 3||
REFUSES|1|nothing ran||
NAMED|2|mutant_liar||
EXITS_LOADED|2|ended its process with status 0||
HANGS_LOADED|2|ran past its time||--limit 1
NO_BACKWARD|0|backward n/a in||
NO_BACKWARD|3| backward n/a in [0-9]||--quiet --strict
NO_FORWARD|3|^OK, INCOMPLETE: .* 1 n/a$||--quiet --strict
SOME|1|FAIL  .* n/a, but the kernel's record says 'any shape'|again|
SOME_SAID|0| takes [0-9]* of [0-9]* cases: V up to 8||--quiet
ONCE|1|FAIL|again|
ONCE_WIDE|1|differs when run again|again|
MARKS|1|case [0-9]* after .* --case '.*;|again|
TWICE|1|S differs when run again|again|--case 'kda H=1 HV=2 K=4 V=4 lengths=20 R=2 id=3007 again'
EMPTY|1|liar: S head|again|
EMPTY|0|^1 passed||--reference ./liar.so
END
# Without --stage; with a file name that the printed command must quote; as a reference.
judged 1 'FAIL .*07_merge liar: ' --variant ./liar.so
cp liar.so 'a b.so'
judged 1 'a b.so' --stage 07 --variant './a b.so' --seed 5
again
judged 1 FAIL --stage 07 --variant twin --reference ./liar.so
again
for stage in '' '--stage 05'; do
    # shellcheck disable=SC2086
    judged 2 '^kcp-check: --reference.*07_merge' --reference ./liar.so $stage
done
# Files that are no shared object, or whose kcp_variant is missing, NULL or no record.
: >empty.so
judged 2 'empty.so' --variant ./empty.so
for name in '' 'char *kcp_variant;' 'static char record[400]; char *kcp_variant = record;'; do
    echo "$name" >hollow.c
    object hollow.c hollow.so
    judged 2 'kcp_variant' --variant ./hollow.so
done
if "$B/kcp-check" --stage 07 --device | grep -q 'no device'; then
    object "$top/tests/judge/plants/liar.c" liar.so -DLIE=NO_GPU
    judged 1 'nothing ran' --stage 07 --variant ./liar.so
fi
# ---- a trial of 13 also judges its forward: correct, wrong values, out-of-bounds write
while IFS='|' read -r name status words; do
    object "$top/tests/judge/plants/behind.c" behind.so -DWRONG="$name"
    judged "$status" "$words" --stage 13 --variant ./behind.so --case \
        'live kda R=2 HV=2 K=8 V=6 C=16 lengths=40,9 h0 dht save=all' --ranks 2
    [ "$status" = 0 ] || again             # the command contains the number of ranks
done <<'END'
0|0|^1 passed, 0 failed
1|1|behind: forward: o rank 0 head 0: error
1|1| alone: .* --ranks 2$
2|1|behind: rank 0 wrote past forward's ht
END

echo "lies.sh: $passed passed, $failed failed"
[ $failed = 0 ]
