#!/bin/sh
# run_wire.sh -- kcp-run on a wire that may lose: --wire bf16 and --truncate, as threads
# and as processes over TCP; what is allowed is lost, and nothing where it is refused.
#
# Book: chapter 20.  Checked by: make test, which runs it.  Next: comm/wire.c.
B=$(cd "${1:-build}" && pwd) || exit 1
run="$B/kcp-run" arrays="$B/kcp-arrays"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0
wrong() { echo "run_wire.sh: $*"; failed=1; }
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE \
    KCP_RENDEZVOUS KCP_SECRET KCP_TRUST_NETWORK KCP_JOB TORCHELASTIC_RUN_ID
export KCP_KEY_DIR="$dir/keys" KCP_TIMEOUT_S=60

"$arrays" layer in 48 1 2 4 6 5 kda raw 1 && "$arrays" layer far 4096 1 1 1 6 5 kda raw 1 ||
    exit 1
layer() { "$run" --in in --l2norm --beta sigmoid "$@" >said 2>&1; }
layer --out exact --ranks 4 --form chain || wrong "$(cat said)"

# bf16: near, and not the same; as processes the bits that threads give.
for form in all_gather chain pipeline scan; do
    layer --out threads --ranks 4 --form $form --wire bf16 || wrong "$(cat said)"
    grep -q "in bf16, rounded once" said || wrong "$form: $(cat said)"
    cmp -s threads/o.npy exact/o.npy && wrong "$form: nothing was rounded"
    for x in o dq dk dv dg; do
        off=$("$arrays" off threads/$x.npy exact/$x.npy)
        awk -v off="$off" 'BEGIN { exit !(off > 1e-7 && off < 6e-3) }' ||
            wrong "$form $x: off by $off"
    done
    ids="" r=0
    rm -rf processes
    while [ $r -lt 4 ]; do
        WORLD_SIZE=4 RANK=$r LOCAL_WORLD_SIZE=4 "$run" --in in --out processes --l2norm \
            --beta sigmoid --form $form --wire bf16 >"said.$r" 2>&1 & ids="$ids $!"
        r=$((r + 1))
    done
    for id in $ids; do wait $id || wrong "$form, processes: $(cat said.*)"; done
    diff -r threads processes >said || wrong "$form: $(head -3 said)"
done

# A tolerance: where nothing can be dropped, every bit; where it can, it says so.
layer --out kept --ranks 4 --form chain --truncate 1e-9 || wrong "$(cat said)"
grep -q -- "--truncate 1e-09: 0 of 2 ranks" said || wrong "$(cat said)"
diff -r exact kept >said || wrong "nothing was dropped, and $(head -3 said)"
for form in chain pipeline; do
    "$run" --in far --out all --ranks 3 --l2norm --beta sigmoid --form $form >said 2>&1 ||
        wrong "$(cat said)"
    "$run" --in far --out cut --ranks 3 --l2norm --beta sigmoid --form $form \
        --truncate 0.9 >said 2>&1 || wrong "$(cat said)"
    grep -q "0.9: 1 of 1 ranks" said || wrong "$form: $(cat said)"
    bound=$(sed -n 's/.*|M| at most \([^,]*\),.*/\1/p' said)
    off=$("$arrays" off cut/o.npy all/o.npy)
    awk -v off="$off" -v bound="$bound" 'BEGIN { exit !(off <= bound) }' ||
        wrong "$form: o is off by $off, the bound is $bound"
done

# What cannot be is refused before anything is written.
refused() {
    layer --out no --ranks 4 "$@"
    [ $? = 2 ] && [ "$(wc -l <said)" = 1 ] && grep -q "expected" said ||
        wrong "$*: $(cat said)"
    [ -e no ] && wrong "$*: it wrote"
}
refused --truncate 0.1
refused --truncate 0.1 --form scan
refused --truncate 1 --form chain
refused --truncate -1 --form chain
refused --truncate 0.1 --form chain --canonical 16
refused --truncate 0.1 --form chain --layout zigzag
refused --wire bf16 --canonical 16
refused --wire half
refused --wire bf16 --device gpu
[ $failed = 0 ] && echo "run_wire.sh: bf16 in four forms, a tolerance in two," \
    "as threads and processes"
exit $failed
