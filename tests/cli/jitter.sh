#!/bin/sh
# jitter.sh -- finds races by random sleeps in fast kernels; planted mistakes must be found.
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
# tests/proxy/omit.py leaves out waits; the rows below make other mistakes. In `walk_order`,
# a window (the chunks of one launch) does not continue from the previous window's map. In
# `walk_last`, the last window is omitted, although other ranks need its map. In `one_factor`
# and `steps_factor`, a decay underflows. In `share_beta`, `wide_decay` and `wide_decay_gdn`,
# beta is wrong or a decay is missing, but only in cases with many heads. In `wide_*`,
# kernels round gates of fp32 to bf16. In `deep_*`, only gates that close are wrong. In
# `head_*`, v7_by_head takes the one-kernel forward for heads with deep steps, or computes no
# factors for these heads. In `back_*`, its backward reads other heads' deep steps, or none, or
# appends to a list of chunks that is not empty. In `copy_*`, v6_adapted pads with garbage, takes rows
# of another value head or part of a head, sums only one part of a gradient, overwrites rows
# of other ranks, or does not convert f16. In `half_*`, the fused forward does not convert
# k, v or o of f16, in `pad_*` it reads rows or biases of other channels. In `tile_*`, kernels of fp32 omit a decay, beta
# or a value head of dk, take rows of another chunk, or misplace M or dAqk. In `k256_*`,
# kernels of K = 256 omit a decay, a scale, a wait or a gradient, round M, sum or store only
# a part of K or V, misplace M, or divide by small beta.
mistakes() {
    all_mistakes | awk -F '|' -v only=" $MISTAKES " \
        'only == "  " || index(only, " " $1 " ")'
}
# name|stage:variant|kernels|file in cuda/18_hopper or cuda|line to replace|replacement|case
all_mistakes() {
    cat <<'LIST'
walk_order|08:v3_prepare_scan|v3_prepare_scan|v3_prepare_scan_sm90.cu|w.from, w.strip,|status = forward_maps_walk(&x, w.strip - 1, w.strip, f->walk == KCP_WANT_H);
walk_last|08:v3_prepare_scan|v3_prepare_scan|v3_prepare_scan_sm90.cu|if (!status && w.is_read)|if (!status && w.is_read && w.first + w.count < x.a.NC)
one_factor|08:v5_one_kernel|forward_one/v5_one_kernel|forward_one/query_warps.cuh|if (__any_sync(~0u, lowest < -120.0f)) {|if (lowest < -1000.0f) {|alternate
steps_factor|13:v5_steps|backward_one/v5_steps|backward_one/chain.cuh|const int deep = __any_sync(~0u, fminf(all[0] + a.x, all[1] + a.y) < -120.0f);|const int deep = 0;|alternate
share_beta|08:v3_prepare_scan|kda_prepare/chunk_prepare|kda_prepare/prepare_kernel.cuh|smem.beta[threadIdx.x] = beta_of_row(|smem.beta[threadIdx.x] = (chunk == 1 ? 0.5f : 1.0f) * beta_of_row(x, z.len, c, n, loaded.beta);|chunks
wide_decay|08:v3_prepare_scan|forward_scan/scan|forward_scan/scan_sm90.cu|scale_columns<K / 8>(S, smem.decay[at]);|if (!(WGS == 2 && chunk == 1)) scale_columns<K / 8>(S, smem.decay[at]);|wide kda
wide_decay_gdn|08:v3_prepare_scan|forward_scan/scan|forward_scan/scan_sm90.cu|scale_state(S, K / 8, f.decay[0]);|if (!(WGS == 2 && chunk == 1)) scale_state(S, K / 8, f.decay[0]);|wide gdn
deep_anchor|08:v3_prepare_scan|kda_prepare/chunk_prepare|kda_prepare/deep_scores.cuh|const int last = ((g + j % 2 * 8) & -2 * s) + s - 1;|const int last = ((g + j % 2 * 8) & -2 * s) + s - 1 - (s == 4);|deep kda
deep_sign|13:v4_scans_finish|backward/finish_kda|backward/finish_deep.cuh|const int is_row = (8 * t + e + j % 2) & s;|const int is_row = s == 2 ? 1 : (8 * t + e + j % 2) & s;|deep kda
deep_columns|13:v4_scans_finish|backward/finish_kda|backward/finish_consumer.cuh|const float anchor = deep ? b.at[t / 2 + 1][h]|const float anchor = b.at[t / 2][h];|deep kda
deep_gdn|08:v5_one_kernel|forward_one/v5_one_kernel|forward_one/inverse_warps.cuh|if (!__any_sync(~0u, fabsf(x) > 116.0f))|if (lane_id() < 32)|deep gdn
head_other|08:v7_by_head|forward_one/v5_one_kernel|deep_steps.cuh|const int head = n / (x.a.HV / H);|const int head = n / (x.a.HV / H) ^ 1;|heads
head_none|08:v7_by_head|forward_one/v7_by_head|forward_one/v7_by_head_sm90.cu|if (deep && lane == 0) x.deep[|;|heads
head_span|08:v7_by_head|kda_prepare/chunk_prepare|kda_prepare/prepare_kernel.cuh|while (count && !needs_factors(x, last - count + 1, n)) count--;|while (count && !needs_factors(x, last, n)) count--;|heads
back_none|13:v7_by_head|forward_one/v7_by_head|forward_one/v7_by_head_sm90.cu|if (deep && lane == 0) x.deep[|;|heads
back_steps|13:v7_by_head|backward_one/v5_steps|deep_steps.cuh|const int head = n / (x.a.HV / H);|const int head = n / (x.a.HV / H) ^ 1;|heads
back_scans|13:v7_by_head|backward/scans|deep_steps.cuh|const int head = n / (x.a.HV / H);|const int head = n / (x.a.HV / H) ^ 1;|heads
back_pairs|13:v7_by_head|backward_one/v7_by_head|backward_one/v7_by_head_sm90.cu|cudaMemsetAsync(x->pairs, 0, sizeof(int), a->stream);|cudaMemsetAsync(x->pairs + 1, 0, sizeof(int), a->stream);|heads
wide_gate|08:v3_prepare_scan|kda_prepare/chunk_prepare|kda_prepare/rows.cuh|G[r][0] = x.x;|G[r][0] = (float)(bf16)x.x;|types kda
wide_gate_gdn|08:v3_prepare_scan|gdn_prepare/chunk_prepare|chunk_prepare.cuh|float_of_bits(g_bits[h]|for (int h = 0; h < 2; h++) g[h] = (float)(bf16)float_of_bits(g_bits[h], x.a.g_type);|types gdn
wide_finish|13:v4_scans_finish|backward/finish_kda_f32|backward/finish_gate.cuh|x[t][j] = there ?|x[t][j] = there ? (float)(bf16)from[j % 2 * row + j / 2 * 8] : 0.0f;|types kda
half_k|08:v6_adapted|kda_prepare/chunk_prepare_f16|kda_prepare/rows.cuh|*k = converted<KCP_TYPE_BF16>(y);||f16
half_v|08:v6_adapted|forward_scan/scan|forward_scan/products.cuh|const uint32_t pair = converted|const uint32_t pair = r[i / 4][i % 4];|f16
half_o|08:v6_adapted|forward_scan/scan|forward_scan/scan_sm90.cu|half ? converted<KCP_TYPE_F16>(x) : x|*(uint4 *)(to.to + i * to.step) = x;|f16
pad_rows|08:v6_adapted|kda_prepare/chunk_prepare|kda_prepare/rows.cuh|const int n = x.channels|const int n = x.channels - 8, words = a.g_type == KCP_TYPE_F32 ? 2 * a.K : n;|pads
pad_gate|08:v6_adapted|v3_prepare_scan|v3_prepare_scan_workspace.cuh|a->KG = a->K;||pads
copy_pad|08:v6_adapted|adapted/v6_adapted|adapted/rows.cuh|y[b] = fill;||copies
copy_heads|08:v6_adapted|adapted/v6_adapted|adapted/rows.cuh|x += ((o * of_x.heads + n / parts) * of_x.a + a)|x += ((o * of_x.heads + n % of_x.heads) * of_x.a + a) * of_x.b + first;|copies
copy_columns|08:v6_adapted|adapted/v6_adapted|adapted/rows.cuh|const int first = of_x.cut == CUT_B|const int first = 0;|copies
copy_layout|08:v6_adapted|adapted/v6_adapted|adapted/rows.cuh|const int a = at % of_y.a + (of_x.cut == CUT_A|const int a = at % of_y.a;|copies
copy_sum|13:v6_adapted|adapted/v6_adapted|adapted/rows.cuh|for (int j = 0; j < parts; j++) {|for (int j = 0; j < 1; j++) {|copies
copy_others|08:v6_adapted|adapted/v6_adapted|adapted/v6_adapted.cu|y->field->shape[0] == 'N')|if (is_in)|ranks
copy_f16|08:v6_adapted|adapted/v6_adapted|adapted/rows.cuh|(out ? x : y)[b] = half|(out ? x : y)[b] = unit;|f16
copy_f16_back|13:v6_adapted|adapted/v6_adapted|adapted/v6_adapted.cu|else copy_array<1>(y, y->half|else copy_array<1>(y, 0, uint4{}, c->stream);|f16
tile_decay|04:v2_tiles_f32|04_chunk/v2_tiles_f32|tile/fp32_scan.cuh|S[r][v] += m.decay[b][iR + r] * m.S|S[r][v] += m.S[iR + r][j + v];|tiles
tile_next|05:v2_tiles_f32|05_affine/v2_tiles_f32|tile/fp32_scan.cuh|load_rows(m.update, c.update, z, K);|load_rows(m.update, c.update, next, K);|tiles
tile_upper|09:v2_tiles_f32|09_chunk_backward/v2_tiles_f32|09_chunk_backward/v2_tiles_f32.cu|j <= i4 + r ? (float)a.scale|(float)a.scale * dAqk[r][s];|tiles
tile_group|10:v2_tiles_f32|10_wy_backward/v2_tiles_f32|10_wy_backward/v2_tiles_f32.cu|*dk = (first ? 0.0f : *dk)|*dk = dk_s + beta * dk_b + dkt[c][r][s] + dAqk * q;|tiles
tile_M|11:v2_tiles_f32|11_merge_backward/v2_tiles_f32|11_merge_backward/v2_tiles_f32.cu|c.end_j = of_h ? 1 : VK;|c.end_i = of_h ? VK : VK, c.end_j = 1;|tiles
tile_beta|03:v2_tiles_f32|03_wy/v2_tiles_f32|03_wy/v2_tiles_f32.cu|m.A[i][j] *= m.beta[j];||tiles
wide_finish_gdn|13:v4_scans_finish|backward/finish_gdn|backward/finish_gdn.cuh|return float_of_bits(bits, a.g_type) + dt;|return (float)(bf16)float_of_bits(bits, a.g_type) + dt;|types gdn
k256_decay|04:v5_wide_sm90|04_chunk/v5_wide|tile/wide_forward.cuh|wide_times_rows<1, stores>(y, S,|wide_times_rows<1, stores>(y, S, m->tile[w % SLOTS], m->old, NULL, gdn);|k256
k256_store|04:v5_wide_sm90|04_chunk/v5_wide|tile/wide_forward.cuh|if (stores) wide_store(*h|if (stores) wide_store(*h, m->old, v, c * a.HV * ROWS_K);|k256
k256_slot|04:v5_wide_sm90|04_chunk/v5_wide|tile/wide_forward.cuh|ring_wait_empty(&m->ring, 2 * i + 1);||k256
k256_output|04:v5_wide_sm90|04_chunk/v5_wide|04_chunk/v5_wide_sm90.cu|y[i][j] *= m.eq[row + j / 2 * 8];|for (int j = 0; j < 4; j++) y[i][j] *= m.eq[row];|k256
k256_reverse|09:v4_wide_sm90|09_chunk_backward/v4_wide|tile/wide_reverse.cuh|scale_rows(d, g.eq, gdn, a.scale);||k256
k256_early|09:v4_wide_sm90|09_chunk_backward/v4_wide|tile/wide_reverse.cuh|ring_wait_full(&m->ring, k);||k256
k256_pieces|05:v4_wide_sm90|05_affine/v4_wide|tile/wide_forward.cuh|wide_times_rows<2, 0>(y, M,|wide_times_rows<1, 0>(y, M, m->tile[w % SLOTS], NULL, NULL, gdn);|k256
k256_factor|05:v4_wide_sm90|05_affine/v4_wide|tile/wide_scan.cuh|const float *of_64|const float *of_64 = g.decay;|k256
k256_columns|05:v4_wide_sm90|05_affine/v4_wide|05_affine/v4_wide_sm90.cu|dim3(a->NS, a->HV, K_TILES + a->V / 64),|return launch_shared(affine_wide, dim3(a->NS, a->HV, 2 * K_TILES),|k256
k256_end|11:v4_wide_sm90|11_merge_backward/v4_wide|11_merge_backward/v4_wide_sm90.cu|dh_end ? dh_end|NULL, dmap, VK, NULL,|k256
k256_M|13:v2_stages|11_merge_backward/v4_wide|11_merge_backward/v4_wide_sm90.cu|if (of_M) M_block(|if (of_M) M_block(a, s, n, z * 64, dmap + z, VK, m);|k256 ranks
k256_reuse|13:v2_stages|11_merge_backward/v4_wide|11_merge_backward/v4_wide_sm90.cu|const int blocks = a.reuse_M ? 0 : K_TILES|const int blocks = K_TILES, VK = a.V + ROWS_K;|k256 ranks
k256_panels|10:v3_split|10_wy_backward/v3_split_wide|10_wy_backward/v3_split_wide_sm90.cu|y.h_dS += dot_half_row|y.h_dS = dot_half_row(x.h[group], x.dS[group]);|k256
k256_half|10:v3_split|10_wy_backward/v3_split_wide|10_wy_backward/v3_split_wide_sm90.cu|const int d = first + 64 * group;|const int d = first;|k256
k256_beta|10:v3_split|10_wy_backward/v3_split_wide|10_wy_backward/v3_split_wide_sm90.cu|is_divisor(beta) ? w / beta : v;|w / beta;|k256
LIST
}
source_of() {                    # prints the first of these files that exists
    for name_ in "$@"; do
        for at_ in "cuda/18_hopper/$name_" "cuda/$name_"; do
            [ ! -f "$at_" ] || { echo "$at_"; return; }
        done
    done
}
lines() {
    mistakes | while IFS='|' read -r name _ _ file line _ _; do
        grep -qF -e "$line" "$(source_of "$file")" ||
            echo "tests/cli/jitter.sh: $name: $file has no line $line"
    done
}
[ "$half" != lines ] || { lines; exit; }
without() {          # NAME KERNELS FILE LINE NEW: builds a judge in which NEW replaces LINE
    W=$B/without/$1 file=$(source_of "$3") object=$(source_of "$2_sm90.cu" "$2.cu").o
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
# Case `chunks` has 33 chunks and 144 heads, so that a block gets three chunks. Case `wide`
# has enough scans for all SMs, so that each block scans 128 columns. In case `heads` a
# quarter of the heads or fewer are deep, so that v7_by_head runs both groups of kernels.
heads="beta=sigmoid H=4 HV=8 K=128 V=128 C=64 lengths=700,900,65 l2norm h0 dht gate=softplus"
copies="live kda beta=sigmoid H=2 HV=4 C=64 lengths=150,33 l2norm h0 dht gate=softplus"
copies="$copies K=96 V=192"
many="beta=sigmoid K=128 V=128 C=64 l2norm h0 dht gate=softplus"
tall="beta=sigmoid C=64 l2norm h0 dht gate=softplus H=2 HV=4 K=256"
chunks="live kda $many H=36 HV=144 lengths=193"
for n in 1 2 1 3 1 1 2 1 1 4 1 1 2 1 3 1 1 1 2 1 5 1 1 2 1 1 3 1 1; do chunks="$chunks,$n"; done
wide="$many H=10 HV=70 lengths=150"
cases_of() {                    # WHAT (a row's last column): prints cases, by default $cases
    case $1 in
    chunks) echo "$chunks" ;;
    wide*) echo "live ${1#wide } $wide" ;;
    one) echo "live kda $one; live gdn $one" ;;
    steps) echo "live kda $one" ;;
    alternate) echo "alternate kda $one" ;;
    k256) echo "live kda $tall V=256 lengths=300,33; live gdn $tall V=512 lengths=700,33" ;;
    "k256 ranks") echo "live gdn $tall V=64 lengths=9,390 R=3 reuse_M;" \
        "live kda $tall V=512 lengths=9,390 R=3 scan" ;;
    tiles) echo "live kda $many H=2 HV=4 lengths=150,33; live gdn $many H=2 HV=4 lengths=150,33" ;;
    copies) echo "$copies; live gdn ${copies#live kda } layout=vk" ;;
    pads) echo "${copies%V=*} V=96; ${copies%K=96*} K=40 V=64" ;;
    ranks) echo "$copies R=2 cuts=ends; $copies R=2 chain layout=vk" ;;
    f16) echo "${copies%K=96*} K=128 V=128 q=f16; $copies q=f16 g=f32" ;;
    heads) echo "live kda $heads deep=one; live kda $heads deep=first; live kda $kda deep=half" ;;
    deep*) echo "live ${1#deep } $kda deep=one; live ${1#deep } $kda deep=half" ;;
    types*) echo "live ${1#types } $kda steady g=f32 beta=f32" ;;
    *) echo "$cases" ;;
    esac
}
judged() {                      # JUDGE STAGE VARIANT LOG [WHAT]
    timeout "${EACH:-150}" "$1" --device --quiet --limit 30 --repeats 5 --stage "$2" \
        --variant "$3" --case "$(cases_of "$5")" >"$4" 2>&1
}
many_heads() {
    judged "$B/kcp-check-jitter" 08 v3_prepare_scan "$B/jitter/many.txt" chunks &&
        judged "$B/kcp-check-jitter" 08 v3_prepare_scan "$B/jitter/many.txt" "wide kda" &&
        judged "$B/kcp-check-jitter" 08 v3_prepare_scan "$B/jitter/many.txt" "wide gdn"
}
[ -n "$MISTAKES" ] || many_heads || {
    echo "jitter.sh: with sleeps and many heads v3_prepare_scan fails:" \
         "$(grep -m 2 FAIL "$B/jitter/many.txt")"
    failed=1
}
for v in 08:v3_prepare_scan 08:v5_one_kernel 13:v2_stages 13:v4_scans_finish \
         13:v5_steps 08:v7_by_head 13:v7_by_head 08:v6_adapted 13:v6_adapted ${MORE:-}; do
    [ -z "$MISTAKES" ] || mistakes | grep -q "|$v|" || continue
    what=
    case $v in 08:v5_one_kernel) what=one ;; 13:v5_steps) what=steps ;;
        *:v7_by_head) what=heads ;;
        *:v6_adapted) what=copies ;; esac
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
