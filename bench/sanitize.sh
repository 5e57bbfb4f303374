#!/bin/sh
# sanitize.sh -- every kernel on tiny cases under compute-sanitizer, one process a tool.
#
# Book: chapter 17.  Checked by: tests/sanitize.sh.  Next: record.sh, which keeps it.
#
#   make sanitize           STAGE= one stage, NEWEST=1 of each stage the last variant
#
# $OUT/sanitize.txt gets the table: 0: clean, and right by the judge; a number: so
# much was found ("c": bytes that were copied, none that a kernel read; "0of1": the first
# case alone was run; "broken", "slow", "none": the tool's own end). JOBS processes at
# once (all cores), EACH seconds a process; after LIMIT seconds none is started; what was
# not run says "-". Status 1 unless all are 0.
B=${1:-build} JOBS=${JOBS:-$(nproc)} LIMIT=${LIMIT:-3600} EACH=${EACH:-120}
OUT=${OUT:-$B/sanitize}
tools="memcheck racecheck initcheck synccheck"
[ -n "$(nvidia-smi -L 2>/dev/null)" ] ||
    { echo "sanitize.sh: no GPU here: nothing was run"; exit 1; }
command -v compute-sanitizer >/dev/null ||
    { echo "sanitize.sh: found no compute-sanitizer, expected CUDA's on PATH"; exit 1; }
rm -rf "$OUT/logs"; mkdir -p "$OUT/logs" || exit 2

# Cases that every variant takes: two sequences over two ranks, a ragged chunk, a lone
# token. The second is the other model, other heads, and the states in strips.
sizes="K=128 V=128 C=64 h0 dht"
cases() {
    case $1 in
        02*) echo "live kda gate=softplus l2norm H=1 HV=2 $sizes lengths=70,0,1"
             echo "live gdn gate=softplus beta=sigmoid2 H=1 HV=1 $sizes lengths=65" ;;
        08*|13*) echo "live kda save=all H=1 HV=2 R=2 $sizes lengths=150,0,1"
             echo "live gdn chain H=1 HV=1 R=2 strip=1 $sizes lengths=200" ;;
        07*) echo "live kda H=1 HV=2 R=4 $sizes lengths=270,0,1"
             echo "live gdn H=1 HV=1 R=3 $sizes lengths=65" ;;
        14*) echo "live kda act=silu R=2 D=40 Wc=4 $sizes lengths=70,0,1"
             echo "live kda R=2 D=5 Wc=9 shift $sizes lengths=9,3" ;;
        15*) echo "live kda spike H=1 HV=2 R=2 masks=1 $sizes lengths=70,0,1"
             echo "live kda spike H=1 HV=1 R=2 walk=blelloch $sizes lengths=65" ;;
        16*) echo "live dplr H=1 HV=2 R=2 $sizes lengths=70,0,1"
             echo "live gdn2 H=1 HV=1 R=2 $sizes lengths=65" ;;
        *) echo "live kda H=1 HV=2 $sizes lengths=70,0,1"
           echo "live gdn H=1 HV=1 $sizes lengths=65" ;;
    esac
}
export B OUT EACH
# one TOOL STAGE VARIANT NUMBER CASE...: found N, or what went wrong, in its own file.
cat >"$OUT/one.sh" <<'ONE'
tool=$1 stage=$2 name=$3 n=$4; shift 4
log=$OUT/logs/$tool.$stage.$name.$n
[ "$(date +%s)" -lt "$END" ] || exit 0
if [ "$stage" = control ]; then
    timeout "$EACH" compute-sanitizer --tool $tool "$B/sanitize-control" $name \
        >"$log" 2>&1
else
    timeout "$EACH" compute-sanitizer --tool $tool "$B/kcp-check" --device \
        --stage $stage --variant $name --case "$*" >"$log" 2>&1
fi
rc=$?
found=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p
    s/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$log" | head -1)
if [ "$tool" = initcheck ] && [ "${found:-0}" != 0 ]; then      # copied, or read?
    grep -q 'Uninitialized __' "$log" || found=${found}c
fi
! grep -q 'Internal Sanitizer Error' "$log" || found=broken
[ $rc != 124 ] || found=slow
[ $stage = control ] || [ "$found" != 0 ] ||
    grep -q "^1 passed, 0 failed" "$log" || found=wrong
echo "$stage $name $tool ${found:-none}" >"$log.row"
ONE
END=$(($(date +%s) + LIMIT)); export END
list=$OUT/list; : >"$list"
for t in $tools; do echo "$t control $t 0"; echo "$t control none 0"; done >>"$list"
stage=${STAGE:+--stage $STAGE}
"$B/kcp-check" --list --device $stage | awk '{ print $1, $2 }' |
    awk -v newest="$NEWEST" '!newest { print }
        newest && $1 != last && n++ { print last, name }
        newest && ($1 != last || $2 !~ /_f32$/) { last = $1; name = $2 }
        END { if (newest && n) print last, name }' >"$OUT/variants"
for n in 1 2; do
    while read -r s v; do
        for t in $tools; do echo "$t $s $v $n $(cases $s | sed -n ${n}p)"; done
    done <"$OUT/variants"
done >>"$list"
xargs -P "$JOBS" -L 1 sh "$OUT/one.sh" <"$list"

# The controls: a tool that misses its own fault, or finds one where none is, is none.
bad=0
for t in $tools; do
    hit=$(awk '{ print $4 }' "$OUT/logs/$t.control.$t.0.row" 2>/dev/null)
    none=$(awk '{ print $4 }' "$OUT/logs/$t.control.none.0.row" 2>/dev/null)
    case ${hit:-none} in [1-9]*) [ "$none" = 0 ] && continue ;; esac
    echo "sanitize.sh: $t finds '$hit' in its own fault, '$none' in none"; bad=1
done
{
    printf '%-20s %-18s' stage variant; printf ' %9s' $tools; echo
    while read -r s v; do
        printf '%-20s %-18s' "$s" "$v"
        for t in $tools; do         # the worse of the cases
            cat "$OUT/logs/$t.$s.$v".[12].row 2>/dev/null |
                awk '{ if (!n++ || x == 0) x = $4 }
                     END { if (!n) x = "-"; if (n == 1 && x == 0) x = "0of1"
                           printf " %9s", x }'
        done
        echo
    done <"$OUT/variants"
} >"$OUT/sanitize.txt"
cat "$OUT/sanitize.txt"
all=$(grep -c . <"$OUT/variants")
clean=$(awk 'NR > 1 && $3 $4 $5 $6 == "0000"' "$OUT/sanitize.txt" | wc -l)
echo "sanitize.sh: $clean of $all variants clean under $tools"
[ $bad = 0 ] && [ "$all" -gt 0 ] && [ "$clean" = "$all" ]
