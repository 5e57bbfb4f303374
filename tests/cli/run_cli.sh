#!/bin/sh
# run_cli.sh -- checks that kcp-run gives the results of one rank for all numbers of ranks,
# layouts, exchange forms and options. Also checks sums over ranks, and sequences cut into
# two runs.
# Book: chapters 06, 08, 13 and 14.
# Usage: run_cli.sh BUILD.
. "$(dirname "$0")/run_common.sh"

# same TOLERANCE BASE OPTIONS...: BASE plus each of OPTIONS must give BASE's results.
same() {
    tolerance=$1 base=$2; shift 2
    # shellcheck disable=SC2086
    gives one $base
    for options; do
        # shellcheck disable=SC2086
        gives many $base $options
        alike many one "$tolerance"
    done
}

# ---- the layer over ranks
arrays layer in 13 4 2 4 3 5 kda raw 1 || exit 1
kda="--l2norm --beta sigmoid"
same 1e-11 "$kda" "--ranks 3" "--ranks 7 --form chain" "--ranks=4 --form=pipeline" \
    "--form scan --cuts 0,0,4,4,9,13" "--cuts=0,1,2,13 --ranks 3 --save all" \
    "--ranks 40 --form pipeline --blocks 2" "--chunk 1 --ranks 2" "--chunk 256" \
    "--chunk 4 --reuse-m --ranks 5 --device cpu" "--canonical 4 --ranks 3" \
    "--model kda --gate raw"
same 0 "--canonical 2 --chunk 4" "--ranks 2" "--ranks 3" "--ranks 8"
# Rank 0 must send a map [HV,K,V+K] of doubles to two ranks.
# shellcheck disable=SC2086
gives many $kda --ranks 3
[ "$(awk '$1 == "0" && NF > 7 { print $5, $8 }' stdout)" = "1536 1536" ] && pass ||
    fail "not 1536 bytes: $(cat stdout)"
# Arrays in Fortran order.
cp -r in c_order
arrays fortran c_order in
cmp -s in/q.npy c_order/q.npy && fail "arrays.py fortran changed nothing"
rm -rf one; "$run" --in c_order --out one --ranks 2 >stdout 2>stderr
gives many --ranks 2
alike many one 0
rm -rf in; mv c_order in
# The state with V first.
cp -r in kv; arrays fill in/h0.npy f8 4,4,5,3 0.5; arrays fill in/dht.npy f8 4,4,5,3 0
gives vk --state-layout vk
has vk/dh0.npy
rm -rf in; mv kv in
# Without tokens, ht must be h0. Without input `do`, no gradients are written.
rm -rf in
arrays layer in 0 3 1 2 3 2 kda raw 3
gives none --ranks 3
alike none/ht.npy in/h0.npy 0
rm in/do.npy; gives none
[ "$(ls none | tr '\n' ' ')" = "ht.npy o.npy " ] && pass || fail "without do: $(ls none)"
rm -rf in; arrays layer in 13 3 1 2 4 3 gdn free 2
same 1e-11 "--model gdn --gate softplus --beta sigmoid2" "--ranks 4"
same 1e-11 "--model gdn --gate bounded --lower-bound -2.5 --beta sigmoid2" "--ranks 4"
has one/dA_log.npy one/ddt_bias.npy

# ---- convolutions; a sequence cut into two runs, with states passed between the runs
rm -rf in; arrays layer in 13 1 2 4 3 5 kda raw 7
for i in q k v; do
    D=6; [ $i = v ] && D=20
    arrays fill in/x0_$i.npy f8 1,3,$D 0.5; arrays fill in/dxt_$i.npy f8 1,3,$D 0.3
    for e in 0 7 11; do
        arrays poke in/x0_$i.npy $e 0.1$e; arrays poke in/dxt_$i.npy $e -0.4$e
    done
done
arrays fill w4.npy f8 6,4 0.25; arrays fill wv4.npy f8 20,4 0.1
conv="--conv w4.npy,w4.npy,wv4.npy --act silu --l2norm --chunk 4"
same 1e-11 "$conv" "--ranks 6" "--cuts 0,1,2,3,13"
has one/dw_q.npy one/dw_k.npy one/dw_v.npy
piece() {                        # FOLDER option...: runs one part; its outputs go to FOLDER.out
    at=$1; shift
    # shellcheck disable=SC2086
    "$run" --in "$at" --out "$at.out" $conv "$@" >stdout 2>stderr || fail "$at: $(cat stderr)"
}
part() {                         # ROWS FOLDER NAMES NAME...: rows of `one` equal the part
    rows=$1 at=$2 names=$3; shift 3
    rm -rf parts whole; mkdir parts
    # shellcheck disable=SC2086
    arrays rows one $rows whole $names
    for f in $names "$@"; do cp $at.out/$f.npy parts/; done
    for f; do cp one/$f.npy whole/; done
    alike parts whole 1e-11
}
for cut in 2 7; do
    rm -rf a b a.out* b.out; cp -r in a; cp -r in b; rm a/cu_seqlens.npy b/cu_seqlens.npy
    arrays rows in 0 $cut a q k v g beta do
    arrays rows in $cut 13 b q k v g beta do
    mv a/do.npy late; piece a --ranks 2; mv late a/do.npy
    cp a.out/ht.npy b/h0.npy; for i in q k v; do cp a.out/xt_$i.npy b/x0_$i.npy; done
    piece b --ranks 5
    cp b.out/dh0.npy a/dht.npy; for i in q k v; do cp b.out/dx0_$i.npy a/dxt_$i.npy; done
    piece a --ranks 2 --force
    part "0 $cut" a "o dq dk dv dg dbeta" dh0 dx0_k dx0_v
    part "$cut 13" b "o dq dk dv dg dbeta" ht xt_q xt_v
done

# ---- ranks with several ranges
rm -rf in; arrays layer in 45 3 2 4 3 5 kda free 1
arrays fill wq.npy f8 6,3 0.25; arrays fill wv.npy f8 20,4 0.1
layer="--gate softplus --l2norm --beta sigmoid"
all="$layer --chunk 4 --conv wq.npy,wq.npy,wv.npy --act silu"
same 1e-11 "$all" "--layout zigzag --ranks 3" "--layout zigzag --ranks 5 --form chain" \
    "--layout striped --stripe 3 --ranks 4 --form scan" \
    "--layout striped --ranks 2 --save all --form pipeline" \
    "--layout zigzag --ranks 4 --reuse-m"
same 0 "$all --canonical 5" "--layout zigzag --ranks 4" \
    "--layout striped --stripe 5 --ranks 3 --form chain"
grep -q 'ranges\|\.\.' stdout && pass || fail "no ranges of ranks: $(cat stdout)"
same 0 "$all --ranks 3" "--layout contiguous"

# ---- --sum local: parameter gradients have a row per rank; rows add up to --sum all
conv="$layer --conv wq.npy,wq.npy,wv.npy"
for ranks in "--ranks 3" "--layout zigzag --ranks 2" "--cuts 0,10,10,45 --canonical 4"; do
    # shellcheck disable=SC2086
    gives all $conv $ranks --sum all
    # shellcheck disable=SC2086
    gives own $conv $ranks --sum local
    alike own all 1e-12 dA_log ddt_bias dw_q dw_k dw_v
done
echo "run_cli.sh: $passed passed, $failed failed"
[ $failed = 0 ]
