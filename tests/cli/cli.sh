#!/bin/sh
# cli.sh -- checks uses of kcp-check that need several command lines: the table of paths,
# cases written and judged again.
# Book: CONTRIBUTING.md.
# Usage: cli.sh BUILD.
. "$(dirname "$0")/run_common.sh"
holds() {                        # WHAT command...: prints WHAT if the command fails
    what=$1; shift
    "$@" && pass || fail "$what: $(head -2 stderr) $(tail -1 stdout)"
}
expect() {                         # STATUS PATTERN option...: runs kcp-check
    want=$1 words=$2; shift 2
    "$B/kcp-check" "$@" >stdout 2>stderr
    holds "$*: status $?, expected $want" [ $? = "$want" ]
    holds "$*: no '$words'" grep -q -e "$words" stdout stderr
}
lacks() { ! grep -q -e "$1" stdout; }

# ---- lists and the table of paths
"$B/kcp-check" --list --device >stdout 2>stderr
holds '--list --device has host variants' lacks 'twin\|mutant'
expect 0 '^03_wy ' --list --stage 03
holds '--list --stage 03 has other stages' [ "$(grep -vc '^03_wy' stdout)" = 0 ]
expect 0 '^path' --paths
holds 'a row of --paths does not have 13 fields' [ "$(awk -F'\t' '{ print NF }' stdout | sort -u)" = 13 ]
holds "field 12 is not 'here' or 'not here: WHY'" [ "$(sed 1d stdout | cut -f12 | grep -cv '^here$\|^not here: .')" = 0 ]
expect 0 '^forward_kda_narrow' --paths --stage 8
holds '--paths --stage 8 has other stages' [ "$(cut -f2 stdout | sort -u | wc -l)" = 2 ]
export KCP_ARCH=sm_80
expect 0 '^forward_kda_narrow.*	none$' --paths --cases --stage 8
unset KCP_ARCH
expect 0 'ok .* ref ' --stage 14 --variant ref
holds 'a path was not judged' lacks 'that are here were not'
if "$B/kcp-check" --stage 07 --device | grep -q 'no device'; then
    expect 0 INCOMPLETE --stage 07 --device
    expect 3 INCOMPLETE --stage 07 --device --strict
fi
expect 2 '^kcp: out of memory' --stage 05 --variant twin \
    --case 'K=1000 V=1000 H=1000 lengths=1000000'

# ---- emitted cases, computed by cp (stage 12 copies the state of one segment), then
# judged: correct, wrong and missing outputs
expect 0 'wrote 2 cases of 12_h0' --emit e --stage 12 --seed 9 --case \
    'kda HV=2 K=4 V=3 lengths=9 h0; kda HV=2 K=4 V=3 lengths=70 h0'
for d in e/case_*; do
    cp "$d/forward/h_in.npy" "$d/forward/h_kept.npy"
    cp "$d/backward/h_kept_in.npy" "$d/backward/h_back.npy"
done
expect 0 '0 failed' --foreign e
cp e/case_001/forward/h_in.npy e/case_000/forward/h_kept.npy
expect 1 'case_000/forward: h_kept' --foreign e
words=$(sed -n "s/.*repeat: .*--case '\(.*\)'$/\1/p" stdout)
expect 0 '1 cases' --emit again --stage 12 --case "$words"
holds 'the printed --case gives other inputs' cmp e/case_000/forward/h_in.npy again/case_000/forward/h_in.npy
ls -R e >before
expect 2 'cases.txt' --emit e --stage 12
holds 'a refused --emit changes the folder' [ "$(ls -R e)" = "$(cat before)" ]
rm -rf e
expect 0 'cases of 03_wy in e, inputs rounded to bf16' --emit e --small --stage 03 --storage bf16
expect 2 'no outputs' --foreign e
holds '--foreign without outputs does not print one line' [ "$(cat stdout stderr | wc -l)" = 1 ]
cp e/case_001/forward/k.npy e/case_000/forward/A.npy
expect 1 'case_000/forward/.*npy' --foreign e
expect 1 'case_001/forward: no output' --foreign e
rm -rf e again
expect 0 'cases of 08_forward' --emit e --stage 08 --shapes 64x128
holds '--shapes 64x128 has no other K' [ "$(cat e/case_*/forward/case.txt | grep '^K ' | sort -u)" = 'K 64' ]

echo "cli.sh: $passed passed, $failed failed"
[ $failed = 0 ]
