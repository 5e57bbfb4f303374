#!/bin/sh
# jitter.sh -- finds races by random sleeps in fast kernels; removed waits must be found.
#
# Book: chapter 18; CONTRIBUTING.md, "How the judge works".
#
# Usage: jitter.sh BUILD [lines | build | run]. `lines` prints each mistake whose source
# line is no longer in the file. `build` makes BUILD/kcp-check-jitter, in which the waits,
# arrivals, copies and barriers of the sm_90a kernels sleep at random. `build` also makes
# one such judge per mistake, in which one kernel has the mistake. `run` needs an sm_90 GPU.
# The kernels as shipped must pass, and each mistake must fail. EACH= sets the time limit of
# one judge in seconds (150). MISTAKES="a b" selects mistakes.
B=${1:-build} half=$2
export LC_ALL=C
# Most rows below remove one wait. Then a warp reads data that may not have arrived, or
# overwrites data that another warp may still read. `wait_v` matters only with one gate per
# channel, one warpgroup, and segments with more chunks than pipeline stages. Otherwise a
# release of k implies the release of v. The first of $cases has such segments, of 11 and 15
# chunks. Other rows make other mistakes. In `walk_order`, a window (the chunks of one
# launch) does not continue from the previous window's map. In `walk_last`, the last window
# is omitted, although other ranks need its map. In `one_factor` and `steps_factor`, a decay
# underflows. In `maps_exit`, a block ends while the cluster's other block still uses its
# barriers. In `share_beta`, `wide_decay` and `wide_decay_gdn`, beta is wrong or a decay is
# missing, but only in cases with many heads. In `wide_*`, kernels round gates of fp32 to
# bf16. The list omits four waits without which all
# cases pass on an H100. Without the barrier before chain.cuh's product kb dSa, each warp
# still reads only columns that it wrote. Without the wait for `dots`, new values are loaded
# 1 us after the products that read the old values. Without the wait for values, values
# still arrive before chain.cuh reads them, because gates arrive later. Without the wait
# before the second load of the last step's g, `finish` has already read the previous g.
mistakes() {
    all_mistakes | awk -F '|' -v only=" $MISTAKES " \
        'only == "  " || index(only, " " $1 " ")'
}
# name|stage:variant|kernels|file in cuda/18_hopper|line to remove|replacement|case
all_mistakes() {
    cat <<'LIST'
wait_a|08:v3_prepare_scan|forward_scan/scan|forward_scan/scan_sm90.cu|consumer_wait(smem, PIPE_A, chunk);
wait_aqk|08:v3_prepare_scan|forward_scan/scan|forward_scan/scan_sm90.cu|consumer_wait(smem, PIPE_AQK, chunk);
wait_v|08:v3_prepare_scan|forward_scan/scan|forward_scan/pipeline.cuh|if (storage::HAS_O && phase) mbarrier_wait(&smem.v_empty[at],
reverse_full|13:v4_scans_finish|backward/scans|backward/reverse.cuh|mbarrier_wait(&smem.full[at], phase);
reverse_empty|13:v4_scans_finish|backward/scans|backward/reverse.cuh|if (phase) mbarrier_wait(&smem.empty[at], phase - 1);
sums_full|13:v4_scans_finish|backward/finish_kda|backward/finish_kda.cuh|mbarrier_wait(&smem.sums_full, i.chunk);
sums_dS|13:v4_scans_finish|backward/finish_kda|backward/finish_producer.cuh|mbarrier_wait(&smem.full[PART_dS], i.chunk);
dbeta|13:v4_scans_finish|backward/finish_kda|backward/finish_producer.cuh|named_barrier_sync(DIAGONAL_STORED,
gdn_dS|13:v4_scans_finish|backward/finish_gdn|backward/finish_gdn_sm90.cu|mbarrier_wait(&smem.full[GDN_dS], i.chunk);
gdn_sums|13:v4_scans_finish|backward/finish_gdn|backward/finish_gdn.cuh|mbarrier_wait(&smem.sums_full, i.chunk);
states_k|13:v4_scans_finish|backward/scans|backward/states.cuh|consumer_wait(smem.in, PIPE_K, chunk);
states_a|13:v4_scans_finish|backward/scans|backward/states.cuh|consumer_wait(in, PIPE_A, chunk);
rows_full|13:v4_scans_finish|backward/finish_kda|backward/finish_kda.cuh|mbarrier_wait(&smem.full[PART_ROWS + i.chunk % 2], i.chunk / 2);
dO_full|13:v4_scans_finish|backward/finish_kda|backward/finish_kda.cuh|mbarrier_wait(&smem.full[PART_dO], i.chunk);
dO_empty|13:v4_scans_finish|backward/finish_kda|backward/finish_producer.cuh|if (i.chunk) mbarrier_wait(&smem.empty[OF_dO], before);
triangles|13:v4_scans_finish|backward/finish_kda|backward/finish_kda.cuh|named_barrier_sync(CONSUMERS_SYNC, CONSUMERS); // the triangles are stored
walk_wait|08:v3_prepare_scan|maps/maps|maps/maps_sm90.cu|griddepcontrol_wait();
walk_order|08:v3_prepare_scan|v3_prepare_scan|v3_prepare_scan_sm90.cu|w.from, w.strip,|status = forward_maps_walk(&x, w.strip - 1, w.strip, f->walk == KCP_WANT_H);
walk_last|08:v3_prepare_scan|v3_prepare_scan|v3_prepare_scan_sm90.cu|if (!status && w.is_read)|if (!status && w.is_read && w.first + w.count < x.a.NC)
one_raw|08:v5_one_kernel|forward_one/v5_one_kernel|forward_one/gate_warps.cuh|mbarrier_wait(&smem.raw[at.stage], at.phase);||one
one_empty|08:v5_one_kernel|forward_one/v5_one_kernel|forward_one/storage.cuh|if (at.phase && !mbarrier_test(&smem.empty[at.stage], at.phase - 1)) return;||one
one_gated|08:v5_one_kernel|forward_one/v5_one_kernel|forward_one/inverse_warps.cuh|mbarrier_wait(kda ? &smem.gated[st] : &smem.raw[st], at.phase);||one
one_squares|08:v5_one_kernel|forward_one/v5_one_kernel|forward_one/query_warps.cuh|if (!mbarrier_test(&smem.gated[st], at.phase)) continue;||one
one_queries|08:v5_one_kernel|forward_one/v5_one_kernel|forward_one/query_warps.cuh|mbarrier_wait(&smem.decayed[st], at.phase);    // squares||one
one_decayed|08:v5_one_kernel|forward_one/v5_one_kernel|forward_one/step_scan.cuh|mbarrier_wait(&smem.decayed[st], at.phase);||one
one_inverted|08:v5_one_kernel|forward_one/v5_one_kernel|forward_one/step_scan.cuh|if (kda) mbarrier_wait(&smem.inverted[st], at.phase);||one
one_scored|08:v5_one_kernel|forward_one/v5_one_kernel|forward_one/step_scan.cuh|mbarrier_wait(&smem.scored[st], at.phase);||one
one_o|08:v5_one_kernel|forward_one/v5_one_kernel|forward_one/step_scan.cuh|warpgroup_sync();||one
one_factor|08:v5_one_kernel|forward_one/v5_one_kernel|forward_one/query_warps.cuh|if (__any_sync(~0u, lowest < -120.0f)) {|if (lowest < -1000.0f) {|turns
steps_raw|13:v5_steps|backward_one/v5_steps|backward_one/chain.cuh|mbarrier_wait(&m.raw[st], s / GATED);||steps
steps_F|13:v5_steps|backward_one/v5_steps|backward_one/chain.cuh|if (s >= 2) mbarrier_wait(&m.again_empty, s - 2);||steps
steps_gated|13:v5_steps|backward_one/v5_steps|backward_one/chain.cuh|mbarrier_wait(&m.gated_full[st], phase);||steps
steps_dS_empty|13:v5_steps|backward_one/v5_steps|backward_one/chain.cuh|if (s) mbarrier_wait(&m.dS_empty, s - 1);||steps
steps_both|13:v5_steps|backward_one/v5_steps|backward_one/chain.cuh|mbarrier_wait(&m.dv_full[rs], s / VALUES); // of both||steps
steps_staged|13:v5_steps|backward_one/v5_steps|backward_one/chain.cuh|if (s) mbarrier_wait(&m.staged, s - 1);||steps
steps_sent|13:v5_steps|backward_one/v5_steps|backward_one/chain.cuh|mbarrier_wait(&m.staged, w.steps - 1);||steps
steps_state|13:v5_steps|backward_one/v5_steps|backward_one/finish.cuh|mbarrier_wait(&m.state_full, s);||steps
steps_dv|13:v5_steps|backward_one/v5_steps|backward_one/finish.cuh|mbarrier_wait(&m.dv_full[rs], s / VALUES);||steps
steps_triangles|13:v5_steps|backward_one/v5_steps|backward_one/finish.cuh|mbarrier_wait(&m.triangles_full, s);||steps
steps_kb|13:v5_steps|backward_one/v5_steps|backward_one/finish.cuh|mbarrier_wait(&m.dS_empty, s);||steps
steps_again|13:v5_steps|backward_one/v5_steps|backward_one/finish.cuh|mbarrier_wait(&m.again[f], s);||steps
steps_norms|13:v5_steps|backward_one/v5_steps|backward_one/finish.cuh|mbarrier_wait(&m.dots, s);||steps
steps_rows|13:v5_steps|backward_one/v5_steps|backward_one/finish.cuh|named_barrier_sync(2 + f, 128);||steps
steps_sums|13:v5_steps|backward_one/v5_steps|backward_one/finish.cuh|named_barrier_sync(1, 256);||steps
steps_factor|13:v5_steps|backward_one/v5_steps|backward_one/chain.cuh|const int deep = __any_sync(~0u, fminf(all[0] + a.x, all[1] + a.y) < -120.0f);|const int deep = 0;|turns
maps_exit|08:v3_prepare_scan|maps/maps|maps/maps_sm90.cu|if (blocks > 1) cluster_sync();|
share_beta|08:v3_prepare_scan|kda_prepare/chunk_prepare|kda_prepare/chunk_prepare_sm90.cu|smem.beta[threadIdx.x] = beta_of_row(|smem.beta[threadIdx.x] = (chunk == 1 ? 0.5f : 1.0f) * beta_of_row(x, z.len, c, n, loaded.beta);|share
wide_decay|08:v3_prepare_scan|forward_scan/scan|forward_scan/scan_sm90.cu|scale_columns<K / 8>(S, smem.decay[at]);|if (!(WGS == 2 && chunk == 1)) scale_columns<K / 8>(S, smem.decay[at]);|wide kda
wide_decay_gdn|08:v3_prepare_scan|forward_scan/scan|forward_scan/scan_sm90.cu|scale_state(S, K / 8, f.decay[0]);|if (!(WGS == 2 && chunk == 1)) scale_state(S, K / 8, f.decay[0]);|wide gdn
wide_gate|08:v3_prepare_scan|kda_prepare/chunk_prepare|kda_prepare/rows.cuh|G[r][0] = x.x;|G[r][0] = (float)(bf16)x.x;|types kda
wide_gate_gdn|08:v3_prepare_scan|gdn_prepare/chunk_prepare|chunk_prepare.cuh|float_of_bits(g_bits[h]|for (int h = 0; h < 2; h++) g[h] = (float)(bf16)float_of_bits(g_bits[h], x.a.g_type);|types gdn
wide_finish|13:v4_scans_finish|backward/finish_kda_f32|backward/finish_gate.cuh|x[t][j] = there ?|x[t][j] = there ? (float)(bf16)from[j % 2 * row + j / 2 * 8] : 0.0f;|types kda
wide_finish_gdn|13:v4_scans_finish|backward/finish_gdn|backward/finish_gdn.cuh|return float_of_bits(bits, a.g_type) + dt;|return (float)(bf16)float_of_bits(bits, a.g_type) + dt;|types gdn
LIST
}
lines() {
    mistakes | while IFS='|' read -r name _ _ file line _ _; do
        grep -qF -e "$line" "cuda/18_hopper/$file" ||
            echo "tests/cli/jitter.sh: $name: $file has no line $line"
    done
}
[ "$half" != lines ] || { lines; exit; }
without() {          # NAME KERNELS FILE LINE NEW: builds a judge in which NEW replaces LINE
    W=$B/without/$1 file=cuda/18_hopper/$3 object=cuda/18_hopper/$2_sm90.cu.o
    rm -rf "$W"; mkdir -p "$W/tree"
    tar cf - Makefile ref cuda tests/proxy.mk | tar xf - -C "$W/tree" || return 1
    awk -v gone="$4" -v place="${5:-;}" '!done && index($0, gone) {
            match($0, /^ */)
            $0 = substr($0, 1, RLENGTH) place
            done = 1
        }
        { print } END { exit !done }' "$file" >"$W/tree/$file" ||
        { echo "jitter.sh: $file has no line $4"; return 1; }
    make -s -C "$W/tree" B=build "build/jitter/$object" >"$W/log" 2>&1 &&
        mkdir -p "$W/${object%/*}" && mv "$W/tree/build/jitter/$object" "$W/$object" &&
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
    while IFS='|' read -r name _ kernels file line place _; do
        without "$name" "$kernels" "$file" "$line" "$place" & ids="$ids $!"
    done <"$B/jitter/mistakes"
    for id in $ids; do wait "$id" || exit 1; done
fi
[ "$half" != build ] || exit 0
nvidia-smi -L >/dev/null 2>&1 || { echo "jitter.sh: no GPU here: nothing was run"; exit 0; }
failed=0
kda="beta=sigmoid H=2 HV=8 K=128 V=128 C=64 lengths=700,900,65 l2norm h0 dht"
kda="$kda gate=softplus"
cases="live kda $kda; live kda $kda strip=2; live gdn $kda; live kda $kda R=2 chain"
walk="beta=sigmoid H=2 HV=8 K=128 V=128 C=64 lengths=1900 l2norm h0 gate=softplus R=2"
walk="$walk chain strip=4 walk=sequential"
cases="$cases; live kda $walk; live gdn $walk"
one="beta=sigmoid H=2 HV=8 K=128 V=128 C=64 lengths=700,900,65 l2norm h0 dht"
one="$one gate=bounded"
# Case `share` has 33 chunks and 144 heads, so that a block gets three chunks. Case `wide`
# has enough scans for all SMs, so that each block scans 128 columns.
many="beta=sigmoid K=128 V=128 C=64 l2norm h0 dht gate=softplus"
share="live kda $many H=36 HV=144 lengths=193"
for n in 1 2 1 3 1 1 2 1 1 4 1 1 2 1 3 1 1 1 2 1 5 1 1 2 1 1 3 1 1; do share="$share,$n"; done
wide="$many H=10 HV=70 lengths=150"
cases_of() {                    # WHAT (a row's last column): prints cases, by default $cases
    case $1 in
    share) echo "$share" ;;
    wide*) echo "live ${1#wide } $wide" ;;
    one) echo "live kda $one; live gdn $one" ;;
    steps) echo "live kda $one" ;;
    turns) echo "turns kda $one" ;;
    types*) echo "live ${1#types } $kda steady g=f32 beta=f32" ;;
    *) echo "$cases" ;;
    esac
}
judged() {                      # JUDGE STAGE VARIANT LOG [WHAT]
    timeout "${EACH:-150}" "$1" --device --quiet --limit 30 --repeats 5 --stage "$2" \
        --variant "$3" --case "$(cases_of "$5")" >"$4" 2>&1
}
many_heads() {
    judged "$B/kcp-check-jitter" 08 v3_prepare_scan "$B/jitter/many.txt" share &&
        judged "$B/kcp-check-jitter" 08 v3_prepare_scan "$B/jitter/many.txt" "wide kda" &&
        judged "$B/kcp-check-jitter" 08 v3_prepare_scan "$B/jitter/many.txt" "wide gdn"
}
[ -n "$MISTAKES" ] || many_heads || {
    echo "jitter.sh: with sleeps and many heads v3_prepare_scan fails:" \
         "$(grep -m 2 FAIL "$B/jitter/many.txt")"
    failed=1
}
for v in 08:v3_prepare_scan 08:v5_one_kernel 13:v2_stages 13:v4_scans_finish \
         13:v5_steps ${MORE:-}; do
    [ -z "$MISTAKES" ] || mistakes | grep -q "|$v|" || continue
    what=
    case $v in 08:v5_one_kernel) what=one ;; 13:v5_steps) what=steps ;; esac
    judged "$B/kcp-check-jitter" "${v%:*}" "${v#*:}" "$B/jitter/${v#*:}.txt" "$what" &&
        continue
    why=$(grep -m 2 FAIL "$B/jitter/${v#*:}.txt") || why="no verdict in ${EACH:-150} s"
    echo "jitter.sh: with sleeps $v fails: $why"
    failed=1
done
# Runs at most three judges concurrently, because more could exceed their time limit.
started=0
for at in $(mistakes | cut -d'|' -f1,2); do
    name=${at%|*} v=${at#*|}
    [ -x "$B/without/$name/kcp-check" ] || continue
    what=$(mistakes | awk -F '|' -v name="$name" '$1 == name { print $7 }')
    judged "$B/without/$name/kcp-check" "${v%:*}" "${v#*:}" "$B/without/$name/output" \
        "$what" &
    started=$((started + 1))
    [ $((started % 3)) != 0 ] || wait
done
wait
for name in $(mistakes | cut -d'|' -f1); do
    [ -x "$B/without/$name/kcp-check" ] || {
        echo "jitter.sh: $name: found no $B/without/$name/kcp-check, expected a build"
        failed=1; continue; }
    if grep -q '^FAILED' "$B/without/$name/output"; then echo "jitter.sh: $name: seen"
    else echo "jitter.sh: $name: nothing fails with this mistake"; failed=1; fi
done
[ $failed != 0 ] || echo "jitter.sh: kernels pass with sleeps, and each mistake fails"
exit $failed
