# run_common.sh -- what the scripts that drive kcp-run share; they read it, none runs it.
#
# Book: chapter 20.  Checked by: run_cli.sh, run_owners.sh, run_sum.sh, run_relatives.sh,
# run_wire.sh, run_processes.sh.  Next: run_cli.sh.
# With $0 SCRIPT.sh BUILD: a folder to work in, gone at the end; $run, $arrays; counts of
# what passed and failed, which the script prints; a job that no launcher here knows of.
B=$(cd "${1:-build}" && pwd) || exit 1
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
script=$(basename "$0" .sh)
cd "$W" || exit 1
run="$B/kcp-run" arrays="$B/kcp-arrays"
passed=0 failed=0
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE SLURM_NTASKS \
    OMPI_COMM_WORLD_SIZE KCP_RENDEZVOUS KCP_SECRET KCP_TRUST_NETWORK KCP_JOB \
    TORCHELASTIC_RUN_ID
export KCP_KEY_DIR="$W/keys" KCP_TIMEOUT_S=60

fail() { failed=$((failed + 1)); echo "  FAIL  $script: $*"; }
pass() { passed=$((passed + 1)); }
# gives DIR option...: status 0 and outputs in DIR, which is new.
gives() {
    to=$1; shift; rm -rf "$to"
    if "$run" --in in --out "$to" "$@" >stdout 2>stderr && [ -s stdout ]; then pass
    else fail "status $? for $*: $(cat stderr)"; fi
}
# as_processes R DIR option...: R processes of one job, by torchrun's variables; what rank
# r says is in said.r. Status 0 if all end so.
as_processes() {
    R=$1 to=$2 ids="" r=0 ended=0; shift 2
    while [ $r -lt "$R" ]; do
        WORLD_SIZE=$R RANK=$r LOCAL_WORLD_SIZE=$R "$run" --in in --out "$to" "$@" \
            >"said.$r" 2>&1 & ids="$ids $!"
        r=$((r + 1))
    done
    for id in $ids; do wait "$id" || ended=1; done
    return $ended
}
# alike A B tolerance: the same files, the same numbers.
alike() {
    for f in "$2"/*.npy; do
        "$arrays" same "$1/${f##*/}" "$f" "$3" 2>stderr && continue
        fail "${model:+$model: }$(cat stderr)"
        return
    done
    [ "$(ls "$1")" = "$(ls "$2")" ] && pass || fail "$1 and $2: other files"
}
# judge_refusal WHAT OPTIONS: the run ended with $status 2, one line that names WHAT, and
# no output.
judge_refusal() {
    if [ $status -ne 2 ] || [ "$(wc -l <stderr)" -ne 1 ] || [ -s stdout ] || [ -e out ]
    then fail "status $status for $1 $2: $(head -1 stderr)"
    elif ! grep -q -- "^kcp-run: .*$1" stderr
    then fail "no '$1' for $2: $(cat stderr)"
    else pass; fi
    rm -rf out
}
