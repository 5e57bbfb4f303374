#!/bin/sh
# check_gpus.sh -- judges the stages that communicate, over NCCL on this machine's GPUs.
#
# Book: chapter 20.  Checked by: its planted mistakes.  Next: ../comm/backend/nccl.c.
#
#   make check-gpus, or sh bench/check_gpus.sh [BUILD]   writes to $OUT (BUILD/check_gpus)
#
# These jobs run on all GPUs and again on two: every variant of the stages that
# communicate, random exchanges, and deliberate mistakes in each stage and exchange algorithm.
# Other jobs run only on all GPUs: a failing rank, communicators made by the caller, CUDA
# graphs, 100 runs that must give equal bits, and BATCHES (160) random batches of sequences.
# The job with the failing rank runs first and alone: its timeout is 5 seconds, and NCCL
# starts slowly beside other jobs. At most AT_ONCE (8) jobs run at once. More jobs would be
# slower, because a message moves only while both of its GPUs run the same job. ONLY, a pattern,
# selects jobs. The exit status is 1 if a job fails or LIMIT (1800) seconds pass. Folder $OUT,
# which records.py reads, gets the printed table (nccl.tsv) and all output (log.txt).
if [ "$1" = --job ]; then            # "what<tab>ranks<tab>command"
    what=$(echo "$2" | cut -f1) n=$(echo "$2" | cut -f2) log=$OUT/log.$$
    began=$(date +%s)
    status=124 left=$((END - began))
    : >"$log"
    [ $left -lt 1 ] || { timeout $left sh -c "$(echo "$2" | cut -f3)" >"$log" 2>&1; status=$?; }
    seconds=$(($(date +%s) - began))
    says=$(grep -E '^  FAIL|passed|wrong|kcp-check:' "$log" | head -1 | cut -c1-100)
    [ $status != 124 ] || status=late says="LIMIT has passed"
    grep -q '^nothing ran' "$log" && status=n/a says="n/a: supports only one rank"
    printf '%s\t%s\t%s\t%s\t%s\n' "$what" $n $status $seconds "$says" >>"$OUT/rows"
    case $what.$n in [01][0-9]\ *."$ALL") cat "$log" >>"$OUT/judge.txt" ;; esac
    { echo "== $what, $n ranks: status $status, $seconds s"; cat "$log"; } >>"$OUT/log.txt"
    exec rm -f "$log"
fi
B=${1:-build} here=$(dirname "$0")
ALL=$(nvidia-smi -L 2>/dev/null | wc -l)
export OUT=${OUT:-$B/check_gpus} ALL END=$(($(date +%s) + ${LIMIT:-1800}))
[ "$ALL" -ge 2 ] || { echo "check_gpus.sh: found $ALL GPUs, expected 2 or more"; exit 1; }
. "$here/nccl_home.sh"
mkdir -p "$OUT" && rm -f "$OUT"/*.t?? "$OUT/rows" "$OUT"/log.*
echo "$ALL x $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader |
    head -1), $(date -u +%F)" >"$OUT/machine.txt"
! command -v cuobjdump >/dev/null || python3 "$here/digest.py" "$B" >"$OUT/digests.tsv"
export KCP_TIMEOUT_S=${KCP_TIMEOUT_S:-20}
forms=$(sed -n 's/^ *FORM(.*, \([a-z_]*\)).*/\1/p' "$here/../ref/comm.h" | tr '\n' ' ')
row() { printf '%s\t%s\t%s\n' "$1" "$2" "$3"; }       # prints a line for the list of jobs
judge() {            # arguments: name, ranks, options of kcp-check
    row "$1" "$2" "$B/kcp-check --device --backend nccl --ranks $2 --limit 120 $3"
}
# Prints 16 batches per line. A batch has 10 to 30 sequences, mostly with 1 to 5 tokens.
batches() {
    awk -v n="$1" -v count="${BATCHES:-160}" -v forms="$forms" 'BEGIN {
        srand(38)
        F = split(forms, form)
        for (i = 1; i <= count; i++) {
            wide = rand() < 0.1; K = wide || rand() < 0.7 ? 64 : 128
            H = 1 + int(2 * rand()); N = 10 + int(21 * rand())
            c = "live " (rand() < 0.5 ? "kda" : "gdn") " " form[1 + i % F]
            c = c " gate=softplus beta=sigmoid H=" H
            c = c " HV=" H * (wide ? 20 : 1 + int(2 * rand())) " K=" K " V=" K
            c = c " C=64 R=" n " lengths="
            for (s = 0; s < N; s++)
                c = c (s ? "," : "") 1 + int((rand() < 0.9 ? 5 : 150) * rand())
            c = c " l2norm" (rand() < 0.7 ? " h0" : "") (rand() < 0.7 ? " dht" : "")
            line = line (line ? "; " : "") c " seed=" i
            if (i % 16 == 0 || i == count) { print line; line = "" }
        } }'
}
jobs_of() {          # prints the jobs on $1 ranks, the longest first
    for s in 13 08 16 11 07 15 14; do
        "$B/kcp-check" --list --device --stage $s | while read -r stage variant _; do
            judge "$s $variant" $1 "--quick --stage $s --variant $variant"
        done
        case $s in 07 | 11) continue ;; 14 | 15) those=any ;;
            *) those=$forms ;; esac
        for form in $those; do
            row "planted $s $form" $1 \
                "NCCL=$1 STAGES=$s FORMS=$form sh $here/../tests/cli/wrong_comm.sh $B"
        done
    done
    judge exchanges $1 "--exchange 100"
}
{
    jobs_of "$ALL"
    for c in 20/gpu_from 20/gpu_split 08/gpu_graph_ranks; do
        row "${c#*/}" "$ALL" "$B/kcp-check --device --stage ${c%/*} --variant ${c#*/}"
    done
    judge "100 times the same bits" "$ALL" "--repeats 100 --stage 13 --variant \
v4_scans_finish --case 'kda live H=2 K=128 V=128 R=$ALL lengths=900,77'"
    batches "$ALL" | while read -r cases; do
        judge "batches, forward" "$ALL" \
            "--quick --stage 08 --variant v3_prepare_scan --case '$cases'"
        judge "batches, backward" "$ALL" \
            "--quick --stage 13 --variant v4_scans_finish --case '$cases'"
    done
    [ "$ALL" = 2 ] || jobs_of 2
} >"$OUT/jobs"
began=$(date +%s)
sh "$0" --job "$(row gpu_lost "$ALL" "$B/kcp-check --device --stage 20 --variant gpu_lost")"
grep -E "${ONLY:-.}" "$OUT/jobs" | tr '\n' '\0' | xargs -0 -P "${AT_ONCE:-8}" -n 1 sh "$0" --job
printf 'what\tranks\tok\tfailed\tlate\tseconds\tsays\n' >"$OUT/nccl.tsv"
awk -F '\t' '{ k = $1 "\t" $2; s[k] += $4; ok[k] += $3 == "0"; late[k] += $3 == "late"
        bad[k] += $3 != "0" && $3 != "n/a" && $3 != "late"
        if ($3 != "0" || !says[k]) says[k] = $5 }
    END { for (k in s) printf "%s\t%d\t%d\t%d\t%d\t%s\n", k, ok[k], bad[k], late[k],
        s[k], says[k] }' "$OUT/rows" | sort >>"$OUT/nccl.tsv"
awk -F '\t' '{ printf "%-24s %5s %4s %6s %4s %7s  %s\n", $1, $2, $3, $4, $5, $6, $7
        failed += $4; late += $5 }
    END { printf "check_gpus.sh: %d failed, %d not done in %s seconds\n", failed, late, s
        exit failed + late > 0 }' s=$(($(date +%s) - began)) "$OUT/nccl.tsv"
