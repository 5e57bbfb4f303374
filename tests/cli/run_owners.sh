#!/bin/sh
# run_owners.sh -- kcp-run where ranks own several ranges: the numbers of one rank.
#
# Book: chapter 06.  Checked by: an output that differs, a refusal that does not come.
# Usage: run_owners.sh BUILD.  Next: tests/cli/run_cli.sh.
. "$(dirname "$0")/run_common.sh"

refused() {
    what=$1; shift
    "$run" --in in --out out --gate softplus "$@" >stdout 2>stderr
    status=$?
    judge_refusal "$what" "$*"
}

# The layer with its convolutions, forward and backward, in every form.
"$arrays" layer in 45 3 2 4 3 5 kda free 1 || exit 1
"$arrays" fill wq.npy f8 6,3 0.25; "$arrays" fill wv.npy f8 20,4 0.1
conv="--conv wq.npy,wq.npy,wv.npy --act silu"
all="--gate softplus --l2norm --beta sigmoid --chunk 4 $conv"
# Ranks 2, 0, 1, 0, 2: ranges of 9, 1, 20, 2 and 13 tokens.
"$arrays" fill owners.npy i8 5,2 0
i=0
for x in 0 2 9 0 10 1 30 0 32 2; do "$arrays" poke owners.npy $i $x; i=$((i + 1)); done
# shellcheck disable=SC2086
gives one $all
for form in all_gather chain pipeline scan; do
    for owners in "--layout zigzag --ranks 3" "--layout striped --stripe 3 --ranks 4" \
        "--owners owners.npy" "--layout zigzag --ranks 5 --canonical 4" \
        "--layout striped --ranks 2 --save all" "--owners owners.npy --ranks 6"; do
        # shellcheck disable=SC2086
        gives many $all --form $form $owners
        alike many one 1e-11
        rm -rf many
    done
done
grep -q '9\.\.10 +1' stdout && pass ||
    fail "no ranges in words: $(cat stdout)"
gives many $all --layout zigzag --ranks 4 --reuse-m; alike many one 1e-11; rm -rf many
# Canonical segments: not a bit depends on who owns them.
# shellcheck disable=SC2086
gives bits $all --canonical 5
for owners in "--layout zigzag --ranks 4" "--owners owners.npy" \
    "--layout striped --stripe 5 --ranks 3 --form chain"; do
    # shellcheck disable=SC2086
    gives many $all --canonical 5 $owners
    alike many bits 0
    rm -rf many
done
# shellcheck disable=SC2086
gives many $all --layout contiguous --ranks 3
# shellcheck disable=SC2086
gives plain $all --ranks 3
alike many plain 0

# ---- what is no table of owners
"$arrays" fill flat.npy i8 4 0; "$arrays" fill real.npy f8 5,2 0
cp owners.npy back.npy; "$arrays" poke back.npy 4 5
cp owners.npy high.npy; "$arrays" poke high.npy 1 4000
cp owners.npy late.npy; "$arrays" poke late.npy 0 1
refused flat.npy --owners flat.npy
refused real.npy --owners real.npy
refused high.npy --owners high.npy
refused plan --owners back.npy
refused plan --owners late.npy
refused plan --owners owners.npy --ranks 2
refused none.npy --owners none.npy
refused --cuts --cuts 0,45 --layout zigzag
refused --cuts --cuts 0,45 --owners owners.npy
refused --owners --owners owners.npy --layout zigzag
refused --stripe --stripe 3 --layout zigzag
refused --stripe --stripe 0 --layout striped
refused --layout --layout round
refused --layout --stage 02 --layout zigzag

# A scan keeps five maps a visit, for so many visits and no more: said in words.
"$arrays" layer in 800 1 1 1 3 3 kda free 1 || exit 1
refused 'ranks: rank .: 08_forward: form: ' --layout striped \
    --stripe 2 --ranks 3 --form scan
# shellcheck disable=SC2086
gives many --gate softplus --layout striped --stripe 2 --ranks 3 --form chain

echo "kcp-run --layout, --owners: $passed passed, $failed failed"
[ $failed -eq 0 ]
