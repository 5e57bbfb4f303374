#!/bin/sh
# wrong_comm.sh -- checks that the judge rejects layers with wrong communication.
# Book: CONTRIBUTING.md, "How the judge works".
# Usage: wrong_comm.sh BUILD. Ranks are threads, or are on two GPUs (NCCL=2) or one GPU
# (NCCL=2 SHARED=1). STAGES= and FORMS= select stages and exchanges.
B=$(cd "${1:-build}" && pwd) || exit 1
top=$PWD failed=0 seen=0
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
unset WORLD_SIZE RANK SLURM_NTASKS OMPI_COMM_WORLD_SIZE
forms=${FORMS:-$(sed -n 's/^ *FORM(KCP_[A-Z_]*, \([a-z_]*\)).*/\1/p' ref/comm.h)}
run="timeout --foreground 300" how="" R=3
seconds=${KCP_TIMEOUT_S:-20}
if [ -n "$NCCL" ]; then
    how="--device --backend nccl --ranks $NCCL" R=$NCCL
    [ -z "$SHARED" ] ||
        how=--device run="env LIMIT=300 sh $top/tests/share_gpu.sh $NCCL"
fi
# of STAGE NAME GPU-VARIANT HOST-VARIANT: selects the layer, sizes and exchange algorithms.
of() {
    if [ -n "$NCCL" ]; then layer=$3 sizes="K=64 V=64 C=64 lengths=21,810,30"
    else layer=$4 sizes="K=16 V=12 C=16 lengths=21,210,30"; fi
    name=$2 sizes="R=$R H=1 HV=2 $sizes h0"
    case $1 in 14 | 15) knows=any ;; *) knows=$forms ;; esac
}
cases_of() {     # STAGE FORM
    heads="l2norm beta=sigmoid"
    case $1 in
        08) echo "live kda $2 $sizes $heads seed=1; live gdn $2 $sizes $heads seed=2" ;;
        13) echo "live kda $2 $sizes $heads dht seed=1; live gdn $2 $sizes $heads dht seed=2" ;;
        14) echo "live kda act=silu D=40 Wc=4 $sizes seed=1" ;;
        15) echo "live kda spike $sizes dht masks=1 seed=1" ;;
        16) echo "live dplr $2 $sizes dht seed=1${NCCL:+; live gdn2 $2 $sizes dht seed=2}" ;;
    esac
}
for stage in ${STAGES:-08 13 14 15 16}; do
    case $stage in
        08) of 08 08_forward v3_prepare_scan twin ;;
        13) of 13 13_backward v4_scans_finish twin ;;
        14) of 14 14_conv v2_tokens twin ;;
        15) of 15 15_scan v2_mma twin ;;
        16) of 16 16_family v2_tiles twin_dplr ;;
        *) echo "wrong_comm.sh: STAGES: found $stage, expected 08, 13, 14, 15 or 16"; exit 2 ;;
    esac
    mistakes="HONEST SHORT SHIFTED SILENT"
    case $NCCL.$SHARED.$stage in [0-9]*..13) mistakes="$mistakes ELSEWHERE" ;; esac
    for mistake in $mistakes; do
        export KCP_TIMEOUT_S="$seconds"
        [ "$mistake" != ELSEWHERE ] || KCP_TIMEOUT_S=8
        ${CC:-cc} -std=c11 -O1 -shared -fPIC -I"$top/ref" -DWRONG="$mistake" \
            -DSTAGE="\"$name\"" -DLAYER="\"$layer\"" "$top/tests/judge/plants/comm.c" \
            -o "$W/$mistake.so" ||
            { echo "wrong_comm.sh: $mistake does not compile"; exit 1; }
        for form in $knows; do
            # shellcheck disable=SC2086
            $run "$B/kcp-check" --variant "$W/$mistake.so" $how --limit 60 --repeats 2 \
                --case "$(cases_of $stage "${form#any}")" --stage $stage >"$W/output" 2>&1
            status=$?
            # A wrong layer must fail by wrong values, not by a timeout or because nothing ran.
            # Mistake ELSEWHERE must fail by a timeout of the library or of the judge.
            grep -q '^  FAIL .*: error ' "$W/output" && status=$status.wrong
            grep -Eq '^  FAIL .*(did not complete|ran past its time)' "$W/output" &&
                status=$status.hung
            case $mistake.$status in
                HONEST.0 | S*.1.wrong | ELSEWHERE.1.hung) seen=$((seen + 1)) ;;
                *) failed=$((failed + 1))
                   echo "  FAIL  wrong_comm: $stage, $mistake, $form: status $status:" \
                       "$(grep -m 1 '^  FAIL ' "$W/output")" ;;
            esac
        done
    done
done
echo "wrong_comm: $seen verdicts as expected, $failed not"
[ $failed -eq 0 ]
