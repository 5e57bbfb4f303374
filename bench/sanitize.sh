#!/bin/sh
# sanitize.sh -- every kernel on tiny cases under compute-sanitizer, one process a tool.
#
# Book: chapter 17.  Checked by: tests/sanitize.sh.  Next: record.sh, which keeps it.
#
#   make sanitize        STAGE= one stage, NEWEST=1 of each stage the last variant first
#
# $OUT/sanitize.txt gets the table: 0: clean, and right by the judge; a number: so
# much was found ("c": bytes that were copied, none that a kernel read; "broken",
# "slow", "none": the tool's own end; "wrong": clean, but not what the judge expects).
# JOBS processes at once (all cores), EACH seconds a process; after LIMIT seconds none
# is started; what was not run says "-". Status 1 unless all are 0.
B=${1:-build} JOBS=${JOBS:-$(nproc)} LIMIT=${LIMIT:-3600} EACH=${EACH:-120}
OUT=${OUT:-$B/sanitize}
tools="memcheck racecheck initcheck synccheck"
[ -n "$(nvidia-smi -L 2>/dev/null)" ] ||
    { echo "sanitize.sh: no GPU here: nothing was run"; exit 1; }
command -v compute-sanitizer >/dev/null ||
    { echo "sanitize.sh: found no compute-sanitizer, expected CUDA's on PATH"; exit 1; }
rm -rf "$OUT/logs"; mkdir -p "$OUT/logs" || exit 2

# Two cases that every variant takes: two sequences over two ranks, a ragged chunk, a
# lone token; and the other model, other heads, the states in strips. Of a layer there
# is a third, on one rank and with everything kept. racecheck, which is slow, gets fewer
# tokens of what reads much shared memory.
sizes="K=128 V=128 C=64 h0 dht"
cases() {
    many="lengths=330,0,1" one="lengths=65" layer="HV=2 R=2 $sizes lengths=450,0,1"
    spike="$sizes lengths=70,0,1" walk="$sizes $one"
    [ "$2" != racecheck ] || { layer="HV=1 R=2 $sizes lengths=400"
        spike="K=64 V=64 C=16 h0 dht lengths=20,0,1" walk=$spike; }
    case $1 in
        02*) echo "live kda gate=softplus l2norm H=1 HV=2 $sizes $many;" \
                  "live gdn gate=softplus beta=sigmoid2 H=1 HV=1 $sizes $one" ;;
        01*) [ "$2" != racecheck ] || many="lengths=70,0,1"
             echo "live kda H=1 HV=2 $sizes $many; live gdn H=1 HV=1 $sizes $one" ;;
        08*|13*) echo "live kda H=1 $layer; live kda save=all H=1 HV=1 $sizes $one;" \
                  "live gdn chain H=1 HV=1 R=2 strip=1 $sizes lengths=200" ;;
        07*) echo "live kda H=1 HV=2 R=4 $sizes lengths=270,0,1;" \
                  "live gdn H=1 HV=1 R=3 $sizes $one" ;;
        14*) echo "live kda act=silu R=2 D=40 Wc=4 $sizes $many;" \
                  "live kda R=2 D=5 Wc=9 shift $sizes lengths=9,3" ;;
        15*) echo "live kda spike H=1 HV=2 R=2 masks=1 $spike;" \
                  "live kda spike H=1 HV=1 R=2 walk=blelloch $walk" ;;
        16*) echo "live dplr H=1 HV=2 R=2 $sizes lengths=150,0,1;" \
                  "live gdn2 H=1 HV=1 R=2 $sizes $one" ;;
        *) echo "live kda H=1 HV=2 $sizes $many; live gdn H=1 HV=1 $sizes $one" ;;
    esac
}
export B OUT EACH
# one TOOL STAGE VARIANT CASES: found N, or what went wrong, in its own file. initcheck
# sees workspaces as the allocator leaves them, the others full of NaN. racecheck loses
# its way when two ranks, threads that share the GPU, launch at once.
cat >"$OUT/one.sh" <<'ONE'
tool=$1 stage=$2 name=$3; shift 3
log=$OUT/logs/$tool.$stage.$name start=$(date +%s) bare= apart=
left=$((END - start))
[ $left -gt 0 ] || exit 0
[ $((left + 10)) -gt "$EACH" ] || EACH=$((left + 10))
[ $tool != initcheck ] || bare=--bare
[ $tool != racecheck ] || apart=--force-blocking-launches
if [ "$stage" = control ]; then set -- "$B/sanitize-control" $name
else set -- "$B/kcp-check" --device --repeats 0 $bare --stage $stage --variant $name \
    --case "$*"; fi
timeout "$EACH" compute-sanitizer --tool $tool $apart "$@" >"$log" 2>&1
rc=$?
found=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p
    s/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$log" | head -1)
if [ "$tool" = initcheck ] && [ "${found:-0}" != 0 ]; then      # copied, or read?
    grep -q 'Uninitialized __' "$log" || found=${found}c
fi
! grep -q 'Internal Sanitizer Error' "$log" || found=broken
[ $rc != 124 ] || found=slow
[ $stage = control ] || [ "$found" != 0 ] ||
    { grep -q "^1 passed, 0 failed" "$log" && ! grep -q ' ok.*, [0-9]* n/a' "$log"; } ||
    found=wrong
echo "$stage $name $tool ${found:-none} $(($(date +%s) - start)) s" >"$log.row"
ONE
END=$(($(date +%s) + LIMIT)); export END
list=$OUT/list; : >"$list"
stage=${STAGE:+--stage $STAGE}
# The age of a variant in its stage: 0 the last, behind it the ones before, then fp32.
"$B/kcp-check" --list --device $stage | awk '{ print $1, $2 }' >"$OUT/variants"
for t in $tools; do echo "$t control $t"; echo "$t control none"; done >>"$list"
for c in turns late lane; do
    ! grep -q _sm90 "$OUT/variants" || echo "racecheck control $c" >>"$list"
done
awk '{ s[NR] = $1; v[NR] = $2 }
    END { for (i = NR; i; i--) {
        old = v[i] ~ /_f32$/ ? 100 + single[s[i]]++ : own[s[i]]++
        print old, s[i], v[i] } }' "$OUT/variants" |
    sort -s $([ -n "$NEWEST" ] || echo -k 2,2) -k 1,1n |
    while read -r age s v; do
        for t in $tools; do echo "$t $s $v $(cases $s $t)"; done
    done >>"$list"
xargs -P "$JOBS" -L 1 sh "$OUT/one.sh" <"$list"

# The controls: a tool that misses its own fault, or finds one where none is, is none.
bad=0
of() { awk '{ print $4 }' "$OUT/logs/$1.control.$2.row" 2>/dev/null; }
pair() {        # TOOL FAULT RIGHT
    hit=$(of $1 $2) none=$(of $1 $3)
    case ${hit:-none} in [1-9]*) [ "$none" != 0 ] || return 0 ;; esac
    echo "sanitize.sh: $1 finds '$hit' in its own fault, '$none' in $3"; bad=1
}
for t in $tools; do pair $t $t none; done
if grep -q _sm90 "$OUT/variants"; then
    pair racecheck late turns
    echo "sanitize.sh: racecheck, barriers in shared memory: each thread arrives:" \
         "$(of racecheck turns); nobody waits: $(of racecheck late); right, but" \
         "lane 0 arrives for its warp: $(of racecheck lane), its limit"
fi
{
    printf '%-20s %-18s' stage variant; printf ' %9s' $tools; echo
    while read -r s v; do
        printf '%-20s %-18s' "$s" "$v"
        for t in $tools; do
            x=$(cat "$OUT/logs/$t.$s.$v.row" 2>/dev/null) && x=${x#* * * } || x=-
            printf ' %9s' "${x%% *}"
        done
        echo
    done <"$OUT/variants"
} >"$OUT/sanitize.txt"
cat "$OUT/sanitize.txt"
all=$(grep -c . <"$OUT/variants")
clean=$(awk 'NR > 1 && $3 $4 $5 $6 == "0000"' "$OUT/sanitize.txt" | wc -l)
late=$(awk 'NR > 1' "$OUT/sanitize.txt" | grep -c ' -\( \|$\)')
echo "sanitize.sh: $clean of $all variants clean under $tools; $late not reached"
[ $bad = 0 ] && [ "$all" -gt 0 ] && [ "$clean" = "$all" ]
