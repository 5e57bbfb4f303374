#!/bin/sh
# sanitize.sh -- every kernel on tiny cases under compute-sanitizer, one process a tool.
#
# Book: chapter 18.  Checked by: tests/cli/sanitize.sh.  Next: record.sh, which keeps it.
#
#   make sanitize        STAGE= one stage, NEWEST=1 each stage's last variant first,
#                        MISSING=1 what no table of these sources knows yet
#
# $OUT/sanitize.tsv gets the table: 0: clean, and right by the judge; a number: so
# much was found, "7+" before it was stopped ("c": bytes that were copied, none that a
# kernel read; "broken", "slow", "none": the tool's own end; "wrong": clean, but not
# what the judge expects; "0l": 0 in the build for racecheck and initcheck, where every
# lane arrives for itself and threads write, see CONTRIBUTING.md). JOBS processes at once
# (all cores), EACH seconds each; after LIMIT seconds none is started; what was not run
# says "-". MISSING may be a file, too, of lines "stage variant tool"; ALONE=racecheck:
# one rank where there are more. PATHS=1: instead of the variants' own cases the smallest
# case of each row of the table of paths (kcp-check --paths --smallest), in the table as
# variant@path; rows of other stages' cases, and of convolutions' channels, have none, and
# are reached by the variants'. Status 1 unless all that was asked for is 0.
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
# is a third, on one rank and with everything kept, of a convolution one with the rows
# before and after sequences. The plain kernels, v1, take any
# shape: a small one. The others have rings of buffers, which go round within six
# chunks. racecheck, which is slow, gets fewer tokens of what reads much shared memory.
cases() {       # STAGE TOOL VARIANT
    case $3 in
        v1*) sizes="K=48 V=32 C=16 h0 dht" many="lengths=70,0,1" one="lengths=17"
             few="lengths=40,0,1" layer="HV=2 R=2 $sizes lengths=90,0,1"
             strip="lengths=50" ranks="lengths=70,0,1" ;;
        *) sizes="K=128 V=128 C=64 h0 dht" many="lengths=330,0,1" one="lengths=65"
           few="lengths=70,0,1" layer="HV=2 R=2 $sizes lengths=450,0,1"
           strip="lengths=200" ranks="lengths=270,0,1"
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
        14*) case $3 in v1*) odd=D=5 ;; *) odd=D=8 ;; esac
             echo "live kda act=silu R=2 D=40 Wc=4 $sizes $many;" \
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
# What this tool takes besides: a find is a line, and racecheck, whose work is done on
# the host, keeps to its share of the cores.
help=$(compute-sanitizer --help 2>&1)
given() { case $help in *"$1"*) echo "$*" ;; esac; }
share=$((($(nproc) + JOBS - 1) / JOBS + 1))
PLAIN="$(given --show-backtrace no) $(given --print-limit 20)"
PLAIN="$PLAIN $(given --max-connections 100)"
RACE="--force-blocking-launches $(given --racecheck-num-workers $share)"
export B OUT EACH PLAIN RACE
# one TOOL STAGE VARIANT CASES: found N, or what went wrong, in its own file. initcheck
# sees workspaces as the allocator leaves them, the others full of NaN. racecheck loses
# its way when two ranks, threads that share the GPU, launch at once.
cat >"$OUT/one.sh" <<'ONE'
tool=$1 stage=$2 name=$3; shift 3
log=$OUT/logs/$tool.$stage.$name start=$(date +%s) how= options=$PLAIN
left=$((END - start)) judge=$B/kcp-check lanes=
# The forward before a backward of its blocks is v3_records too.
case $tool.$stage.${name%@*} in
racecheck.*.v3_records | initcheck.*.v3_records | \
racecheck.13*.v[34]_* | initcheck.13*.v[34]_*)
    [ ! -x "$judge-lanes" ] || judge=$judge-lanes lanes=l ;;
esac
[ $left -gt 0 ] || exit 0
[ $((left + 10)) -gt "$EACH" ] || EACH=$((left + 10))
[ $tool != initcheck ] || how=--bare
[ $tool != memcheck ] || how=--exact
[ $tool != racecheck ] || how=--in-turn options="$PLAIN $RACE"
if [ "$stage" = control ]; then set -- "$B/sanitize-control" $name
else set -- "$judge" --device --here --repeats 0 $how --stage $stage --variant "${name%@*}" \
    --case "$*"; fi
timeout -k 5 "$EACH" compute-sanitizer --tool $tool $options "$@" >"$log" 2>&1
rc=$?
found=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p
    s/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$log" | head -1)
if [ "$tool" = initcheck ] && [ "${found:-0}" != 0 ]; then      # copied, or read?
    grep -q 'Uninitialized __' "$log" || found=${found}c
fi
! grep -q 'Internal Sanitizer Error' "$log" || found=broken
if [ $rc = 124 ] || [ $rc = 137 ]; then                         # what it had found
    found=$(grep -cE '^=+ (Error|Warning|Invalid|Uninit|Barrier|Missing)' "$log")
    [ "$found" = 0 ] && found=slow || found=$found+
fi
[ $stage = control ] || [ "$found" != 0 ] ||
    { grep -q "^1 passed, 0 failed" "$log" && ! grep -q ' ok.*, [0-9]* n/a' "$log"; } ||
    found=wrong
[ "$found" != 0 ] || found=0$lanes
echo "$stage $name $tool ${found:-none} $(($(date +%s) - start)) s" >"$log.row"
ONE
END=$(($(date +%s) + LIMIT)); export END
list=$OUT/list; : >"$list"
stage=${STAGE:+--stage $STAGE}
# The age of a variant in its stage: 0 the last, behind it the ones before, then fp32.
if [ -z "$PATHS" ]; then
    "$B/kcp-check" --list --device $stage | awk '{ print $1, $2 }' >"$OUT/variants"
else
    "$B/kcp-check" --paths --smallest $stage | awk -F '\t' -v out="$OUT" 'NR == 1 {
            for (i = 1; i <= NF; i++) at[$i] = i
            next
        }
        $(at["arch"]) != "host" && $(at["here"]) == "here" && $(at["smallest"]) != "none" {
            name = $(at["kernel"]) "@" $(at["path"])
            print $(at["stage"]), name >(out "/variants")
            print name, $(at["smallest"]) >(out "/smallest")
        }'
    [ -s "$OUT/variants" ] || { echo "sanitize.sh: found no paths that are here"; exit 1; }
fi
for t in $tools; do echo "$t control $t"; echo "$t control none"; done >>"$list"
for c in turns late lane mapped both; do
    ! grep -q _sm90 "$OUT/variants" || echo "racecheck control $c" >>"$list"
done
! grep -q _sm90 "$OUT/variants" || echo "initcheck control stored" >>"$list"
case $MISSING in
    '') while read -r s v; do for t in $tools; do echo $s $v $t; done; done \
            <"$OUT/variants" >"$OUT/asked" ;;
    1) sh bench/sanitized.sh "$B" missing | grep "^${STAGE:-[0-9]}" >"$OUT/asked" ;;
    *) cp "$MISSING" "$OUT/asked" ;;
esac
# The long ones first, so that none of them is alone in the end.
awk '{ s[NR] = $1; v[NR] = $2 }
    END { for (i = NR; i; i--) {
        old = v[i] ~ /_f32$/ ? 100 + single[s[i]]++ : own[s[i]]++
        print old, s[i], v[i] } }' "$OUT/variants" |
    sort -s $([ -n "$NEWEST" ] || echo -k 2,2) -k 1,1n |
    while read -r age s v; do
        for t in $tools; do
            grep -q "^$s $v $t\$" "$OUT/asked" || continue
            what=$(cases $s $t $v) long=2
            [ -z "$PATHS" ] || what=$(sed -n "s/^$v //p" "$OUT/smallest")
            case $t in racecheck) long=1; case $s in 08*|1[356]*) long=0 ;; esac ;; esac
            [ "$ALONE" != $t ] || what=$(echo "$what" | sed 's/ R=[0-9]*//g')
            echo "$long $t $s $v $what"
        done
    done | sort -s -k 1,1n | cut -d' ' -f2- >>"$list"
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
         "$(of racecheck turns); so in a pair of blocks: $(of racecheck both); nobody" \
         "waits: $(of racecheck late); right, but lane 0 arrives for its warp:" \
         "$(of racecheck lane), or at a mapped address: $(of racecheck mapped);" \
         "initcheck, written by the copy engine: $(of initcheck stored)"
fi
{
    printf 'stage\tvariant'; printf '\t%s' $tools; echo
    while read -r s v; do
        printf '%s\t%s' "$s" "$v"
        for t in $tools; do
            x=$(cat "$OUT/logs/$t.$s.$v.row" 2>/dev/null) && x=${x#* * * } || x=-
            printf '\t%s' "${x%% *}"
        done
        echo
    done <"$OUT/variants"
} >"$OUT/sanitize.tsv"
awk -F '\t' -v wide="${PATHS:+44}" '
    { printf "%-20s %-" (wide ? wide : 18) "s %9s %9s %9s %9s\n", $1, $2, $3, $4, $5, $6 }' \
    "$OUT/sanitize.tsv"
all=$(awk '{ print $1, $2 }' "$OUT/asked" | sort -u | grep -c .)
clean=$(awk 'FILENAME ~ /asked$/ { n[$1 " " $2]++; next }
    FNR == 1 { for (i = 3; i <= 6; i++) tool[i] = $i; next }
    { for (i = 3; i <= 6; i++) got[$1 " " $2] += $i ~ /^0l?$/ }
    END { for (x in n) if (got[x] == n[x]) clean++; print clean + 0 }' \
    "$OUT/asked" "$OUT/sanitize.tsv")
late=$(while read -r s v t; do [ -e "$OUT/logs/$t.$s.$v.row" ] || echo "$s $v"
       done <"$OUT/asked" | sort -u | wc -l)
echo "sanitize.sh: $clean of $all variants clean under $tools; $late not reached"
[ $bad = 0 ] && [ "$all" -gt 0 ] && [ "$clean" = "$all" ]
