#!/bin/sh
# run_sum.sh -- kcp-run --sum local: each rank's own sums, which add up to all.
#
# Book: chapter 13.  Checked by: an output that differs, a refusal that does not come.
# Usage: run_sum.sh BUILD.  Next: tests/cli/run_cli.sh.
. "$(dirname "$0")/run_common.sh"

refused() {
    "$run" --in in --out out "$@" >stdout 2>stderr
    status=$?
    if [ $status -eq 2 ] && [ "$(wc -l <stderr)" -eq 1 ] && [ ! -s stdout ] &&
        grep -q -- "^kcp-run: .*--sum: " stderr && [ ! -e out ]; then pass
    else fail "status $status for $*: $(cat stderr)"; fi
    rm -rf out
}
# sums OWN ALL names...: rows of OWN add up to ALL, and all else has the same bits.
sums() {
    own=$1 all=$2; shift 2
    for f in "$all"/*.npy; do
        f=${f##*/}
        case " $* " in
            *" ${f%.npy} "*) "$arrays" add "$own/$f" "$all/$f" 1e-12 2>stderr ;;
            *) "$arrays" same "$own/$f" "$all/$f" 0 2>stderr ;;
        esac && continue
        fail "$f: $(cat stderr)"
        return
    done
    [ "$(ls "$own")" = "$(ls "$all")" ] && pass || fail "$own and $all: other files"
}

"$arrays" layer in 45 3 2 4 3 5 kda free 1 || exit 1
"$arrays" fill wq.npy f8 6,3 0.25; "$arrays" fill wv.npy f8 20,4 0.1
layer="--gate softplus --l2norm --beta sigmoid --conv wq.npy,wq.npy,wv.npy"
for ranks in "--ranks 3" "--ranks 4 --form chain" "--layout zigzag --ranks 2" \
    "--cuts 0,10,10,45" "--ranks 3 --canonical 4"; do
    # shellcheck disable=SC2086
    gives all $layer $ranks
    # shellcheck disable=SC2086
    gives said $layer $ranks --sum all; sums said all
    # shellcheck disable=SC2086
    gives own $layer $ranks --sum local
    sums own all dA_log ddt_bias dw_q dw_k dw_v
    rm -rf all own said
done
# One rank's own sum is all there is: as [1,..], a row of the same numbers.
# shellcheck disable=SC2086
gives one $layer --sum local
"$arrays" fill row.npy f8 1,4 0
if "$arrays" same row.npy one/dA_log.npy 2 2>stderr; then pass
else fail "dA_log of one rank is no [1,HV]: $(cat stderr)"; fi
# What moves: with local sums nothing but the exchange does.
# shellcheck disable=SC2086
gives all $layer --ranks 2
bytes=$(awk '$1 == "0" && NF > 8 { print $9 }' stdout)
# shellcheck disable=SC2086
gives own $layer --ranks 2 --sum local
fewer=$(awk '$1 == "0" && NF > 8 { print $9 }' stdout)
[ "${fewer:-0}" -gt 0 ] && [ "$fewer" -lt "${bytes:-0}" ] && pass ||
    fail "backward's bytes: $fewer with local sums, $bytes without"
# Processes: rank 0 has every rank's row.
# shellcheck disable=SC2086
as_processes 3 processes $layer --sum local || fail "processes: $(cat said.*)"
# shellcheck disable=SC2086
gives threads $layer --sum local --ranks 3
if diff -r threads processes >stderr; then pass; else fail "$(head -3 stderr)"; fi
# A stage: 14's and 15's own gradients.
for stage in 14 15; do
    rm -rf e all own
    "$B/kcp-check" --emit e --stage $stage --ranks 3 >stdout || fail "emit $stage"
    for d in e/case_*/backward; do
        grep -q -- '--cuts 0,[1-9][0-9]*,[1-9]' "$d/options.txt" || continue
        # shellcheck disable=SC2046
        "$run" --stage $stage --in "$d" --out all $(cat "$d/options.txt") >stdout &&
            "$run" --stage $stage --in "$d" --out own --sum local \
                $(cat "$d/options.txt") >stdout || continue
        sums own all dweight dbias dW_alpha dw_beta
        break
    done
    [ -e own ] || fail "stage $stage: no case has several ranks and a way back"
done

refused --sum ours
refused --sum
refused --sum local --stage 08
refused --sum local --stage 16 --model gla
refused --sum local --stage 03
rm in/do.npy in/dht.npy
# shellcheck disable=SC2086
refused $layer --sum local --ranks 2
echo "kcp-run --sum: $passed passed, $failed failed"
[ $failed -eq 0 ]
