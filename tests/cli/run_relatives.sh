#!/bin/sh
# run_relatives.sh -- kcp-run --model dplr|gdn2|gla|spike: any ranks, one rank's numbers.
#
# Book: chapters 15, 16.  Checked by: an output that differs, a refusal that does not
# come.  Usage: run_relatives.sh BUILD.  Next: tests/cli/run_cli.sh.
. "$(dirname "$0")/run_common.sh"

refused() {
    what=$1; shift
    "$run" --in in --out out "$@" >stdout 2>stderr
    status=$?
    judge_refusal "$what" "$*"
}
# The judge's inputs of a stage and model: long enough to be cut; and its sizes.
size() { sed -n "s/^$1 //p" case.txt; }
inputs() {
    rm -rf in
    for d in e/case_*/backward; do
        grep -q -- "$2" "$d/options.txt" || continue
        T=$(sed -n 's/^T //p' "$d/case.txt") N=$(sed -n 's/^N //p' "$d/case.txt")
        [ "$T" -gt 60 ] && [ "$T" -lt 700 ] && [ "$N" -gt 1 ] || continue
        cp -r "$d" in; mv in/case.txt in/options.txt .
        return
    done
    fail "stage $1: no case of $2"
}

for stage in 16 15; do
    "$B/kcp-check" --emit e$stage --stage $stage --ranks 3 >stdout || fail "emit $stage"
done
for model in dplr gdn2 gla spike; do
    stage=16; [ $model = spike ] && stage=15
    rm -rf e; cp -r e$stage e
    case $model in spike) inputs 15 kda ;; *) inputs 16 "--model $model " ;; esac
    [ -d in ] || continue
    all="--model $model --chunk 16 $(grep -o -- '--state-layout [kv]*' options.txt)"
    rm -rf one
    # shellcheck disable=SC2086
    gives one $all
    [ -e one/dq.npy ] && [ -e one/dh0.npy ] && pass || fail "$model: no way back"
    # The stage itself, told in its own words: the same numbers.
    told=$model; [ $model = spike ] && told=kda
    # shellcheck disable=SC2086
    gives staged --stage $stage --model $told ${all#"--model $model "}
    for f in one/*.npy; do
        "$arrays" same staged/"${f##*/}" "$f" 0 2>stderr || fail "$(cat stderr)"
    done
    rm -rf staged
    for form in all_gather chain pipeline scan; do
        for ranks in "--ranks 4" "--layout zigzag --ranks 3" "--ranks 40" \
            "--layout striped --stripe 11 --ranks 2"; do
            # shellcheck disable=SC2086
            gives many $all $ranks --form $form
            alike many one 1e-10
            rm -rf many
        done
    done
    # Canonical segments: not a bit depends on R and on who owns them.
    # shellcheck disable=SC2086
    gives bits $all --canonical 16
    for ranks in "--ranks 5" "--layout zigzag --ranks 3 --form chain"; do
        # shellcheck disable=SC2086
        gives many $all --canonical 16 $ranks; alike many bits 0; rm -rf many
    done
    rm -rf bits threads processes
    # Processes: rank 0 writes what threads would have.
    # shellcheck disable=SC2086
    gives threads $all --ranks 3 --form scan
    # shellcheck disable=SC2086
    as_processes 3 processes $all --form scan || fail "$model, processes: $(cat said.*)"
    if diff -r threads processes >stderr; then pass; else fail "$(head -3 stderr)"; fi
    rm -rf threads processes
    if command -v mpirun >/dev/null 2>&1; then
        # shellcheck disable=SC2086
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun \
            --oversubscribe -n 2 "$run" --in in --out mpi $all >stderr 2>&1 ||
            fail "mpirun: $(cat stderr)"
        alike mpi one 1e-10; rm -rf mpi
    fi
    # What a rank sends to three others: h, and of M the diagonal for GLA, else all.
    # shellcheck disable=SC2086
    gives many $all --ranks 4
    bytes=$(awk '$1 == "0" && NF > 8 { print $6 }' stdout)
    back=$(awk '$1 == "0" && NF > 8 { print $9 }' stdout)
    HV=$(size HV) K=$(size K) V=$(size V)
    m=$K; [ $model = gla ] && m=1
    want=$((3 * 8 * HV * K * (V + m)))
    if [ $model = spike ]; then        # and a row of last outputs, where there are masks
        [ "${bytes:-0}" -ge $want ] && pass || fail "spike: $bytes bytes, not $want"
    elif [ "${bytes:-0}" = $want ] && [ "${back:-0}" = $want ]; then pass
    else fail "$model: $bytes and $back bytes, not $want"; fi
    rm -rf many
done
# The last of the loop is spike: its sums, all and each rank's own.
gives all --model spike --ranks 3 --chunk 16
gives own --model spike --ranks 3 --chunk 16 --sum local
for f in dW_alpha dw_beta; do
    "$arrays" add own/$f.npy all/$f.npy 1e-12 2>stderr && pass || fail "$(cat stderr)"
done
refused --model --model spike --stage 16
refused --scale --model spike --scale 2
mv in/spike.npy .; refused spike.npy --model spike; mv spike.npy in
"$arrays" poke in/W_alpha.npy 0 nan; refused W_alpha.npy --model spike

rm -rf e; cp -r e16 e; model=gdn2
inputs 16 "--model gdn2 "
for option in "--gate softplus" "--beta sigmoid" --l2norm --reuse-m "--save all" \
    "--conv a,b,c" "--lower-bound -1" "--act silu" --shift --backward; do
    # shellcheck disable=SC2086
    refused "${option%% *}" --model gdn2 $option
done
refused --sum --model gdn2 --sum local
refused --model --model gdn2 --stage 08
refused --model --model kda --stage 16
refused a.npy --model dplr
for f in b omega q g; do
    mv in/$f.npy .; refused $f.npy --model gdn2; mv $f.npy in
    cp in/$f.npy .; "$arrays" poke in/$f.npy 0 inf; refused $f.npy --model gdn2
    mv $f.npy in
done
cp in/g.npy .; "$arrays" poke in/g.npy 3 0.5; refused g.npy --model gdn2; mv g.npy in
"$arrays" fill in/omega.npy f8 3,1,2 1; refused omega.npy --model gdn2
refused --variant --model gdn2 --variant v1_stages
echo "kcp-run --model, relatives: $passed passed, $failed failed"
[ $failed -eq 0 ]
