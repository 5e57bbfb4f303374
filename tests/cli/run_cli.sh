#!/bin/sh
# run_cli.sh -- kcp-run's command line: every option works, every bad input is refused.
#
# Book: none.  Checked by: a refusal that does not come, an output that differs.
# Usage: run_cli.sh BUILD.  Next: tests/cli/arrays.c.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/run_common.sh"
trap 'chmod -R u+w "$W"; rm -rf "$W"' EXIT

# refused WHAT option...: status 2, one line on stderr that names WHAT, nothing on stdout,
# nothing in out. Its inputs are a fresh copy of in.
refused() {
    what=$1; shift
    "$run" --in bad --out out "$@" >stdout 2>stderr
    status=$?
    judge_refusal "$what" "$*"
    rm -rf bad; cp -r in bad
}

# ---- options
"$arrays" layer in 13 4 2 4 3 5 kda raw 1 || exit 1
gives one --l2norm --beta sigmoid
for options in "--ranks 3" "--ranks 7 --form chain" "--ranks=4 --form=pipeline" \
    "--form scan --cuts 0,0,4,4,9,13" "--cuts=0,1,2,13 --ranks 3 --save all" \
    "--ranks 40 --form pipeline --blocks 2" "--chunk 1 --ranks 2" "--chunk 256" \
    "--chunk 4 --reuse-m --ranks 5 --device cpu" "--canonical 4 --ranks 3"; do
    # shellcheck disable=SC2086
    gives many --l2norm --beta sigmoid --model kda --gate raw $options
    alike many one 1e-11
    rm -rf many
done
for R in 1 2 3 8; do gives c$R --canonical 2 --ranks $R --chunk 4; alike c$R c1 0; done
"$arrays" layer free 13 3 1 2 4 3 gdn free 2 || exit 1
for gate in "--gate softplus" "--gate bounded --lower-bound -2.5"; do
    rm -rf one many
    # shellcheck disable=SC2086
    "$run" --in free --out one --model gdn $gate --beta sigmoid2 >stdout
    # shellcheck disable=SC2086
    "$run" --in free --out many --model gdn $gate --beta sigmoid2 --ranks 4 >stdout
    alike many one 1e-11
    [ -e one/dA_log.npy ] && [ -e one/ddt_bias.npy ] && pass || fail "no dA_log"
done
# A state in the other layout has the other shape, and is refused in this one.
"$arrays" fill in/w3.npy f8 6,3 0.25; "$arrays" fill in/w2.npy f4 6,2 0.5
"$arrays" fill in/wv.npy f8 20,4 0.1
rm -rf one many; gives one --conv w3.npy,w2.npy,wv.npy --act silu --scale 0.5
mkdir w; mv in/w2.npy in/wv.npy w
gives many --conv w3.npy,w/w2.npy,w/wv.npy --act silu --scale 0.5 --ranks 6
mv in/w3.npy w; w=w/w3.npy,w/w2.npy,w/wv.npy
alike many one 1e-11
[ -e one/dw_q.npy ] && [ -e one/dw_k.npy ] && [ -e one/dw_v.npy ] && pass ||
    fail "no gradient of a convolution"
# A text in two pieces, the first shorter than the windows: what the convolutions and the
# layer hand on makes them the whole, and so do their gradients on the way back.
rm -rf text whole; "$arrays" layer text 13 1 2 4 3 5 kda raw 7
for i in q k v; do
    D=6; [ $i = v ] && D=20
    "$arrays" fill text/x0_$i.npy f8 1,3,$D 0.5; "$arrays" fill text/dxt_$i.npy f8 1,3,$D 0.3
    for e in 0 7 11; do "$arrays" poke text/x0_$i.npy $e 0.1$e
        "$arrays" poke text/dxt_$i.npy $e -0.4$e; done
done
"$arrays" fill w4.npy f8 6,4 0.25; "$arrays" fill wv4.npy f8 20,4 0.1
stream="--conv w4.npy,w4.npy,wv4.npy --act silu --l2norm --chunk 4"
# shellcheck disable=SC2086
for cut in 2 7; do
    rm -rf whole a b ra ra.old rb; cp -r text a; cp -r text b
    for f in q k v g beta do; do
        "$arrays" rows text/$f.npy 0 $cut a/$f.npy
        "$arrays" rows text/$f.npy $cut 13 b/$f.npy
    done
    rm -f [ab]/cu_seqlens.npy
    "$run" --in text --out whole $stream >stdout 2>stderr &&
        mv a/do.npy a/do && "$run" --in a --out ra --ranks 2 $stream >stdout 2>stderr &&
        mv a/do a/do.npy && cp ra/ht.npy b/h0.npy &&
        for i in q k v; do cp ra/xt_$i.npy b/x0_$i.npy || exit 1; done &&
        "$run" --in b --out rb --ranks 5 $stream >stdout 2>stderr &&
        cp rb/dh0.npy a/dht.npy &&
        for i in q k v; do cp rb/dx0_$i.npy a/dxt_$i.npy || exit 1; done &&
        "$run" --in a --out ra --force --ranks 2 $stream >stdout 2>stderr ||
        fail "a text in two pieces: $(cat stderr)"
    for f in o dq dk dv dg dbeta; do
        "$arrays" rows whole/$f.npy 0 $cut r.npy
        "$arrays" same ra/$f.npy r.npy 1e-11 2>stderr && pass || fail "first, $(cat stderr)"
        "$arrays" rows whole/$f.npy $cut 13 r.npy
        "$arrays" same rb/$f.npy r.npy 1e-11 2>stderr && pass || fail "then, $(cat stderr)"
    done
    for f in rb/ht rb/xt_q rb/xt_v ra/dh0 ra/dx0_k ra/dx0_v; do
        "$arrays" same $f.npy whole/${f##*/}.npy 1e-11 2>stderr && pass ||
            fail "$f of two pieces: $(cat stderr)"
    done
done
# In Fortran order, as NumPy writes a transposed array: the same numbers, bit for bit.
cp -r in turned; for f in in/*.npy; do
    case $f in *cu_seqlens*) ;; *) "$arrays" fortran $f turned/${f##*/} ;; esac
done
cmp -s in/q.npy turned/q.npy && fail "fortran did nothing"
for f in in/*.npy; do "$arrays" same turned/${f##*/} $f 0 || fail "turned $f"; done
rm -rf one many; gives one --ranks 2
if "$run" --in turned --out many --ranks 2 >stdout 2>stderr; then alike many one 0
else fail "Fortran order: $(cat stderr)"; fi
# What is printed as our memory is not what the program that started us had.
rm -rf many; "$arrays" inside 400 "$run" --in in --out many >stdout 2>stderr
peak=$(sed -n 's/.*peak memory \([0-9]*\) MiB/\1/p' stdout)
[ "${peak:-9999}" -lt 200 ] && pass || fail "peak memory ${peak:-unsaid}: its parent's"
rm -rf turned
rm -rf vk; cp -r in vk
"$arrays" fill vk/h0.npy f8 4,4,5,3 0.5; "$arrays" fill vk/dht.npy f8 4,4,5,3 0
if "$run" --in vk --out kv --state-layout vk >stdout && [ -e kv/dh0.npy ]; then pass
else fail "--state-layout vk"; fi
# Nothing to do is done: no token, and no backward without do.
"$arrays" layer none 0 3 1 2 3 2 kda raw 3
if "$run" --in none --out none/out --ranks 3 >stdout; then pass; else fail "T = 0"; fi
"$arrays" same none/out/ht.npy none/h0.npy 0 2>stderr && pass || fail "T = 0: ht not h0"
rm -rf none/out none/do.npy; "$run" --in none --out none/out >stdout
[ "$(ls none/out | tr '\n' ' ')" = "ht.npy o.npy " ] && pass || fail "back without do"
"$run" --help >stdout && grep -q cu_seqlens stdout && pass || fail "--help"
"$run" --version | grep -qx 'kcp-run [0-9]*\.[0-9]*\.[0-9]*' && pass || fail "--version"
"$arrays" --version | grep -qx 'kcp-arrays [0-9]*\.[0-9]*\.[0-9]*' && pass ||
    fail "kcp-arrays --version"
"$run" 2>stderr; [ $? -eq 2 ] && grep -q usage stderr && pass || fail "no arguments"

# ---- stages: the judge's own cases, computed by kcp-run, judged as foreign
stages="03 05 07 13 15"
[ -z "$FULL" ] || stages="01 02 03 04 05 07 08 09 10 11 12 13 14 15"
for stage in $stages; do
    rm -rf e
    "$B/kcp-check" --emit e --stage $stage --ranks 3 >stdout || fail "emit $stage"
    for d in e/case_*/*ward; do
        # shellcheck disable=SC2046
        "$run" --stage $stage --in "$d" --out r $(cat "$d/options.txt") >stdout &&
            mv r/* "$d" && rmdir r || fail "--stage $stage, $d"
    done
    "$B/kcp-check" --foreign e >stdout && pass || fail "stage $stage: $(tail -1 stdout)"
done

# One sequence of all tokens where cu_seqlens is not given.
rm -rf e; mkdir e; for f in q k v g beta do; do cp in/$f.npy e; done
"$arrays" fill whole.npy i8 2 0; "$arrays" poke whole.npy 1 13
rm -rf one many
if "$run" --stage 01 --in e --out one >stdout 2>stderr &&
    cp whole.npy e/cu_seqlens.npy &&
    "$run" --stage 01 --in e --out many >stdout 2>stderr
then alike many one 0
else fail "--stage 01 without cu_seqlens: $(cat stderr)"; fi

. "$here/refusals.sh"
echo "kcp-run: $passed passed, $failed failed"
[ $failed -eq 0 ]
