#!/bin/sh
# seeds.sh -- the judge with many seeds, stage by stage, side by side; continued later.
#
# Book: CONTRIBUTING.md, "Mutation testing".  Checked by: tests/cli/lanes_cli.sh.
# Usage: seeds.sh BUILD TABLE SEED...; OPTIONS= of kcp-check (--device, --quick), STAGES=
# those alone, JOBS= at once (2), LIMIT= seconds in all (0: any). Next: tests/seeds.tsv.
# TOGETHER=6: with --quick so many seeds in a row in one process a variant (1): on a GPU
# a process takes half a second before it computes, and processes share it by turns.
#
# TABLE gets a row a seed and stage, and what it has already is not run again; a stage
# that was cut off has none. What failed is in TABLE.SEED.STAGE, whole. Status 1 unless
# every stage of every seed passed.
export LC_ALL=C OPENBLAS_NUM_THREADS=1 KCP=${1:?}/kcp-check TABLE=${2:?} END=0
shift 2
case $* in '' | *[!0-9\ ]*) echo "seeds.sh: found '$*', expected seeds" >&2; exit 2 ;; esac
[ -x "$KCP" ] || { echo "seeds.sh: found no $KCP, expected the judge" >&2; exit 2; }
[ "${LIMIT:-0}" = 0 ] || END=$(($(date +%s) + LIMIT))
# Longest first. Of these some have checks alone, and --quick leaves those out.
case $OPTIONS in *--quick*) STAGES=${STAGES:-13 15 16 08 14 10 07 04 05 11 09 01 03 02 12 17} ;; esac
stages=${STAGES:-13 15 16 08 14 17 00 07 12 10 05 04 03 02 01 20 11 09 06 18 19}
[ -s "$TABLE" ] ||
    printf 'seed\tstage\tstatus\tpassed\tfailed\tskipped\tseconds\n' >"$TABLE" || exit 2
one='seed=$1 count=$2 stage=$3 log=$TABLE.$1.$3 begin=$(date +%s) left=0
[ $END = 0 ] || left=$((END - begin))
[ $END = 0 ] || [ $left -gt 0 ] || exit 0
[ $count = 1 ] || OPTIONS="$OPTIONS --seeds $count"
timeout $left "$KCP" --quiet $OPTIONS --seed $seed --stage $stage >$log 2>&1 </dev/null
status=$?
if [ $count = 1 ]; then
    counts=$(sed -n "s/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p" $log)
    [ -n "$counts" ] && printf "%s\t%s\t%s\t%s\t%s\t%s\t%s\n" $seed $stage $status $counts \
        $(($(date +%s) - begin)) >>"$TABLE"
else
    awk -v OFS="\t" -v stage=$stage "/^seed [0-9]+ .* passed, .* skipped in/ {
        print \$2, stage, (\$6 > 0) + 0, \$4, \$6, \$8, \$11 }" $log >>"$TABLE"
fi
[ $status = 0 ] && rm -f $log
exit 0'
export OPTIONS
# FIRST COUNT STAGE: what the table does not have; of several together seeds in a row.
if [ "${TOGETHER:-1}" -gt 1 ]; then
    for stage in $stages; do for seed; do echo "$seed $stage"; done; done
else
    for seed; do for stage in $stages; do echo "$seed $stage"; done; done
fi | awk -v most="${TOGETHER:-1}" -v table="$TABLE" '
    function out() { if (n) print first, n, stage; n = 0 }
    BEGIN { while ((getline line <table) > 0) { split(line, f, "\t"); has[f[1], f[2]] = 1 } }
    ($1, $2) in has { next }
    {
        if (!n || n == most || $2 != stage || $1 != first + n) { out(); first = $1; stage = $2 }
        n++
    }
    END { out() }' | xargs -r -P "${JOBS:-2}" -L 1 sh -c "$one" one
awk -F '\t' -v seeds="$*" -v stages="$stages" '
    NR > 1 { n[$1]++; status[$1, $2] = $3; passed[$1] += $4; failed[$1] += $5 }
    END {
        for (i = split(seeds, s, " "); i > 0; i--) {
            missing = wrong = 0
            for (j = split(stages, t, " "); j > 0; j--) {
                if (!((s[i], t[j]) in status)) missing++
                else if (status[s[i], t[j]] != 0) wrong++
            }
            whole += !missing && !wrong; bad += wrong > 0
            if (wrong) printf "seeds.sh: seed %s: %d stages fail\n", s[i], wrong
        }
        all = split(seeds, s, " ")
        printf "seeds.sh: of %d seeds %d passed, %d failed\n", all, whole, bad
        exit whole != all
    }' "$TABLE"
