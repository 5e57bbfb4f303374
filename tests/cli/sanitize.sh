#!/bin/sh
# sanitize.sh -- bench/sanitize.sh without a GPU: its table, its refusals, its record.
#
# Book: chapter 18.  Checked by: make test, which runs it.  Next: ../bench/sanitize.sh.
# A compute-sanitizer, a judge and a GPU that are scripts stand where they would be.
B=${1:-build} W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"; rm -f bench/results/sanitize-test.tsv' EXIT
failed=0
wrong() { echo "sanitize.sh: $*"; failed=1; }
mkdir -p "$W/bin" "$W/b"
echo 'echo GPU 0' >"$W/bin/nvidia-smi"
# The judge lists five variants; the tool's number, or what happens, is in $FIND.
cat >"$W/b/kcp-check" <<'END'
[ "$1" != --paths ] || {
    printf 'path\tstage\tarch\tkernel\there\tsmallest\n'
    printf 'wide\t08_forward\tsm_90a\tv3_records\there\tlive kda H=10 HV=70\n'
    printf 'ref\t08_forward\thost\tref\there\tlive kda\n'
    printf 'kept\t08_forward\tsm_90a\tv3_records\there\tnone\n'
    printf 'other\t08_forward\tsm_99\tv9\tnot here: sm_90\tlive kda\n'
    exit; }
printf '04_chunk v1_column\n04_chunk v1_column_f32\n05_affine v3_sm90\n'
printf '08_forward v3_records\n13_backward v2_stages\n'
END
cat >"$W/bin/compute-sanitizer" <<'END'
[ "$1" != --help ] || { echo "  --print-limit arg (=100)"; exit; }
tool=$2; shift 2
case "$*" in *--print-limit\ 20*) ;; *) exit 3 ;; esac
case "$*" in *--show-backtrace*) exit 3 ;; esac         # not in its --help
n=0 right="1 passed, 0 failed, 0 skipped"
case "$*" in
    *control*none|*control*turns|*control*both) n=${NONE:-0} ;;
    *control*late) n=${LATE:-4} ;;
    *control*) n=1; [ "$tool" != "$BLIND" ] || n=0 ;;
    *"$WHICH"*) [ "$tool" != "${TOOL:-memcheck}" ] || n=$FIND ;;
esac
case $n in
    slow) exec sleep 600 ;;
    late) for i in 1 2 3; do echo "======= Uninitialized __global__ memory read"; done
          exec sleep 600 ;;
    crash) exit 139 ;;
    tool) n=1; echo "==== Internal Sanitizer Error: no more" ;;
    wrong) n=0 right="0 passed, 1 failed, 0 skipped" ;;
    skipped) n=0 right="0 passed, 0 failed, 1 skipped" ;;
esac
echo "$right"
if [ $tool = racecheck ]; then echo "==== RACECHECK SUMMARY: $n hazards displayed"
else echo "==== ERROR SUMMARY: $n errors"; fi
END
chmod +x "$W/bin"/* "$W/b/kcp-check"
# run STATUS LINE: the table, or what is said, has a line that matches. Only what never
# ends is stopped soon.
run() {
    each=60
    case $FIND in slow|late) each=5 ;; esac
    PATH="$W/bin:$PATH" OUT="$W/out" JOBS=4 EACH=$each sh bench/sanitize.sh "$W/b" \
        >"$W/said" 2>&1
    status=$?
    [ $status = "$1" ] || wrong "status $status, not $1, for '$2': $(cat "$W/said")"
    grep -q -- "$2" "$W/said" || wrong "no '$2' in: $(cat "$W/said")"
}
export PATHS LATE NEWEST WHICH FIND TOOL BLIND NONE LIMIT MISSING ALONE
WHICH=none-of-them FIND=0
run 0 '^13_backward *v2_stages *0 *0 *0 *0$'
run 0 '5 of 5 variants clean'
cp "$W/out/sanitize.tsv" "$W/sanitize.tsv"
order() { awk '$1 == "memcheck" && $2 != "control" { printf "%s.%s ", $2, $3 }' \
    "$W/out/list"; }
[ "$(order)" = "04_chunk.v1_column 04_chunk.v1_column_f32 05_affine.v3_sm90 \
08_forward.v3_records 13_backward.v2_stages " ] || wrong "the order is $(order)"
NEWEST=1; run 0 '5 of 5 variants clean'
case $(order) in *f32\ ) ;; *) wrong "NEWEST=1: the order is $(order)" ;; esac
NEWEST=
WHICH=v3_records
for FIND in 7 slow wrong; do run 1 "^08_forward *v3_records *$FIND *0 *0 *0\$"; done
FIND=crash;   run 1 '^08_forward *v3_records *none *0 *0 *0$'
FIND=skipped; run 1 '^08_forward *v3_records *wrong *0 *0 *0$'
TOOL=initcheck FIND=late; run 1 '^08_forward *v3_records *0 *0 *3+ *0$'
TOOL=initcheck FIND=5; run 1 '^08_forward *v3_records *0 *0 *5c *0$'
TOOL=racecheck FIND=tool; run 1 '^08_forward *v3_records *0 *broken *0 *0$'
TOOL=racecheck FIND=3; run 1 '^08_forward *v3_records *0 *3 *0 *0$'
run 1 '4 of 5 variants clean'
WHICH='chain H=1' TOOL=synccheck
run 1 '^13_backward *v2_stages *0 *0 *0 *3$'        # the second case alone
WHICH=none-of-them
# A row of the table of paths by a case of its own.
PATHS=1; run 0 '^08_forward *v3_records@wide *0 *0 *0 *0$'; run 0 '1 of 1 variants clean'
grep -q '^racecheck 08_forward v3_records@wide live kda H=10 HV=70$' "$W/out/list" ||
    wrong "another case than the path's: $(cat "$W/out/list")"
WHICH='variant v3_records --case live kda H=10' FIND=3
run 1 '^08_forward *v3_records@wide *0 *0 *0 *3$'
WHICH=none-of-them FIND=0
tail -n +2 "$W/out/sanitize.tsv" | sed 's/3$/0/' >>"$W/sanitize.tsv"
PATHS=
# What is asked for alone; a rank alone.
printf '05_affine v3_sm90 racecheck\n13_backward v2_stages initcheck\n' >"$W/asked"
MISSING=$W/asked; run 0 '^05_affine *v3_sm90 *- *0 *- *-$'
run 0 '2 of 2 variants clean'
grep -q '^racecheck 13' "$W/out/list" && wrong "more was run than was asked for"
MISSING= ALONE=initcheck; run 0 '5 of 5 variants clean'
grep '^initcheck 13' "$W/out/list" | grep -q ' R=' && wrong "ALONE: there is an R"
grep '^racecheck 13' "$W/out/list" | grep -q ' R=2' || wrong "ALONE: racecheck has no R"
ALONE=
# Under racecheck and initcheck 08 has a build of its own, and its 0 says so.
cp "$W/b/kcp-check" "$W/b/kcp-check-lanes"
run 0 '^08_forward *v3_records *0 *0l *0l *0$'
WHICH=v3_records TOOL=racecheck FIND=3; run 1 '^08_forward *v3_records *0 *3 *0l *0$'
WHICH=none-of-them; rm "$W/b/kcp-check-lanes"
BLIND=synccheck; run 1 "synccheck finds '0' in its own fault"
BLIND= LATE=0;   run 1 "racecheck finds '0' in its own fault, '0' in turns"
LATE= NONE=2;    run 1 "memcheck finds '1' in its own fault, '2' in none"
NONE= LIMIT=0;   run 1 '^04_chunk *v1_column *- *- *- *-$'; run 1 '; 5 not reached'
echo 'exit 9' >"$W/bin/nvidia-smi"
run 1 'no GPU here'

# The table is kept with the digests of the kernels that ran.
kept=bench/results/sanitize-test.tsv
export FUNCTIONS="$W/made_of"
awk 'BEGIN { OFS = "\t"; print "stage", "variant", "nvcc", "digest" }
     NR > 1 && $2 !~ /@/ { print $1, $2, "13.0.88", "d" NR }
     END { print "path", "wide", "-", "row1" }' "$W/sanitize.tsv" >"$W/digests.tsv"
echo "a GPU, 1.2, 2026-01-02" >"$W/machine.txt"
KEEP_README=1 sh bench/record.sh "$W" sanitize-test abc1234 >"$W/said" 2>&1 ||
    wrong "$(cat "$W/said")"
grep '^sanitizer.a GPU.1.2.2026-01-02.abc1234.13.0.88.08_forward.v3_records.' $kept |
    grep -q 'd5.0.0.0.0$' || wrong "no row of 08 v3_records: $(cat $kept)"
grep '^sanitizer.*v3_records.wide.row1.d5.0.0.0.0$' $kept >/dev/null ||
    wrong "no row of the path: $(cat $kept)"
stale() { DIGESTS=$W/digests.tsv RESULTS=$kept sh bench/stale.sh "$@" >"$W/said"; }
stale; grep -q '08_forward v3_records: sanitized' "$W/said" &&
    wrong "a table of the kernels as they stand is called old"
stale --all; grep -q '^08_forward.v3_records.none.fresh.none$' "$W/said" ||
    wrong "not fresh: $(cat "$W/said")"
sed -i 's/\td5$/\tother/' "$W/digests.tsv"; stale
grep -q '08_forward v3_records: sanitized: stale' "$W/said" ||
    wrong "a table of other kernels is not called so: $(cat "$W/said")"
# Another nvcc, or none: neither fresh nor stale.
sed -i 's/13\.0\.88\tother/13.1.2\tother/' "$W/digests.tsv"; stale --all
grep -q '^08_forward.v3_records.none.not comparable.none$' "$W/said" ||
    wrong "another nvcc: $(cat "$W/said")"
head -1 "$W/digests.tsv" >"$W/none.tsv"
DIGESTS=$W/none.tsv RESULTS=$kept sh bench/stale.sh --all >"$W/said"
grep -q '^08_forward.v3_records.none.not comparable.none$' "$W/said" ||
    wrong "nothing built: $(cat "$W/said")"

# The table of paths: known while neither the kernel nor its row is another.
printf 'stage\tvariant\tnvcc\tdigest\n08_forward\tv3_records\t13.0.88\td5\n' \
    >"$W/digests.tsv"
known() {
    DIGESTS=$W/digests.tsv RESULTS=$kept PATH="$W/bin:$PATH" \
        sh bench/sanitized.sh "$W/b" "$@" >"$W/said"
}
PATHS=1
for row in row1 row2; do
    printf 'path\twide\t-\t%s\n' $row >>"$W/digests.tsv"
    known missing
    case $row.$(grep -c '^08_forward v3_records@wide ' "$W/said") in row1.0 | row2.4) ;;
        *) wrong "path of $row: $(cat "$W/said")" ;; esac
done
PATHS=
# What is known of a variant: the best of all tables of its kernels, and none of others.
printf 'stage\tvariant\tnvcc\tdigest\n04_chunk\tv1_column\t13\tyes\n' >"$W/digests.tsv"
printf '05_affine\tv3_sm90\t13\tyes\n' >>"$W/digests.tsv"
printf 'kind\tstage\tvariant\tnvcc\tdigest\t' >$kept
printf 'memcheck\tracecheck\tinitcheck\tsynccheck\n' >>$kept
printf 'sanitizer\t%s\n' '04_chunk	v1_column	13	yes	0	slow	-	3' \
    '04_chunk	v1_column	13	yes	5	0	-	-' \
    '05_affine	v3_sm90	13	no	0	0	0	0' >>$kept
known; grep -q "^04_chunk *v1_column *0 *0 *- *3 *yes$" "$W/said" ||
    wrong "$(cat "$W/said")"
grep -q '^05_affine *v3_sm90 *- *- *- *- ' "$W/said" || wrong "$(cat "$W/said")"
known missing
grep -q '^04_chunk v1_column memcheck' "$W/said" && wrong "a 0 is missing"
grep -q '^04_chunk v1_column initcheck$' "$W/said" || wrong "what was not run is known"
grep -q '^05_affine v3_sm90 memcheck$' "$W/said" || wrong "another digest's 0 is known"

# The judge's references take every case that the kernels will be given.
sed -n '/^cases()/,/^}/p' bench/sanitize.sh >"$W/cases"
. "$W/cases"
for s in 01 02 03 04 05 07 08 09 10 11 12 13 14 15 16; do
    case $s in 08|13|14|16) ref=ref ;; *) ref=twin ;; esac
    for t in memcheck racecheck; do
        for v in v1_plain v2_fast; do cases $s $t $v; done
    done | sort -u >"$W/given"
    while read -r given; do
        "$B/kcp-check" --stage $s --variant $ref --repeats 0 --in-turn --case "$given" \
            >"$W/said" 2>&1 </dev/null && grep -q 'ok.* [23] ok' "$W/said" ||
            wrong "$s: $given: $(cat "$W/said")"
    done <"$W/given"
done
[ $failed = 0 ] && echo "sanitize.sh: what a tool finds, or not, is in its table"
exit $failed
