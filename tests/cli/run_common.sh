# run_common.sh -- defines functions for scripts that source this file in the tree's root.
# Book: chapter 20.
# Makes and enters a work folder, removed at exit. Sets $run, $top and $python.
B=$(cd "${1:-build}" && pwd) || exit 2
top=$(cd "$(dirname "$0")/../.." && pwd)
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
script=$(basename "$0")
cd "$W" || exit 2
run="$B/kcp-run"
passed=0 failed=0
for python in "${PYTHON:-python3}" /usr/bin/python3 ''; do
    "$python" -c 'import numpy' 2>/dev/null && break
done
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK SLURM_NTASKS SLURM_STEP_NUM_TASKS \
    OMPI_COMM_WORLD_SIZE PMI_SIZE
export PYTHONDONTWRITEBYTECODE=1
export KCP_TIMEOUT_S=60 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none

fail() { failed=$((failed + 1)); echo "  FAIL  $script: $*"; }
pass() { passed=$((passed + 1)); }
# arrays VERB...: makes or compares .npy files. Without NumPy the script ends.
arrays() {
    [ -n "$python" ] || { echo "$script: NumPy not found: the rest was not run:" \
        "$passed passed, $failed failed"; exit $((failed > 0)); }
    "$python" "$top/tests/cli/arrays.py" "$@"
}
# gives DIR option...: runs kcp-run with outputs in DIR and checks for status 0.
gives() {
    to=$1; shift
    rm -rf "$to"
    if "$run" --in in --out "$to" "$@" >stdout 2>stderr && [ -s stdout ]; then pass
    else fail "status $? for $*: $(cat stderr)"; fi
}
# alike A B TOLERANCE [NAME...]: checks that folders A and B are equal within TOLERANCE, or
# bit for bit if TOLERANCE is 0. arrays.py explains NAME.
alike() { arrays same "$@" 2>stderr && pass || fail "$*: $(cat stderr)"; }
# has FILE...: checks that the files exist.
has() { for f; do [ -s "$f" ] && pass || fail "$f: not written"; done; }
