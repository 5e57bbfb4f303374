#!/bin/sh
# run_wire.sh -- kcp-run on a wire that may lose: --wire bf16 and --truncate, as threads
# and as processes over TCP; what is allowed is lost, and nothing where it is refused.
#
# Book: chapter 20.  Checked by: make test, which runs it.  Next: comm/wire.c.
. "$(dirname "$0")/run_common.sh"

"$arrays" layer in 48 1 2 4 6 5 kda raw 1 && "$arrays" layer far 4096 1 1 1 6 5 kda raw 1 ||
    exit 1
all="--l2norm --beta sigmoid"
# shellcheck disable=SC2086
gives exact $all --ranks 4 --form chain

# bf16: near, and not the same; as processes the bits that threads give.
for form in all_gather chain pipeline scan; do
    # shellcheck disable=SC2086
    gives threads $all --ranks 4 --form $form --wire bf16
    grep -q "rounded to bf16" stdout stderr || fail "$form: $(cat stdout stderr)"
    cmp -s threads/o.npy exact/o.npy && fail "$form: nothing was rounded"
    for x in o dq dk dv dg; do
        off=$("$arrays" off threads/$x.npy exact/$x.npy)
        awk -v off="$off" 'BEGIN { exit !(off > 1e-7 && off < 6e-3) }' && pass ||
            fail "$form $x: off by $off"
    done
    rm -rf processes
    # shellcheck disable=SC2086
    as_processes 4 processes $all --form $form --wire bf16 ||
        fail "$form, processes: $(cat said.*)"
    if diff -r threads processes >stderr; then pass; else fail "$form: $(head -3 stderr)"; fi
done

# A tolerance: where nothing can be dropped, every bit; where it can, it says so.
# shellcheck disable=SC2086
gives kept $all --ranks 4 --form chain --truncate 1e-9
grep -q -- "--truncate 1e-09: 0 of 2 ranks" stdout stderr || fail "$(cat stdout stderr)"
if diff -r exact kept >stderr; then pass
else fail "nothing was dropped, and $(head -3 stderr)"; fi
mv in near; mv far in
for form in chain pipeline; do
    rm -rf all cut
    # shellcheck disable=SC2086
    gives all $all --ranks 3 --form $form
    # shellcheck disable=SC2086
    gives cut $all --ranks 3 --form $form --truncate 0.9
    cat stdout stderr >said
    grep -q "0.9: 1 of 1 ranks" said || fail "$form: $(cat said)"
    bound=$(sed -n 's/.*|M| at most \([^,]*\),.*/\1/p' said)
    off=$("$arrays" off cut/o.npy all/o.npy)
    awk -v off="$off" -v bound="$bound" 'BEGIN { exit !(off <= bound) }' && pass ||
        fail "$form: o is off by $off, the bound is $bound"
done
mv in far; mv near in

# What cannot be is refused before anything is written.
refused() {
    # shellcheck disable=SC2086
    "$run" --in in --out no $all --ranks 4 "$@" >said 2>&1
    [ $? = 2 ] && [ "$(wc -l <said)" = 1 ] && grep -q -- "^kcp-run: ${1}: " said && pass ||
        fail "$*: $(cat said)"
    [ -e no ] && fail "$*: it wrote"
}
refused --truncate 0.1
refused --truncate 0.1 --form scan
refused --truncate 1 --form chain
refused --truncate -1 --form chain
refused --truncate 0.1 --form chain --canonical 16
refused --truncate 0.1 --form chain --layout zigzag
refused --wire bf16 --canonical 16
refused --wire half
refused --truncate 0.1 --form scan --device gpu
echo "kcp-run --wire, --truncate: $passed passed, $failed failed: bf16 in four forms," \
    "a tolerance in two, as threads and processes"
[ $failed -eq 0 ]
