#!/bin/sh
# misuse.sh -- the tools beside kcp-run and kcp-check, given rubbish: a line, status 2.
#
# Book: chapter 20, "What is promised to whom".  Checked by: make test, which runs it.
# Usage: misuse.sh BUILD, in the tree's root.  Next: refusals.sh, the same of kcp-run.
#
# kcp-proxy, kcp-finish where it was built, kcp_check.py, make's own names and targets.
B=${1:-build}
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
failed=0 tried=0
wrong() { echo "misuse.sh: $*"; failed=1; }
# refuses WHAT IT SAYS, command...
refuses() {
    says=$1; shift
    tried=$((tried + 1))
    timeout 60 "$@" >"$W/out" 2>"$W/err"
    status=$?
    [ $status = 2 ] && [ "$(wc -l <"$W/err")" = 1 ] && grep -q -- "$says" "$W/err" ||
        wrong "$*: status $status, $(head -3 "$W/err")"
    [ ! -s "$W/out" ] || wrong "$* prints $(head -1 "$W/out")"
}

# ---- kcp-proxy
mkfifo "$W/pipe"
proxy=$B/kcp-proxy
if [ -x "$proxy" ]; then
    refuses 'expected a file of PTX' "$proxy"
    refuses 'expected a file of PTX' "$proxy" a b
    for x in "$W" "$W/nothing" "$W/pipe" /dev/null Makefile "$proxy"; do
        refuses 'expected a file of PTX' "$proxy" "$x"
    done
    kernel='.entry k(\n)\n{\n'
    printf "$kernel" >"$W/cut.ptx"
    refuses 'a kernel without its end' "$proxy" "$W/cut.ptx"
    write="st.shared.u32 [a], b;\n"
    printf "$kernel.loc 70000 1 1\n${write}bar.sync 0;\n}\n" >"$W/loc.ptx"
    refuses "a file's number" "$proxy" "$W/loc.ptx"
    { printf "$kernel"'brx.idx %%r1, '; for i in $(seq 70); do printf '$L%d, ' $i; done
        printf ';\n}\n'; } >"$W/far.ptx"
    refuses 'more than 64 targets' "$proxy" "$W/far.ptx"
    printf "${kernel}${write}wgmma.mma_async;\nbar.sync 0;\n}\n" >"$W/k.ptx"
    "$proxy" "$W/k.ptx" | grep -q '^k' || wrong "kcp-proxy sees nothing in a right file"
    [ ! -c /dev/full ] || {
        "$proxy" "$W/k.ptx" 2>"$W/err" >/dev/full
        [ $? = 2 ] && grep -q stdout "$W/err" ||
            wrong "kcp-proxy: a full disk is not said"
    }
fi

# ---- kcp-finish
finish=$B/kcp-finish
if [ -x "$finish" ]; then
    refuses "found '--colour'" "$finish" --colour
    refuses "found 'nothing'" "$finish" nothing
    refuses "found 'nothing'" "$finish" --times nothing
    refuses "found 'more'" "$finish" live more
fi

# ---- kcp_check.py
for python in "${PYTHON:-python3}" /usr/bin/python3; do
    "$python" -c "import numpy" 2>/dev/null && break
done
judge() { refuses "$1" "$python" tests/kcp_check.py $2; }
cat >"$W/mine.py" <<'END'
def none(case):
    return None


def inputs(case):
    return {n: getattr(case, n) for n in case.fields}
END
export PYTHONPATH="$W" PYTHONDONTWRITEBYTECODE=1
ok="mine:none --stage 12 --numpy --drawn --check $B/kcp-check"
if "$python" -c 'import numpy' 2>/dev/null; then
    judge 'required' ''
    judge 'required: --stage' 'mine:none'
    for x in 99 1 xx 00 ../../ref; do
        judge 'expected a stage' "mine:none --stage $x"; done
    for x in mine :none mine: mine:a:b mine/none; do
        judge 'expected module:function' "$x --stage 12"; done
    for x in -1 0 nan inf; do judge 'expected seconds' "$ok --limit $x"; done
    judge 'invalid float' "$ok --limit x"
    for x in "$W" /nowhere/x; do
        judge 'a file I can write' "$ok --json $x"
        judge 'a file I can write' "$ok --junit $x"; done
    for x in "$W" /nowhere Makefile; do judge 'check: found' "$ok --check $x"; done
    for x in true false; do judge 'writes no cases' "$ok --check /bin/$x"; done
    judge "found 'rubbish'" "$ok --case rubbish"
    judge "found '-5'" "$ok --seed -5"
    for x in 0 9 x; do judge 'cp: ' "$ok --cp $x"; done
    judge 'stage 12, expected one of ranks' "$ok --cp 2"
    judge 'shapes: found' "$ok --shapes 128"
    judge 'unrecognized' "$ok --colour blue"
    judge 'expected a function' "nowhere:none ${ok#mine:none}"
    judge 'expected a function' "mine:nothing ${ok#mine:none}"
    # A function that answers with inputs is refused; an earlier verdict stays whole.
    "$python" tests/kcp_check.py mine:inputs ${ok#mine:none} --json "$W/json" \
        --case 'kda lengths=9 h0; gdn lengths=20' >"$W/out" 2>&1
    [ $? = 1 ] && grep -q "expected one of the stage's" "$W/out" ||
        wrong "inputs as outputs: $(tail -1 "$W/out")"
    "$python" -m json.tool "$W/json" >/dev/null || wrong "no verdicts in --json"
else
    judge 'expected NumPy' "$ok"
fi

# ---- make
make="make --no-print-directory CUDA_HOME=none B=$W/b"
makes() {
    refuses "$1" sh -c "$make $2 >$W/said 2>$W/errors; s=\$?; head -1 $W/errors >&2
        exit \$s"
}
makes 'STAGES: found no such name' 'check STAGES=07'
makes 'CUDA_HOME=/nowhere: found no bin/nvcc' 'check CUDA_HOME=/nowhere'
makes 'NCCL_HOME=/nowhere: found no' 'check NCCL_HOME=/nowhere'
for x in x -3 0 "''"; do makes 'expected a number' "fuzz SECONDS=$x"; done
for x in x -3; do makes 'expected a number' "fuzz SEED=$x"; done
for x in zzz "''" ../07; do makes 'found no such lab' "lab LAB=$x"; done
for x in rel "''"; do makes 'expected a path from /' "install PREFIX=$x"; done
# What CONTRIBUTING says of mutate is taken.
$make -n mutate N=3 SEED=1 FILES=ref/04_chunk.c TABLE="$W/t" >"$W/out" 2>&1 ||
    wrong "make mutate: $(head -1 "$W/out")"
makes 'No rule to make target' 'chekc'
# Every function of the installed headers is given nothing in the judge's calls_nulls.
here=$(cd "$(dirname "$0")/../.." && pwd)
functions=0
for f in $(printf '#include "layer.h"\n#include "wire.h"\n' | ${CC:-cc} -E -P -I"$here/ref" - |
    grep -o 'kcp_[a-z0-9_]*(' | grep -v '^kcp_copy(' | sort -u); do
    functions=$((functions + 1))
    grep -qF "$f" "$here/tests/judge/self_nulls.c" ||
        wrong "$f) is not in tests/judge/self_nulls.c"
done
[ $functions -ge 60 ] || wrong "found $functions functions in the installed headers"
[ $failed = 0 ] && echo "misuse.sh: $tried commands refused, a line each"
exit $failed
