#!/bin/sh
# run_device.sh -- kcp-run --device gpu: as the CPU, but for rounding; or refused.
#
# Book: chapter 08.  Checked by: --device cpu, in double, on the same files.
# Usage: run_device.sh BUILD [a table of the errors].  Next: ../../bench/run/device.c.
#
# An error is RMS(gpu - cpu) / RMS(cpu) of a whole array. The CPU's inputs are not
# rounded to bf16, so more than a kernel's own error is allowed; the judge is strict.
B=$(cd "${1:-build}" && pwd) || exit 1
table=${2:-/dev/null}
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
cd "$W" || exit 1
run="$B/kcp-run" arrays="$B/kcp-arrays" passed=0 failed=0
fail() { failed=$((failed + 1)); echo "  FAIL  kcp-run --device gpu: $*"; }
pass() { passed=$((passed + 1)); }

# refused WORDS option...: status 2, one line that says WORDS, nothing written.
refused() {
    words=$1; shift
    "$run" --in in --out out --device gpu "$@" >stdout 2>stderr
    status=$?
    if [ $status -ne 2 ] || [ "$(wc -l <stderr)" -ne 1 ] || [ -s stdout ] || [ -e out ]
    then fail "status $status for $*: $(cat stderr)"
    elif ! grep -q -- "^kcp-run: $words" stderr; then fail "$*: $(cat stderr)"
    else pass; fi
}
# compare NAME bound: dev against cpu, every file; the worst is a row of the table.
compare() {
    worst=0 at=none
    [ "$(ls cpu)" = "$(ls dev)" ] || fail "$1: other files: $(ls dev)"
    for f in cpu/*.npy; do
        "$arrays" off "$f" "$f" >stdout 2>stderr || continue    # what nobody writes
        off=$("$arrays" off "dev/${f##*/}" "$f") || { fail "$1 $f"; continue; }
        f=${f##*/}
        awk -v x="$off" -v y="$worst" 'BEGIN { exit !(x + 0 > y + 0) }' &&
            worst=$off at=${f%.npy}
        awk -v x="$off" -v y="$2" 'BEGIN { exit !(x + 0 <= y + 0) }' && pass ||
            fail "$1: ${f%.npy} is off by $off, allowed $2"
    done
    printf '%-22s worst %-9s %s of %s\n' "$1" "$at" "$worst" "$2" | tee -a "$table"
}
# near NAME bound GPU-OPTIONS option...: cpu and gpu on in.
near() {
    name=$1 bound=$2 gpu=$3; shift 3
    rm -rf cpu dev
    "$run" --in in --out cpu "$@" >stdout 2>stderr || fail "cpu $*: $(cat stderr)"
    # shellcheck disable=SC2086
    "$run" --in in --out dev --device gpu $gpu "$@" >stdout 2>stderr || {
        fail "$gpu $*: $(cat stderr)"; return; }
    grep -q '^on the GPU by' stdout || fail "$gpu: does not say whose kernels"
    cp stdout ran                     # compare has a stdout of its own
    compare "$name" "$bound"
}

"$arrays" layer in 300 3 2 4 64 64 kda raw 1 || exit 1
has_cuda=1
"$run" --in in --out out --device gpu 2>first >stdout && rm -rf out
if grep -q 'built without CUDA' first; then has_cuda=0; fi
if [ $has_cuda = 1 ]; then
    refused '--variant: found .*v9.*, expected one of v.*v1_stages' --variant v9
    refused '--variant: found v1_stages, .* v1_stages_f32' --dtype f32 \
        --variant v1_stages
    refused '--device: 05_affine runs on the CPU only' --stage 05
fi
if grep -q 'no GPU found' first || [ $has_cuda = 0 ]; then
    refused '--device: ' --ranks 2
    echo "kcp-run --device gpu: $(sed 's/^.*--device: //' first): refused in" \
        "words, $passed passed, $failed failed"
    [ $failed -eq 0 ]; exit
fi
# With a GPU. The gates are live: see what kcp-run prints of it.
layer="--l2norm --beta sigmoid"
# shellcheck disable=SC2086
{
near kda-f32 2e-4 '--dtype f32' $layer
near kda-bf16 3e-2 '' $layer
near kda-bf16-v1 3e-2 '--variant v1_stages' $layer --save all
near kda-bf16-3-chain 3e-2 '' $layer --ranks 3 --form chain --reuse-m
near kda-bf16-wire 3e-2 '' $layer --ranks 3 --wire bf16
near kda-f32-wire-pipeline 1e-2 '--dtype f32' $layer --ranks 4 --form pipeline --wire bf16
near kda-f32-cut-chain 2e-4 '--dtype f32' $layer --ranks 4 --form chain --truncate 1e-9
near kda-bf16-wire-chain 3e-2 '' $layer --ranks 4 --form chain --wire bf16
near kda-bf16-wire-scan 3e-2 '' $layer --ranks 4 --form scan --wire bf16
near kda-bf16-zigzag 3e-2 '' $layer --ranks 4 --layout zigzag
near kda-bf16-zigzag-chain 3e-2 '' $layer --ranks 4 --layout zigzag --form chain
near kda-f32-striped 2e-4 '--dtype f32' $layer --ranks 4 --layout striped --stripe 11
near kda-bf16-4-cuts 3e-2 '' $layer --cuts 0,70,71,200,300 --form chain
near kda-f32-5-cuts 2e-4 '--dtype f32' $layer --cuts 0,1,100,100,101,300 --form scan
"$arrays" fill in/w.npy f8 128,4 0.25; "$arrays" fill in/wv.npy f8 256,3 0.3
for name in x0 dxt; do               # rows before the sequences; of the last rows
    "$arrays" fill in/${name}_q.npy f8 3,3,128 0.4
    "$arrays" fill in/${name}_v.npy f8 3,2,256 -0.2
    for e in 0 130 700; do "$arrays" poke in/${name}_q.npy $e 0.$e; done
done
conv="--conv w.npy,w.npy,wv.npy --act silu"
near kda-f32-conv 2e-4 '--dtype f32' $layer --ranks 3 $conv
near kda-bf16-conv 3e-2 '' $layer --ranks 2 $conv
near kda-f32-conv-local 2e-4 '--dtype f32' $layer --ranks 4 --form scan $conv --sum local
# Where gates forget, ranks between others are cut off, on a GPU as on the host.
rm -rf in; "$arrays" layer in 4096 1 1 1 64 64 kda raw 1
for form in chain pipeline; do
    near kda-f32-far-$form 2e-4 '--dtype f32' $layer --ranks 3 --form $form --truncate 0.9
    grep -q -- "--truncate 0.9: 1 of 1 ranks" ran || fail "$form: $(cat ran)"
done
rm -rf in; "$arrays" layer in 300 3 2 4 64 128 gdn free 2
near gdn-f32 2e-4 '--dtype f32' --model gdn --gate softplus $layer --canonical 64
near gdn-bf16 3e-2 '' --model gdn --gate softplus $layer
near gdn-bf16-4-pipeline 3e-2 '' --model gdn --gate softplus $layer --ranks 4 \
    --form pipeline
}
# Canonical segments: the bits of one rank, the first call, in every form. Two ranks
# have a GPU each where there are two, and the chain then goes over windows too. Ten
# heads: of one rank the scans' blocks are wider than of eight.
same() {
    rm -rf dev
    # shellcheck disable=SC2086
    "$run" --in in --out dev --device gpu $all --canonical 64 "$@" >stdout 2>stderr || {
        fail "$*: $(cat stderr)"; return; }
    [ -d one ] || { mv dev one; return; }
    for f in one/*.npy; do
        cmp -s "$f" "dev/${f##*/}" && pass || fail "$*: ${f##*/}: other bits"
    done
}
for model in kda gdn; do
    rm -rf in one; "$arrays" layer in 450 1 2 10 128 128 $model free 3
    all="--model $model --gate softplus $layer"
    same
    for ranks in 2 8; do
        same --ranks $ranks; same --ranks $ranks --form pipeline
        same --ranks $ranks --form pipeline --blocks 3
        for windows in 0 1; do
            export KCP_WINDOWS=$windows; same --ranks $ranks --form chain
        done
        unset KCP_WINDOWS
    done
done
# Relatives, on the judge's own batches: whole, and over ranks in every form.
relative() {       # model case/options.txt
    rm -rf in; cp -r "${2%/options.txt}" in
    # shellcheck disable=SC2046
    set -- "$1" $(cat "$2")
    model=$1; shift
    for ranks in 1 "4 --form all_gather" "4 --form chain" "4 --form pipeline" \
        "4 --form scan" "3 --layout zigzag --form chain"; do
        # shellcheck disable=SC2086
        near "$model-$(echo $ranks | tr -d ' -')" 3e-2 '' --model $model \
            $(echo "$*" | grep -o -e '--state-layout [kv]*' -e '--chunk [0-9]*') --ranks $ranks
    done
}
for stage in 16 15; do
    "$B/kcp-check" --emit e$stage --stage $stage --storage bf16 --ranks 4 >stdout
done
for model in dplr gdn2 gla spike; do
    case $model in
        spike) wanted=$(grep -l -- "--model kda" e15/case_*/backward/options.txt) ;;
        *) wanted=$(grep -l -- "--model $model " e16/case_*/backward/options.txt) ;;
    esac
    for w in $wanted; do
        T=$(sed -n 's/^T //p' "${w%options.txt}case.txt")
        [ "$T" -gt 60 ] && [ "$T" -lt 700 ] || continue
        relative $model "$w"
        break
    done
done
# A shape that no kernel takes is bad input.
rm -rf in out; "$arrays" layer in 20 1 1 1 272 16 kda raw 3
refused 'ranks: .*08_forward' --l2norm
# A stage, on the judge's own cases.
for stage in 13 14; do
    rm -rf e; "$B/kcp-check" --emit e --stage $stage --storage bf16 >stdout
    for d in e/case_000/*ward e/case_001/*ward; do
        rm -rf in; cp -r "$d" in
        # shellcheck disable=SC2046
        near "$stage-${d#e/case_00}" 3e-2 '' --stage $stage $(cat "$d/options.txt")
    done
done
echo "kcp-run --device gpu: $passed passed, $failed failed"
[ $failed -eq 0 ]
