#!/bin/sh
# check_gpus.sh -- the stages that communicate, judged over NCCL on this machine's GPUs.
#
# Book: chapter 20.  Checked by: its planted mistakes.  Next: ../comm/backend/nccl.c.
#
#   make check-gpus, or sh bench/check_gpus.sh [BUILD]      $OUT (BUILD/check_gpus)
#
# Over all GPUs and over two: every variant of the stages that communicate, on its default
# list, in every form; random exchanges; wrong communication planted in each stage and
# form. Over all: lost ranks, lent communicators, graphs, 100 equal runs, BATCHES
# (500) random batches of short sequences. Each job is a kcp-check, AT_ONCE (16) at a time.
# Status 1: a job failed, or LIMIT (480) seconds are over. $OUT is a folder for records.py
# add; its nccl.tsv is the table that is printed.
if [ "$1" = --job ]; then            # one line of the list: what, ranks, command
    what=$(echo "$2" | cut -f1) n=$(echo "$2" | cut -f2) log=$OUT/log.$$
    began=$(date +%s.%N)
    left=$((END - ${began%.*}))
    echo "kcp-check: LIMIT is over" >"$log"
    [ $left -gt 1 ] && sh -c "timeout $left $(echo "$2" | cut -f3-)" >"$log" 2>&1
    status=$?
    seconds=$(awk "BEGIN { printf \"%.1f\", $(date +%s.%N) - $began }")
    says=$(grep -E '^  FAIL|passed|wrong|kcp-check:' "$log" | head -1 | cut -c1-100)
    printf '%s\t%s\t%s\t%s\t%s\n' "$what" $n $status "$seconds" "$says" >>"$OUT/rows"
    case $what in [01]?" "*) [ $n = "$ALL" ] && cat "$log" >>"$OUT/judge.txt" ;; esac
    [ $status = 0 ] || cat "$log" >>"$OUT/failed.txt"
    exec rm -f "$log"
fi
B=${1:-build} here=$(dirname "$0")
export OUT=${OUT:-$B/check_gpus} ALL END=$(($(date +%s) + ${LIMIT:-480}))
ALL=$(nvidia-smi -L 2>/dev/null | wc -l)
[ "$ALL" -ge 2 ] || { echo "check_gpus.sh: found $ALL GPUs, expected 2 or more"; exit 1; }
. "$here/nccl_home.sh"
mkdir -p "$OUT" && rm -f "$OUT"/*.t?? "$OUT/rows" "$OUT"/log.*
echo "$ALL x $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader |
    head -1), $(date -u +%F)" >"$OUT/machine.txt"
! command -v cuobjdump >/dev/null || python3 "$here/digest.py" "$B" >"$OUT/digests.tsv"
export KCP_TIMEOUT_S=${KCP_TIMEOUT_S:-20}
over() { echo "$B/kcp-check --device --backend nccl --ranks $1 --limit 120"; }
job() { printf '%s\t%s\t%s\n' "$1" "$2" "$3"; }
variants() { "$B/kcp-check" --list --device |
    awk '{ at = index("13 08 16 11 07 15 14", substr($1, 1, 2)) } at { print at + 9, $1, $2 }' |
    sort -n | cut -d" " -f2-; }
# Batches of 10 to 40 sequences, most of them 1 to 5 tokens long; eight cases a line.
batches() {
    awk -v n="$1" -v count="${BATCHES:-500}" 'BEGIN {
        srand(38)
        split("all_gather chain pipeline scan", form)
        for (i = 1; i <= count; i++) {
            K = rand() < 0.5 ? 64 : 128; H = 1 + int(2 * rand()); N = 10 + int(31 * rand())
            c = "live " (rand() < 0.5 ? "kda" : "gdn") " " form[1 + i % 4]
            c = c " gate=softplus beta=sigmoid H=" H
            c = c " HV=" H * (rand() < 0.1 ? 20 : 1 + int(2 * rand()))
            c = c " K=" K " V=" K " C=64 R=" n " lengths="
            for (s = 0; s < N; s++)
                c = c (s ? "," : "") 1 + int((rand() < 0.85 ? 5 : 200) * rand())
            c = c " l2norm" (rand() < 0.7 ? " h0" : "") (rand() < 0.7 ? " dht" : "")
            line = line (line ? "; " : "") c " seed=" i
            if (i % 8 == 0 || i == count) { print line; line = "" }
        } }'
}
jobs_of() {          # ranks
    variants | while read -r stage variant; do
        job "${stage%%_*} $variant" $1 \
            "$(over $1) --quick --stage ${stage%%_*} --variant $variant"
    done
    for s in 13 08 16 14 15; do
        case $s in 14 | 15) forms=any ;; *) forms="all_gather chain pipeline scan" ;; esac
        for form in $forms; do
            job "planted $s $form" $1 \
                "env NCCL=$1 STAGES=$s FORMS=$form sh $here/../tests/cli/wrong_comm.sh $B"
        done
    done
    job "exchanges" $1 "$(over $1) --exchange 100"
}
{
    jobs_of "$ALL"
    for c in 20/gpu_lost 20/gpu_from 20/gpu_split 20/gpu_narrow 08/gpu_graph_ranks; do
        job "${c#*/}" "$ALL" "$B/kcp-check --device --stage ${c%/*} --variant ${c#*/}"
    done
    job "100 times the same bits" "$ALL" "$(over "$ALL") --repeats 100 --stage 13 \
        --variant v4_scans_finish --case 'kda live H=2 K=128 V=128 R=$ALL lengths=900,77'"
    batches "$ALL" | while read -r cases; do
        job batches "$ALL" "$(over "$ALL") --quick --stage 13 --variant v4_scans_finish \
            --case '$cases'"
    done
    [ "$ALL" = 2 ] || jobs_of 2
} >"$OUT/jobs"
began=$(date +%s)
tr '\n' '\0' <"$OUT/jobs" | xargs -0 -P "${AT_ONCE:-16}" -n 1 sh "$0" --job
printf 'what\tranks\tok\tfailed\tseconds\tsays\n' >"$OUT/nccl.tsv"
awk -F '\t' '{ k = $1 "\t" $2; n[k]++; bad[k] += $3 != 0; s[k] += $4
        if ($3 != 0 || !says[k]) says[k] = $5 }
    END { for (k in n)
        printf "%s\t%d\t%d\t%.1f\t%s\n", k, n[k] - bad[k], bad[k], s[k], says[k] }' \
    "$OUT/rows" | sort >>"$OUT/nccl.tsv"
awk -F '\t' '{ printf "%-24s %5s %4s %6s %8s  %s\n", $1, $2, $3, $4, $5, $6 }' "$OUT/nccl.tsv"
failed=$(awk -F '\t' '$3 != 0' "$OUT/rows" | wc -l)
echo "check_gpus.sh: $(wc -l <"$OUT/rows") jobs in $(($(date +%s) - began)) s, $failed failed"
[ "$failed" = 0 ] && [ "$(wc -l <"$OUT/rows")" = "$(wc -l <"$OUT/jobs")" ]
