# run_common.sh -- defines functions for scripts that source this file in the tree's root.
# Book: chapter 20.
# Makes and enters a work folder, removed at exit. Sets $run and $arrays.
B=$(cd "${1:-build}" && pwd) || exit 2
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
script=$(basename "$0")
cd "$W" || exit 2
run="$B/kcp-run" arrays="$B/kcp-arrays"
passed=0 failed=0
unset RANK WORLD_SIZE LOCAL_RANK SLURM_STEP_NUM_TASKS OMPI_COMM_WORLD_SIZE PMI_SIZE
export KCP_TIMEOUT_S=60 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none

fail() { failed=$((failed + 1)); echo "  FAIL  $script: $*"; }
pass() { passed=$((passed + 1)); }
# gives DIR option...: runs kcp-run with outputs in DIR and checks for status 0.
gives() {
    to=$1; shift
    rm -rf "$to"
    if "$run" --in in --out "$to" "$@" >stdout 2>stderr && [ -s stdout ]; then pass
    else fail "status $? for $*: $(cat stderr)"; fi
}
# alike A B TOLERANCE: checks that folders A and B are equal within TOLERANCE, or bit for
# bit if TOLERANCE is 0.
alike() {
    for f in "$2"/*.npy; do
        "$arrays" same "$1/${f##*/}" "$f" "$3" 2>stderr && continue
        fail "$(cat stderr)"
        return
    done
    [ "$(ls "$1")" = "$(ls "$2")" ] && pass || fail "$1 and $2: other files"
}
# has FILE...: checks that the files exist.
has() { for f; do [ -s "$f" ] && pass || fail "$f: not written"; done; }
