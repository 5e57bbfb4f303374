#!/bin/sh
# jitter.sh -- races: the fast kernels with random sleeps, and without one of their waits.
#
# Book: chapter 18; CONTRIBUTING.md, "How the judge works".
# Checked by: itself: mistakes that must be seen.  Next: ../../cuda/tile/jitter.cuh.
#
# Usage: jitter.sh BUILD [build | run]. build makes BUILD/kcp-check-jitter, in which the
# waits, arrivals, copies and barriers of the kernels for sm_90a sleep now and then, and
# one such judge a mistake: a wait of the newest forward taken away. run, on a GPU of
# sm_90: what ships must pass, each mistake must fail.
B=${1:-build} half=$2
export LC_ALL=C
# Why each is needed, as the code reads. wait_a: A beta and kg come by a pipeline of their
# own. wait_aqk: so does Aqk, and no other barrier speaks of its bytes. wait_v: a stage of
# v holds o of the chunk before until it is copied out. With one gate a head, and with two
# warpgroups, each thread arrives at v_empty before it releases that stage of k, whose
# `empty` the same producer waits for: there the wait says nothing more. With a gate a
# channel and one warpgroup k is released first (new_values), and o leaves later
# (update_state): there it is needed, in a stretch of more chunks than stages. V = 64, and
# V = 128 while there is an SM for each 64 columns, are of one warpgroup; the first case
# has stretches of 11 and 15 chunks of it. Neither of the last two was run on a GPU.
mistakes() {                    # name|file|line to take away, the first such one
    cat <<'LIST'
wait_a|scan_sm90.cu|consumer_wait(smem, PIPE_A, chunk);
wait_aqk|scan_sm90.cu|consumer_wait(smem, PIPE_AQK, chunk);
wait_v|pipeline.cuh|if (pipelines == 4 && phase) mbarrier_wait(&smem.v_empty[at],
LIST
}
without() {                     # NAME FILE LINE: the object of a scan that lacks it
    W=$B/without/$1 file=cuda/18_hopper/forward_scan/$2
    rm -rf "$W"; mkdir -p "$W/tree"
    tar cf - Makefile ref cuda tests/proxy.mk | tar xf - -C "$W/tree" || return 1
    awk -v gone="$3" '!done && index($0, gone) { sub(/[^ ].*/, ";"); done = 1 }
        { print } END { exit !done }' "$file" >"$W/tree/$file" ||
        { echo "jitter.sh: $file has no line $3"; return 1; }
    make -s -C "$W/tree" B=build \
        build/jitter/cuda/18_hopper/forward_scan/scan_sm90.cu.o >"$W/log" 2>&1 &&
        mv "$W/tree/build/jitter/cuda/18_hopper/forward_scan/scan_sm90.cu.o" "$W/" &&
        make -s B="$B" WITHOUT="$W" "$W/kcp-check" >>"$W/log" 2>&1
    status=$?
    rm -rf "$W/tree"
    [ $status = 0 ] || tail -3 "$W/log"
    return $status
}
if [ "$half" != run ]; then
    make -s -j"$(nproc)" B="$B" "$B/kcp-check-jitter" || exit 1
    mistakes >"$B/jitter/mistakes"
    ids=
    while IFS='|' read -r name file line; do
        without "$name" "$file" "$line" & ids="$ids $!"
    done <"$B/jitter/mistakes"
    for id in $ids; do wait "$id" || exit 1; done
fi
[ "$half" != build ] || exit 0
nvidia-smi -L >/dev/null 2>&1 || { echo "jitter.sh: no GPU here: nothing was run"; exit 0; }
failed=0
kda="beta=sigmoid H=2 HV=8 K=128 V=128 C=64 lengths=700,900,65 l2norm h0 dht"
kda="$kda gate=softplus"
cases="live kda $kda; live kda $kda strip=2; live gdn $kda; live kda $kda R=2 chain"
judged() {                      # JUDGE STAGE VARIANT LOG
    timeout 60 "$1" --device --quiet --limit 10 --repeats 5 --stage "$2" \
        --variant "$3" --case "$cases" >"$4" 2>&1
}
for v in 08:v3_records 13:v2_stages ${MORE:-}; do
    judged "$B/kcp-check-jitter" "${v%:*}" "${v#*:}" "$B/jitter/${v%:*}.txt" && continue
    echo "jitter.sh: with sleeps $v fails: $(grep -m 2 FAIL "$B/jitter/${v%:*}.txt")"
    failed=1
done
for name in $(mistakes | cut -d'|' -f1); do
    [ -x "$B/without/$name/kcp-check" ] || {
        echo "jitter.sh: $name: found no $B/without/$name/kcp-check, expected a build"
        failed=1; continue; }
    judged "$B/without/$name/kcp-check" 08 v3_records "$B/without/$name/said"
    if grep -q '^FAILED' "$B/without/$name/said"; then echo "jitter.sh: $name: seen"
    else echo "jitter.sh: $name: taken away, and nothing fails"; failed=1; fi
done
[ $failed != 0 ] || echo "jitter.sh: right with sleeps, and each mistake is seen"
exit $failed
