#!/bin/sh
# cli.sh -- kcp-check's command line: every option works, every bad input is refused.
#
# Book: CONTRIBUTING.md.  Checked by: a refusal that does not come, a word that differs.
# Usage: cli.sh BUILD.  Next: run_cli.sh, the same for kcp-run.
B=$(cd "${1:-build}" && pwd) || exit 1
here=$(cd "$(dirname "$0")" && pwd)
W=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$W"; rm -rf "$W"' EXIT
cd "$W" || exit 1
check="$B/kcp-check" passed=0 failed=0
unset WORLD_SIZE RANK SLURM_NTASKS OMPI_COMM_WORLD_SIZE
fail() { failed=$((failed + 1)); echo "  FAIL  kcp-check: $*"; }
pass() { passed=$((passed + 1)); }

# refused WHAT option...: status 2, nothing on stdout, one line that names WHAT.
refused() {
    what=$1; shift
    "$check" "$@" >stdout 2>stderr
    status=$?
    if [ $status -ne 2 ]; then fail "status $status for $*: $(head -1 stderr)"
    elif [ "$(wc -l <stderr)" -ne 1 ]; then fail "$(wc -l <stderr) lines for $*"
    elif ! grep -q -- "^kcp-check: .*$what" stderr || ! grep -q ' expected ' stderr
    then fail "no '$what' and 'expected' for $*: $(cat stderr)"
    elif [ -s stdout ]; then fail "output for $*: $(head -1 stdout)"
    else pass; fi
}
# says STATUS WORDS option...: that status, and WORDS in what it prints.
says() {
    want=$1 words=$2; shift 2
    "$check" "$@" >stdout 2>stderr
    status=$?
    [ $status -eq "$want" ] || fail "status $status, not $want, for $*: $(cat stderr)"
    grep -q -- "$words" stdout && pass || fail "no '$words' for $*: $(tail -1 stdout)"
}

# ---- options
says 0 'usage: kcp-check' --help
says 0 '05_affine  .*mutant_wrong_head' --list
says 0 '^03_wy .* twin ' --list --stage 03
"$check" --list --device | grep -q 'twin\|mutant\|vB_' && fail '--list --device' || pass
[ "$("$check" --list --stage 03 | grep -vc '^03_wy')" = 0 ] && pass ||
    fail "--list --stage"
says 0 '^1 passed, 0 failed, 0 skipped' --stage 3 --variant twin
says 0 'paths   0 judged; 1 that are here were not: ' --stage 14 --variant twin
says 0 'ok .* ref ' --stage 14 --variant ref
grep -q 'that are here were not' stdout && fail 'paths: none was left out' || pass
says 0 '^seed 77' --stage 03_wy --variant twin --seed 77
says 0 '^seed 1, full' --stage 07 --variant twin --full
# Several seeds: each has its own line, its own counts and its own paths.
says 0 '^seed 4 08_forward: 2 passed, 0 failed, [0-9]* skipped in [0-9]* s$' \
    --quick --quiet --stage 08 --seed 4 --seeds 2
grep -q '^seed 5 08_forward: 2 passed, 0 failed' stdout && grep -q '^4 passed, ' stdout &&
    pass || fail "--seeds: $(cat stdout)"
"$check" --quick --seed 5 --stage 04 --variant twin >one
says 0 '^seed 6 04_chunk: 1 passed' --quick --stage 04 --variant twin --seed 4 --seeds 3
grep -qxF "$(grep ' ok  .* twin ' one)" stdout && pass || fail "--seeds: seed 5 is another"
refused --seeds --stage 04 --seeds 2
refused --seeds --quick --seeds 2 --case 'kda lengths=9' --stage 04
refused --seeds --quick --seeds 33
says 0 '0 survived' --stage 07 --variant mutant_turned --quiet
[ "$(wc -l <stdout)" -le 5 ] && pass || fail "--quiet is not: $(wc -l <stdout) lines"
says 0 'ok .* ref ' --stage 08 --variant ref --ranks 2 --seed 3 \
    --case 'kda H=1 K=4 V=4 lengths=9 R=2 chain'
says 0 'ok .* 1 ok' --stage 05 --variant twin --case 'gdn strong HV=2 lengths=3,0,70'
says 0 '^1 passed' --stage 08 --variant ref --case 'kda lengths=9; gdn lengths=9 R=2'
grep -q 'ok .* 2 ok' stdout && pass || fail 'two cases are not two'
refused --case --stage 08 --case ';'
refused --case --stage 08 --case 'kda; ring'
refused alike --stage 14 --case 'live alike=0.9'
refused --case --stage 08 --variant ref --case "kda lengths=9$(printf '%4100s' ring)"
refused --case --stage 08 --case "$(printf 'kda;%.0s' 1 2 3 4 5 6 7 8 9)"
refused 'pieces' --stage 08 --case 'live kda L=14 lengths=639470947,4'
# The table of paths: a header, a row a path, what is absent said; cases on demand.
says 0 '^path.stage.arch.storage.K.V.C.model.condition.kernel.geometry.here' --paths
[ "$(cut -f1 stdout | sort | uniq -d | wc -l)" = 0 ] && pass || fail 'a path stands twice'
[ "$(awk -F'\t' '{ print NF }' stdout | sort -u)" = 13 ] && pass || fail 'fields of --paths'
cut -f12 stdout | sed 1d | grep -qv '^here$\|^not here: .' && fail 'here' || pass
says 0 '^forward_ref.*.here.factors.1$' --paths --stage 8
[ "$(cut -f2 stdout | sort -u | wc -l)" = 2 ] && pass || fail '--paths --stage'
says 0 '^forward_ref.*.factors.1.08/0,08/1,' --paths --cases --stage 8
says 0 '^forward_kda_narrow.*not here: ' --paths
refused --cases --cases
says 0 '^forward_kda_wide.*HV=70.*lengths=130' --paths --smallest --stage 8
refused --smallest --smallest
refused --paths --paths --list
KCP_ARCH=sm_80 "$check" --paths --cases --stage 8 >stdout 2>stderr
awk -F'\t' '$1 == "forward_kda_narrow"' stdout | grep -q '.none$' && pass ||
    fail 'KCP_ARCH=sm_80 leaves a case to sm_90a'
KCP_ARCH=hopper "$check" --paths >stdout 2>stderr
[ $? = 2 ] && grep -q "KCP_ARCH: found 'hopper', expected" stderr && pass ||
    fail "KCP_ARCH=hopper: $(cat stderr)"
says 0 '0 numbers wrong' --exchange 3 --ranks 3
says 0 '0 numbers wrong' --exchange 2 --ranks 16
says 1 '^FAILED: .* 0 of 2 plans .* expected more plans' --exchange 2 --ranks 2
says 0 '^1 passed, 0 failed, 0 skipped' --stage=03 --variant=twin
# make hears no name that nobody reads: STAGES= would judge everything.
root=$(cd "$here/../.." && pwd)
make -s -C "$root" check STAGES=07 >stdout 2>stderr
[ $? -eq 2 ] && grep -q 'STAGES: found .*expected .*STAGE' stderr && [ ! -s stdout ] &&
    pass || fail "make check STAGES=07: $(cat stdout stderr)"
says 0 'ok .* ref ' --stage 08 --variant ref --ranks 16
"$check" --version | grep -qx 'kcp-check [0-9]*\.[0-9]*\.[0-9]*' && pass ||
    fail "--version"
says 0 '0 numbers wrong' --exchange 1 --backend threads
# Without a GPU nothing of one runs, and --strict says so by its status.
if "$check" --stage 07 --device | grep -q 'no device'; then
    says 0 'INCOMPLETE' --stage 07 --device
    says 3 'INCOMPLETE' --stage 07 --device --strict
fi
says 1 'nothing ran' --stage 14 --variant twin --device
says 0 '^1 passed' --stage 03 --variant twin --repeats 5
says 0 '^1 passed' --stage 03 --variant twin --repeats 0 --bare
for form in all_gather chain pipeline scan; do
    says 0 'ok .* 2 ok' --stage 13 --variant ref --in-turn --repeats 3 \
        --case "kda live R=4 $form lengths=70,9 h0; gdn live R=3 $form lengths=40 dht"
done
says 0 'ok .* 2 ok' --stage 14 --variant ref --in-turn \
    --case 'kda live R=3 lengths=20; kda live R=2 Wc=9 lengths=9'
says 0 '^1 passed' --variant layer_picks
says 0 '^1 passed' --stage 00 --variant words
# Of an option given twice the last counts.
says 0 '^seed 5' --stage 03 --variant twin --seed 4 --seed 5

# What is not taken is not lost unheard.
if [ -c /dev/full ]; then
    for words in --list --help '--stage 03 --variant twin' '--exchange 1'; do
        # shellcheck disable=SC2086
        "$check" $words >/dev/full 2>stderr
        [ $? = 2 ] && grep -q '^kcp-check: stdout: found .* expected' stderr && pass ||
            fail "a full disk is not said: $words"
    done
fi

# ---- cases out, outputs in: what kcp-run computes of them passes, what is spoilt fails
for storage in f64 bf16; do
    rm -rf e
    says 0 "cases of 03_wy in e, inputs rounded to $storage" --emit e --stage 03 \
        --storage $storage
    says 1 'A.npy' --foreign e
done
rm -rf e
says 0 'cases of 05_affine' --emit e --stage 05 --ranks 2 --seed 9
for d in e/case_*/*ward; do
    # shellcheck disable=SC2046
    [ ! -x "$B/kcp-run" ] || { "$B/kcp-run" --stage 05 --in "$d" --out out \
        $(cat "$d/options.txt") >/dev/null && mv out/* "$d" && rmdir out; } || fail "kcp-run: $d"
done
if [ -x "$B/kcp-run" ]; then
    says 0 '0 failed' --foreign e
    cp e/case_001/forward/w.npy e/case_000/forward/map.npy
    says 1 'case_000/forward/map.npy: found .*, expected' --foreign e
fi
ls -R e | cksum >before
refused 'cases.txt: found one' --emit e --stage 05
ls -R e | cksum | cmp -s - before && pass || fail "a refused --emit leaves its marks"

# ---- of every list, of some sizes, in words; each judged as the case that it is
rm -rf e; says 0 'cases of 08_forward' --emit e --stage 08 --shapes 64x64,128x128 --wide
rm -rf e; says 0 'cases of 08_forward' --emit e --stage 08 --shapes 64x128 --wide
! ls e | grep -q case_000 && ls e | grep -q case_1 && pass || fail "--shapes: $(ls e)"
grep -q '^K 64$' e/case_1*/forward/case.txt && ! grep -q '^V 64$' \
    e/case_1*/forward/case.txt && pass || fail "--shapes 64x128 has others"
says 1 'case_1.*o.npy' --foreign e
rm -rf e
says 0 '2 cases of 04_chunk' --emit e --stage 04 --case \
    'live kda H=1 HV=3 K=5 V=7 C=64 lengths=90,0 h0; strong gdn K=6 V=4 lengths=70'
for d in e/case_*/*ward; do
    # shellcheck disable=SC2046
    [ ! -x "$B/kcp-run" ] || { "$B/kcp-run" --stage 04 --in "$d" --out out \
        $(cat "$d/options.txt") >/dev/null && mv out/* "$d" && rmdir out; } || fail "kcp-run: $d"
done
[ ! -x "$B/kcp-run" ] || says 0 '0 failed' --foreign e
for x in 128 x 128x 128x128, 64x64,,1x1; do
    refused --shapes --emit e2 --stage 08 --shapes "$x"
done
refused '--shapes: found 99x99' --emit e2 --stage 08 --shapes 99x99
refused --wide --stage 08 --wide
[ ! -e e2 ] && pass || fail "a refused list leaves a directory"

# ---- a variant, and a reference, from a shared object
cat >mine.c <<'C'
#include "kcp.h"
static int run(void *args)
{
    struct kcp_merge *a = args;
    const double (*maps)[a->HV][a->K][a->V + a->K] = a->maps;
    double (*S)[a->K][a->V] = a->S;
    const int *range = a->range;
    for (int n = 0; n < a->HV; n++)
        for (int i = 0; i < a->K; i++)
            for (int v = 0; v < a->V; v++)
                S[n][i][v] = range[1] > range[0] ? maps[range[0]][n][i][v] : 0;
    return KCP_OK;
}
static const struct kcp_variant mine = { "07_merge", "mine", "h of the first map alone",
                                         KCP_F64, KCP_HOST, "any shape", run, NULL };
const struct kcp_variant *const kcp_variant = &mine;
C
${CC:-cc} -std=c11 -shared -fPIC -I"$B/../ref" -I"$OLDPWD/ref" mine.c -o mine.so ||
    fail "mine.so does not compile"
says 1 'FAIL .*07_merge mine: .* should be' --variant ./mine.so
says 1 "case 0 alone: .* --stage 07 --variant ./mine.so --case '" --variant ./mine.so --stage 07
says 0 '1 passed' --stage 07 --reference ./mine.so --variant ./mine.so
says 1 'FAIL' --stage 07 --reference ./mine.so --variant twin
refused '--variant.*07_merge' --variant ./mine.so --stage 05
refused '--reference.*07_merge' --reference ./mine.so --stage 05
refused '--reference.*07_merge' --reference ./mine.so
refused './none.so.*record.*cannot open' --variant ./none.so
refused './mine.c' --reference ./mine.c --stage 07
: >empty.so; refused './empty.so' --variant ./empty.so
sed '/kcp_variant = /d' mine.c >nameless.c
${CC:-cc} -std=c11 -shared -fPIC -w -I"$B/../ref" -I"$OLDPWD/ref" nameless.c -o nameless.so
refused 'no symbol kcp_variant' --variant ./nameless.so
for words in 'no record:0' 'a record without a stage:record'; do
    echo "static char record[400]; char *kcp_variant = ${words#*:};" >hollow.c
    ${CC:-cc} -shared -fPIC -w hollow.c -o hollow.so
    refused "kcp_variant leads to ${words%:*}" --variant ./hollow.so
done

# ---- bad words
for option in --stage --variant --emit --foreign --backend --case --reference \
    --storage --ranks --seed --exchange --repeats; do
    refused "$option: found ''" $option
    refused "$option: found ''" $option ''
    refused "$option: found '--full'" $option --full
done
for word in stage -h --Full --stag=05 '' ' ' --
do refused 'option: found' "$word"; done
for x in 0 17 -1 2x ' ' 1.5 99999999999999999999; do refused --ranks --ranks "$x"; done
for x in -1 x 1e3 99999999999999; do refused --seed --seed "$x"; done
for x in -1 2x 100001; do refused --repeats --repeats "$x"; done
for x in -1 many 1000001; do refused --exchange --exchange "$x"; done
for x in 99 x 5affine 05_ -5; do refused --stage --stage "$x"; done
for x in f16 F64 double; do refused --storage --emit e2 --stage 03 --storage $x; done
refused --backend --backend mpi
# A word with line ends or an escape in it is one line all the same, and printable.
strange=$(printf 'a\nb\033[31m')
for option in --stage --variant --shapes --backend --case --reference; do
    refused "$option: found 'a?b?" $option "$strange"
done
refused '--variant.*nope' --variant nope
refused '--variant.*twin2' --stage 05 --variant twin2
for x in live,kda K=0 K=x HV=3x 'H=2 HV=3' lengths= lengths=-1 lengths=1,,2 R=17 \
    cuts=0 'lengths=9 R=2 cuts=0,10,9' 'lengths=9 R=3 cuts=0,4,9' gate=hard \
    scale=nan scale=0 C=257 L=0 warm seed=-1 lengths=2147483648 alike=2 alike= \
    lb=0 lb=-6 "lengths=1$(printf ',1%.0s' $(seq 64))"; do
    refused --case --stage 05 --case "$x"
done
refused --case --case 'live'
refused --case --stage 04 --case 'live dplr'
refused --case --stage 16 --case 'live kda'
refused --case --stage 08 --ranks 3 --case 'live kda R=2'
"$check" --stage 05 --variant twin --case 'K=1000 V=1000 H=1000 lengths=1000000' \
    >stdout 2>stderr
[ $? = 2 ] && grep -q '^kcp-check: memory: found none' stderr && pass || fail 'no memory'
refused 'stage' --emit e2
refused 'stage' --emit e2 --stage 06
refused 'no/where' --emit no/where --stage 03
: >file; refused 'file' --emit file --stage 03
[ ! -e e2 ] && pass || fail "a refused --emit leaves a directory"
# A limit on the size of a file, as a disk that is full; then there is room again.
said=$(trap '' XFSZ; ulimit -f 0; "$check" --emit e3 --stage 03 2>&1; echo $?)
case $said in "kcp-check: e3/"*"expected room to write it
2") pass ;; *) fail "a full disk under --emit: $said" ;; esac
says 0 'cases of 03_wy' --emit e3 --stage 03
refused 'cases.txt' --foreign nowhere
mkdir f; echo nonsense >f/cases.txt; refused 'cases.txt' --foreign f
printf 'stage 03_wy\nseed 1\nfull 0\nranks 0\nstorage f16\n' >f/cases.txt
refused 'found.*storage f16' --foreign f
printf 'stage 99_none\nseed 1\nfull 0\nranks 0\nstorage f64\n' >f/cases.txt
refused 'stage 99_none' --foreign f
refused '--emit' --emit e2 --stage 03 --foreign e
refused '--exchange' --exchange 1 --list
refused --case --case live --stage 03 --foreign e
refused --case --case 'live dplr' --stage 03 --emit e2
refused --variant --variant twin --stage 03 --emit e2
refused --reference --reference ./mine.so --stage 07 --emit e2
refused --storage --storage bf16 --stage 03
refused --repeats --repeats 2 --exchange 1
echo "kcp-check: $passed passed, $failed failed"
[ $failed -eq 0 ]
