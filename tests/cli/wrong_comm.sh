#!/bin/sh
# wrong_comm.sh -- checks that the judge rejects layers with wrong communication.
# Book: CONTRIBUTING.md, "How the judge works".
# Usage: wrong_comm.sh BUILD. Ranks are threads, or are on two GPUs (NCCL=2) or one GPU
# (NCCL=2 SHARED=1). STAGES= and FORMS= select stages and exchanges.
seconds=${KCP_TIMEOUT_S:-20}
. "$(dirname "$0")/run_common.sh"
seen=0
forms=${FORMS:-$(sed -n 's/^ *FORM(KCP_[A-Z_]*, \([a-z_]*\)).*/\1/p' "$top/ref/comm.h")}
run="timeout --foreground 300" how="" sizes="R=3 H=1 HV=2 K=16 V=12 C=16 lengths=21,210,30 h0"
if [ -n "$NCCL" ]; then
    how="--device --backend nccl --ranks $NCCL"
    sizes="R=$NCCL H=1 HV=2 K=64 V=64 C=64 lengths=21,810,30 h0"
    [ -z "$SHARED" ] ||
        how=--device run="env LIMIT=300 sh $top/tests/share_gpu.sh $NCCL"
fi
for stage in $STAGES; do
    case $stage in 08 | 13 | 14 | 15 | 16) ;; *)
        echo "wrong_comm.sh: STAGES: found $stage, expected 08, 13, 14, 15 or 16"; exit 2 ;;
    esac
done
# A row has the stage, the layer on a GPU and on the host, and cases. FORM is an exchange.
while IFS='|' read -r name gpu host words; do
    stage=${name%%_*} layer=${NCCL:+$gpu}
    layer=${layer:-$host}
    case "${STAGES:-$stage}" in *"$stage"*) ;; *) continue ;; esac
    case $words in *FORM*) knows=$forms ;; *) knows=any ;; esac
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
                --case "$(echo "$words" | sed "s/FORM/$form/g; s/SIZES/$sizes/g")" \
                --stage $stage >"$W/output" 2>&1 </dev/null
            status=$?
            # A wrong layer must fail by wrong values, not by a timeout or because nothing ran.
            # Mistake ELSEWHERE must fail by a timeout of the library or of the judge.
            grep -q '^  FAIL .*: error ' "$W/output" && status=$status.wrong
            grep -Eq '^  FAIL .*(did not complete|ran past its time)' "$W/output" &&
                status=$status.hung
            case $mistake.$status in
                HONEST.0 | S*.1.wrong | ELSEWHERE.1.hung) seen=$((seen + 1)) ;;
                *) fail "$stage, $mistake, $form: status $status:" \
                       "$(grep -m 1 '^  FAIL ' "$W/output")" ;;
            esac
        done
    done
done <<END
08_forward|v3_prepare_scan|twin|live kda FORM SIZES l2norm beta=sigmoid seed=1; live gdn FORM SIZES l2norm beta=sigmoid seed=2
13_backward|v4_scans_finish|twin|live kda FORM SIZES l2norm beta=sigmoid dht seed=1; live gdn FORM SIZES l2norm beta=sigmoid dht seed=2
14_conv|v2_tokens|twin|live kda act=silu D=40 Wc=4 SIZES seed=1
15_scan|v2_mma|twin|live kda spike SIZES dht masks=1 seed=1
16_family|v2_tiles|twin_dplr|live dplr FORM SIZES dht seed=1${NCCL:+; live gdn2 FORM SIZES dht seed=2}
END
echo "wrong_comm: $seen verdicts as expected, $failed not"
[ $failed -eq 0 ] && [ $seen -gt 0 ]
