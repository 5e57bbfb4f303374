#!/bin/sh
# run_device.sh -- checks that kcp-run --device gpu agrees with --device cpu within a bound,
# and that canonical segments give equal bits. Without a GPU, --device gpu must be refused.
# Book: chapter 08.
# Usage: run_device.sh BUILD [FILE]. A table of errors is written to FILE.
#
# An error is RMS(gpu - cpu) / RMS(cpu) of a whole array. The CPU's inputs are not rounded
# to bf16, so a bound is larger than a kernel's own error. The judge's bounds are stricter.
table=$(realpath -m "${2:-/dev/null}")
. "$(dirname "$0")/run_common.sh"

refused() {                      # PATTERN option...: status 2, one line, nothing written
    words=$1; shift
    "$run" --in in --out out --device gpu "$@" >stdout 2>stderr
    [ $? = 2 ] && [ "$(wc -l <stderr)" = 1 ] && [ ! -s stdout ] && [ ! -e out ] &&
        grep -q -e "^kcp-run: .*$words" stderr && pass || fail "$*: $(cat stderr)"
}
# near NAME BOUND GPU-OPTIONS option...: compares all files, and adds the worst error to
# the table.
near() {
    name=$1 bound=$2 gpu=$3; shift 3
    gives cpu "$@"
    # shellcheck disable=SC2086
    gives dev --device gpu $gpu "$@"
    grep -q '^on the GPU by' stdout || fail "$name: does not print the kernels"
    arrays off dev cpu "$bound" >row 2>stderr && pass || fail "$name: $(cat row stderr)"
    printf '%-24s %s\n' "$name" "$(cat row)" | tee -a "$table"
}
each() {                         # calls near for each row "name|bound|GPU options|options"
    while IFS='|' read -r row limit of_gpu options; do
        # shellcheck disable=SC2086
        near "$row" "$limit" "$of_gpu" $layer $options
    done
}

arrays layer in 300 3 2 4 64 64 kda raw 1 || exit 1
"$run" --in in --out out --device gpu 2>first >stdout && rm -rf out
if ! grep -q 'built without CUDA' first; then
    refused '--variant: .*v1_stages' --variant v9
    refused '--variant: .*v1_stages_f32' --dtype f32 --variant v1_stages
fi
if grep -q 'no GPU found\|built without CUDA' first; then
    refused '--device: ' --ranks 2
    echo "run_device.sh: $(sed 's/^.*--device: //' first): refused," \
        "$passed passed, $failed failed"
    [ $failed = 0 ]; exit
fi
# ---- with a GPU; gates near 0, so the state decays slowly
layer="--l2norm --beta sigmoid"
arrays fill w.npy f8 128,4 0.25; arrays fill wv.npy f8 256,3 0.3
each <<'END'
kda-f32|2e-4|--dtype f32|
kda-bf16|3e-2||
kda-f16|3e-2|--dtype f16|
kda-bf16-v1|3e-2|--variant v1_stages|--save all
kda-bf16-3-chain|3e-2||--ranks 3 --form chain --reuse-m
kda-bf16-zigzag|3e-2||--ranks 4 --layout zigzag
kda-bf16-zigzag-chain|3e-2||--ranks 4 --layout zigzag --form chain
kda-f32-striped|2e-4|--dtype f32|--ranks 4 --layout striped --stripe 11
kda-bf16-4-cuts|3e-2||--cuts 0,70,71,200,300 --form chain
kda-f32-5-cuts|2e-4|--dtype f32|--cuts 0,1,100,100,101,300 --form scan
END
for name in x0 dxt; do               # x0: rows before sequences; dxt: gradients of last rows
    arrays fill in/${name}_q.npy f8 3,3,128 0.4
    arrays fill in/${name}_v.npy f8 3,2,256 -0.2
    for e in 0 130 700; do arrays poke in/${name}_q.npy $e 0.$e; done
done
layer="$layer --conv w.npy,w.npy,wv.npy --act silu"
each <<'END'
kda-f32-conv|2e-4|--dtype f32|--ranks 3
kda-bf16-conv|3e-2||--ranks 2
kda-f32-conv-local|2e-4|--dtype f32|--ranks 4 --form scan --sum local
END
layer="--l2norm --beta sigmoid"
rm -rf in; arrays layer in 300 3 2 4 64 128 gdn free 2
layer="--model gdn --gate softplus $layer"
each <<'END'
gdn-f32|2e-4|--dtype f32|--canonical 64
gdn-bf16|3e-2||
gdn-f16|3e-2|--dtype f16 --g-type f32|--ranks 2
gdn-bf16-4-pipeline|3e-2||--ranks 4 --form pipeline
END
# ---- canonical segments: every form except scan must give the bits of one rank. With
# ten heads, a block of the scan kernel has more columns on one rank than on eight ranks.
for model in kda gdn; do
    rm -rf in; arrays layer in 450 1 2 10 128 128 $model free 3
    all="--device gpu --canonical 64 --model $model --gate softplus --l2norm --beta sigmoid"
    # shellcheck disable=SC2086
    {
    gives one $all
    for ranks in 2 8; do
        # Form scan gives other bits.
        for form in $("$run" --help | sed -n 's/^ *--form //p' | tr '|' '\n' |
                grep -v scan) "pipeline --blocks 3"; do
            gives dev $all --ranks $ranks --form $form; alike dev one 0
        done
    done
    }
done
# ---- a shape that no kernel takes
rm -rf in; arrays layer in 20 1 1 1 272 16 kda raw 3
refused '08_forward' --l2norm
echo "run_device.sh: $passed passed, $failed failed"
[ $failed = 0 ]
