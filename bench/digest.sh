#!/bin/sh
# The digest of what a variant is made of: its own file, the headers of its stage, of
# cuda/ and of ref/; for the programs that string stages together, every kernel.
# usage: sh bench/digest.sh 04_chunk v2_warp
stage=$1 name=${2%_f32}
own="cuda/$stage/$name.cu"
[ -r "$own" ] || own="cuda/$stage/${name}_sm90.cu"
[ -r "$own" ] || own="cuda/18_hopper/${name}_sm90.cu"
[ -r "$own" ] || { echo "-"; exit 0; }
case $stage in
08_*|13_*|16_*) files=$(ls cuda/0*/*.cu* cuda/1[0-468]*/*.cu*) ;;
*) files="$own $(ls cuda/$stage/*.cuh 2>/dev/null)" ;;
esac
cat $files cuda/tile/*.cuh cuda/host/* ref/kcp.h ref/stages.h | sha256sum | cut -c1-16
