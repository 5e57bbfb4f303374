#!/bin/sh
# run.sh -- solves problems 74 and 75 of ParallelKernelBench, judged by its own checker.
# Book: chapter 20.
#
#   sh bench/peers/pkb/run.sh PKB [BUILD]        PKB: ParallelKernelBench at 3cc0f9b
#
# Runs the checker (run_local.py, TRIALS (5) trials) over each number of RANKS (2 3 4) with
# the benchmark's inputs, and with live gates (5.5 lower), which the benchmark does not have.
# GATES (its live) and PROBLEMS (74 75) select. PERF= (empty) leaves out times.
# With fewer GPUs than ranks, all ranks use one GPU, NCCL sends through sockets of this
# machine, the runs are concurrent, and nothing is timed. Adds a line per run to
# $OUT/nccl.tsv (OUT: BUILD) for records.py.
PKB=$(cd "$1" && pwd) here=$(cd "$(dirname "$0")" && pwd) TRIALS=${TRIALS:-5}
B=$(cd "${2:-build}" && pwd) OUT=$(cd "${OUT:-${2:-build}}" && pwd)
[ -f "$PKB/run_local.py" ] || { echo "run.sh: '$PKB': found no run_local.py"; exit 2; }
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
smi=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)
export KCP_LIB="$B/libkcp.so" PYTHONPATH="$here/../../../book/examples/torch"
[ -s "$OUT/nccl.tsv" ] || printf '%s\t' what ranks ok failed late seconds date machine driver \
    says | sed 's/\t$/\n/' >"$OUT/nccl.tsv"
# one RANKS GATES PROBLEM MACHINE OPTION: checks one problem in the folder RANKS.GATES.
one() {
    began=$(date +%s) log=$W/$1.$2.$3
    (cd "$W/$1.$2" && timeout "${LIMIT:-150}" python3 run_local.py --mode eval $5 \
        --nproc-per-node "$1" --problem "$3" --solution cuda --solutions-dir "$here" \
        --trials "$TRIALS") >"$log" 2>&1
    status=$? ok=0 match=$(grep -c '^  trial .*: match' "$log")
    [ $status.$match = "0.$TRIALS" ] && ok=1 || { tail -20 "$log"; touch "$W/failed"; }
    printf 'ParallelKernelBench %s, %s gates\t%s\t%s\t%s\t0\t%s\t%s\t%s\t%s\t%s\n' "$3" "$2" \
        "$1" $ok $((1 - ok)) $(($(date +%s) - began)) "$(date -u +%F)" "$4" "${smi##*, }" \
        "$match of $TRIALS trials match$(sed -n 's/^  trial [0-9]*: match | /; /p' "$log" |
            head -1)" | tee -a "$OUT/nccl.tsv"
}
for ranks in ${RANKS:-2 3 4}; do
    for gates in ${GATES:-its live}; do
        cp -r "$PKB" "$W/$ranks.$gates" && cd "$W/$ranks.$gates" || exit 1
        [ $gates = its ] || sed -i '
            /problem_id == 74/,/problem_id == 75/s/ g\.contig/ (g - 5.5).contig/
            /problem_id == 75/,/problem_id == 76/s/ gate\.contig/ (gate - 5.5).contig/' \
            utils/input_output_tensors.py
        if [ "$ranks" -le "$gpus" ]; then
            for problem in ${PROBLEMS:-74 75}; do
                one "$ranks" $gates $problem "$gpus x ${smi%%, *}" "${PERF---measure-perf}"
            done
            continue
        fi
        sed -i 's/torch.device("cuda", rank)/torch.device("cuda", 0)/
            s/torch.cuda.set_device(rank)/torch.cuda.set_device(0)/
            s/^    os.environ\["LOCAL_RANK"\] = .*/&\
    os.environ.update(NCCL_HOSTID=str(rank), NCCL_SOCKET_IFNAME="lo")/' \
            scripts/worker.py utils/init_and_finalize_backends.py
        for problem in ${PROBLEMS:-74 75}; do
            one "$ranks" $gates $problem "$ranks processes on one ${smi%%, *}" "" &
        done
    done
done
wait
[ ! -e "$W/failed" ] && echo "run.sh: every run matches" || { echo "run.sh: a run failed"; exit 1; }
