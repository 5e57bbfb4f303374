#!/bin/sh
# lanes_cli.sh -- lanes.sh itself: words whole and in order, side by side, a failure heard.
#
# Book: none.  Checked by: make test, which runs it.  Next: lanes.sh.
here=$(cd "$(dirname "$0")" && pwd)
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
wrong() { echo "lanes_cli.sh: $*"; exit 1; }
cd "$W" || exit 1
unset JOBS
# The first waits for the second, which ends at once: alone it would wait in vain.
cat >slow.sh <<'END'
i=0
until [ -e quick ] || [ $i = 600 ]; do sleep 0.1; i=$((i + 1)); done
echo "slow begins in $1"; [ -e quick ] || echo "alone"; echo "slow ends" >&2
END
cat >quick.sh <<'END'
echo "quick begins"; : >quick; echo "quick ends"
END
echo 'echo "bad begins"; exit 7' >bad.sh
echo ': >after' >after.sh
echo 'sleep 1; echo waited' >waits.sh
echo 'echo "$MAKEFLAGS"' >flags.sh

lanes() { sh "$here/lanes.sh" build "$@" >said 2>err; status=$?; grep -v '^seconds: ' said >words; }
lanes slow.sh quick.sh
printf 'slow begins in build\nslow ends\nquick begins\nquick ends\n' | cmp -s - words &&
    [ $status = 0 ] && [ ! -s err ] || wrong "two at once: status $status, $(cat said err)"
grep -q '^seconds: [0-9]*/[0-9]* [a-z]*\.sh, [0-9]*/[0-9]* [a-z]*\.sh$' said || wrong "$(tail -1 said)"
JOBS=1 lanes bad.sh after.sh
[ $status = 1 ] && [ ! -e after ] && grep -q '^bad begins$' said &&
    grep -q '^lanes.sh: bad.sh ends with 7$' said || wrong "bad: status $status, $(cat said)"
# What runs beside it ends, and its words come first; what comes after is not begun.
JOBS=2 lanes waits.sh bad.sh after.sh
[ $status = 1 ] && [ ! -e after ] && [ "$(head -2 words)" = "waited
bad begins" ] || wrong "beside another: $(cat said)"
# Behind --: in turn, beside the others, and heard as they are.
rm -f quick after
JOBS=1 lanes slow.sh -- quick.sh waits.sh
printf 'slow begins in build\nslow ends\nquick begins\nquick ends\nwaited\n' |
    cmp -s - words && [ $status = 0 ] || wrong "beside: status $status, $(cat said err)"
JOBS=1 lanes waits.sh -- bad.sh after.sh
[ $status = 1 ] && [ ! -e after ] && [ "$(head -2 words)" = "waited
bad begins" ] && grep -q '^lanes.sh: bad.sh ends with 7$' said ||
    wrong "bad behind --: status $status, $(cat said)"
JOBS=1 lanes bad.sh after.sh -- waits.sh
[ $status = 1 ] && [ ! -e after ] && [ "$(head -2 words)" = "bad begins
waited" ] || wrong "bad beside one that waits: status $status, $(cat said)"
JOBS=x lanes quick.sh
[ $status = 2 ] && [ "$(wc -l <err)" = 1 ] || wrong "JOBS=x: status $status, $(cat err)"
MAKEFLAGS=' -j2 --jobserver-auth=3,4 CUDA_HOME=none' lanes flags.sh
[ "$(head -1 said | tr -d ' ')" = 'CUDA_HOME=none' ] || wrong "make's places are handed on: $(cat said)"
# ---- seeds.sh: a row a seed and stage, what failed is heard, nothing is run again
mkdir judge
cat >judge/kcp-check <<'END'
#!/bin/sh
echo "$*" >>ran
case "$*" in *"--seed 2 --stage 05"*) echo "1 passed, 1 failed, 0 skipped"; exit 1 ;; esac
echo "3 passed, 0 failed, 1 skipped"
END
chmod +x judge/kcp-check
seeds() { STAGES="04 05" OPTIONS=--quick sh "$here/../seeds.sh" judge t.tsv "$@" >said 2>err; status=$?; }
seeds 1 2
[ $status = 1 ] && grep -q 'of 2 seeds 1 passed, 1 failed' said && [ "$(wc -l <t.tsv)" = 5 ] &&
    [ -s t.tsv.2.05 ] && [ ! -e t.tsv.1.04 ] && [ "$(grep -c -- --quick ran)" = 4 ] ||
    wrong "seeds: status $status, $(cat said err t.tsv)"
seeds 1
[ $status = 0 ] && [ "$(wc -l <ran)" = 4 ] || wrong "seeds again: status $status, $(cat said err)"
seeds x
[ $status = 2 ] && [ "$(wc -l <err)" = 1 ] || wrong "seeds x: status $status, $(cat err)"
echo "lanes_cli.sh: scripts side by side, words whole and in order, failures heard"
