#!/bin/sh
# sanitize.sh -- runs every kernel on tiny cases under each tool of compute-sanitizer.
# Book: chapter 18.
#
#   make sanitize        STAGE=NN runs one stage. PATHS=1 in the environment runs only the
#                        smallest case per row of ref/core/paths.def (rows variant@path).
#
# Cells of $OUT/sanitize.tsv, where N is a number above 0:
#   0, 0l     no fault, and the judge accepts the result; 0l: in the build for sanitizers
#   N, N+     N faults; N+: N faults before the time limit ended the run
#   Nc        initcheck: N copies of uninitialized memory, but no kernel read it
#   wrong     no fault, but the judge rejects the result
#   broken, slow, none     the tool failed, was too slow, or printed no number of faults
#   -         not run
# At most JOBS processes (by default one per core) run at a time, each for at most EACH
# seconds. After LIMIT seconds no process is started. The exit status is 1 unless all cells
# are 0 or 0l.
B=${1:-build} JOBS=${JOBS:-$(nproc)} LIMIT=${LIMIT:-3600} EACH=${EACH:-120}
OUT=${OUT:-$B/sanitize}
tools="memcheck racecheck initcheck synccheck"
stop() { echo "sanitize.sh: $*"; exit 1; }
[ -n "$(nvidia-smi -L 2>/dev/null)" ] || stop "no GPU found: nothing was run"
command -v compute-sanitizer >/dev/null ||
    stop "compute-sanitizer not found: add the CUDA toolkit's bin to PATH"
rm -rf "$OUT/logs"; mkdir -p "$OUT/logs" || exit 2

# Prints cases that every variant supports: two ranks, a partial chunk, a sequence of one
# token, both models, several heads, states split along V. A layer also runs on one rank with
# save=all. A convolution also runs with x0 and dxt (ref/stages/14.def). v1 kernels
# support any shape, so their cases are small. Other kernels need up to six chunks, so that
# their ring buffers wrap. racecheck is slow, so its cases have fewer tokens.
cases() {       # STAGE TOOL VARIANT
    case $3 in
        v1*) sizes="K=48 V=32 C=16 h0 dht" many="lengths=70,0,1" one="lengths=17"
             few="lengths=40,0,1" layer="HV=2 R=2 $sizes lengths=90,0,1"
             strip="lengths=50" ranks="lengths=70,0,1" odd=D=5 ;;
        *) sizes="K=128 V=128 C=64 h0 dht" many="lengths=330,0,1" one="lengths=65"
           few="lengths=70,0,1" layer="HV=2 R=2 $sizes lengths=450,0,1"
           strip="lengths=200" ranks="lengths=270,0,1" odd=D=8
           [ "$2" != racecheck ] || layer="HV=1 R=2 $sizes lengths=400" ;;
    esac
    spike="$sizes $few" walk="$sizes $one"
    case $2,$3 in
        racecheck,v1*) spike="K=32 V=32 C=16 h0 dht lengths=20,0,1" walk=$spike ;;
        racecheck,*) spike="K=64 V=64 C=16 h0 dht lengths=20,0,1" walk=$spike ;;
    esac
    case $1 in
        02*) echo "live kda gate=softplus l2norm H=1 HV=2 $sizes $many;" \
                  "live gdn gate=softplus beta=sigmoid2 H=1 HV=1 $sizes $one" ;;
        08*|13*) echo "live kda H=1 $layer; live kda save=all H=1 HV=1 $sizes $one;" \
                  "live gdn chain H=1 HV=1 R=2 strip=1 $sizes $strip" ;;
        07*) echo "live kda H=1 HV=2 R=4 $sizes $ranks;" \
                  "live gdn H=1 HV=1 R=3 $sizes $one" ;;
        14*) echo "live kda act=silu R=2 D=40 Wc=4 $sizes $many;" \
                  "live kda R=2 $odd Wc=9 shift $sizes lengths=9,3;" \
                  "live kda act=silu R=2 D=40 Wc=4 x0 dxt $sizes $many" ;;
        15*) echo "live kda spike H=1 HV=2 R=2 masks=1 $spike;" \
                  "live kda spike H=1 HV=1 R=2 walk=blelloch $walk" ;;
        16*) [ "${3#v1}" != "$3" ] || few="lengths=150,0,1"
             echo "live dplr H=1 HV=2 R=2 $sizes $few;" \
                  "live gdn2 H=1 HV=1 R=2 $sizes $one" ;;
        *) echo "live kda H=1 HV=2 $sizes $many; live gdn H=1 HV=1 $sizes $one" ;;
    esac
}

# one.sh TOOL STAGE VARIANT CASES writes the cell of one run to a file. The judge fills
# workspaces with NaN, except under initcheck, because filled memory would count as
# initialized. racecheck fails if two ranks (threads that share the GPU) launch at the same
# time, so with --in-turn one rank runs at a time. Under racecheck and initcheck, sm_90a
# kernels run in the build for sanitizers.
share=$((($(nproc) + JOBS - 1) / JOBS + 1))
export B OUT EACH share END=$(($(date +%s) + LIMIT))
cat >"$OUT/one.sh" <<'ONE'
tool=$1 stage=$2 name=$3; shift 3
log=$OUT/logs/$tool.$stage.$name judge=$B/kcp-check lanes=
options="--show-backtrace no --print-limit 20"
case $tool.$stage.${name%@*} in
racecheck.08*.v[357]_* | initcheck.08*.v[357]_* | racecheck.13*.v[3457]_* | \
    initcheck.13*.v[3457]_*)
    [ ! -x "$judge-lanes" ] || judge=$judge-lanes lanes=l ;;
esac
left=$((END - $(date +%s)))
[ $left -gt 0 ] || exit 0
[ $((left + 10)) -gt "$EACH" ] || EACH=$((left + 10))
case $tool in
memcheck) how=--exact ;;
initcheck) how=--bare ;;
racecheck) how=--in-turn
    options="$options --force-blocking-launches --racecheck-num-workers $share" ;;
*) how= ;;
esac
timeout -k 5 "$EACH" compute-sanitizer --tool $tool $options "$judge" --device --here \
    --repeats 0 $how --stage $stage --variant "${name%@*}" --case "$*" >"$log" 2>&1
rc=$?
found=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p
    s/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$log" | head -1)
if [ $tool = initcheck ] && [ "${found:-0}" != 0 ]; then
    grep -q 'Uninitialized __' "$log" || found=${found}c
fi
! grep -q 'Internal Sanitizer Error' "$log" || found=broken
if [ $rc = 124 ] || [ $rc = 137 ]; then
    found=$(grep -cE '^=+ (Error|Warning|Invalid|Uninit|Barrier|Missing)' "$log")
    [ "$found" = 0 ] && found=slow || found=$found+
fi
[ "$found" != 0 ] ||
    { grep -q "^1 passed, 0 failed" "$log" && ! grep -q ' ok.*, [0-9]* n/a' "$log"; } ||
    found=wrong
[ "$found" != 0 ] || found=0$lanes
echo "${found:-none}" >"$log.row"
ONE

stage=${STAGE:+--stage $STAGE}
if [ -z "$PATHS" ]; then
    "$B/kcp-check" --list --device $stage | awk '{ print $1, $2 }' >"$OUT/variants"
else
    "$B/kcp-check" --paths --smallest $stage | awk -F '\t' -v out="$OUT" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $(at["arch"]) != "host" && $(at["here"]) == "here" && $(at["smallest"]) != "none" {
            name = $(at["kernel"]) "@" $(at["path"])
            print $(at["stage"]), name
            print name, $(at["smallest"]) >(out "/smallest")
        }' >"$OUT/variants"
fi
[ -s "$OUT/variants" ] || stop "no variant of stage '$STAGE' runs here"
while read -r s v; do for t in $tools; do echo $s $v $t; done; done <"$OUT/variants" \
    >"$OUT/runs"

# Starts racecheck first, because it takes longest.
sort -s -k 3,3r "$OUT/runs" | while read -r s v t; do
    if [ -z "$PATHS" ]; then what=$(cases $s $t $v)
    else what=$(sed -n "s/^$v //p" "$OUT/smallest"); fi
    case $t in racecheck) first=0 ;; *) first=1 ;; esac
    echo "$first $t $s $v $what"
done | sort -s -k 1,1n | cut -d' ' -f2- | xargs -P "$JOBS" -L 1 sh "$OUT/one.sh"

found() { cat "$OUT/logs/$1.$2.$3.row" 2>/dev/null || echo -; }
{
    printf 'stage\tvariant'; printf '\t%s' $tools; echo
    while read -r s v; do
        printf '%s\t%s' "$s" "$v"
        for t in $tools; do printf '\t%s' "$(found $t $s $v)"; done
        echo
    done <"$OUT/variants"
} >"$OUT/sanitize.tsv"
column -t "$OUT/sanitize.tsv" 2>/dev/null || cat "$OUT/sanitize.tsv"
while read -r s v t; do found $t $s $v; done <"$OUT/runs" | awk '
    /^0l?$/ { clean++ } /^-$/ { late++ }
    END { printf "sanitize.sh: %d of %d runs without a fault; %d not run\n", clean, NR, late
          exit !NR || clean < NR }'
