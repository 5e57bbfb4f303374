#!/bin/sh
# wrong_comm.sh -- a layer whose communication is wrong fails: planted, one way a word.
#
# Book: CONTRIBUTING.md, "How the judge works".  Checked by: HONEST, which passes.
# Usage: wrong_comm.sh BUILD; NCCL=2: over so many GPUs, else ranks are threads.
# Next: ../judge/plants/comm.c.
B=$(cd "${1:-build}" && pwd) || exit 1
top=$PWD failed=0 seen=0
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
unset WORLD_SIZE RANK SLURM_NTASKS OMPI_COMM_WORLD_SIZE
sizes="H=1 HV=2 K=64 V=64 C=64 lengths=21,810,30 h0 l2norm beta=sigmoid"
forms=${FORMS:-all_gather chain pipeline scan}
if [ -n "$NCCL" ]; then layer=v3_records how="--device --backend nccl" R=$NCCL
else layer=twin how="" R=3
    sizes="H=1 HV=2 K=16 V=12 C=16 lengths=21,210,30 h0 l2norm beta=sigmoid"; fi
for name in HONEST SHORT SHIFTED SILENT; do
    ${CC:-cc} -std=c11 -O1 -shared -fPIC -I"$top/ref" -DWRONG="$name" \
        -DLAYER="\"$layer\"" "$top/tests/judge/plants/comm.c" -o "$W/$name.so" ||
        { echo "wrong_comm.sh: $name does not compile"; exit 1; }
    for form in $forms; do
        # shellcheck disable=SC2086
        timeout 100 "$B/kcp-check" --variant "$W/$name.so" $how --limit 20 \
            --case "live kda $form R=$R $sizes seed=1; live gdn $form R=$R $sizes seed=2" \
            --stage 08 ${NCCL:+--ranks $R} >"$W/said" 2>&1
        status=$?
        case $name.$status in
            HONEST.0 | [SU]*.1) seen=$((seen + 1)) ;;
            *) failed=$((failed + 1))
               echo "  FAIL  wrong_comm: $name, $form: status $status: $(tail -3 "$W/said")" ;;
        esac
    done
done
echo "wrong_comm: $seen as they should be, $failed not"
[ $failed -eq 0 ]
