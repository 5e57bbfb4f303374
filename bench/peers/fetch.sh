#!/bin/sh
# fetch.sh -- put flash-linear-attention's sources in .peers/, which git ignores.
#
#   sh bench/peers/fetch.sh REPOSITORY [COMMIT]       any clone of it, bare or not
#
# Its package and its tests are taken, 9 MB of Python; they are read from there by
# PYTHONPATH and are no part of this repository. FlashKDA must be built where it runs,
# from its sources and CUTLASS's include/: python3 setup.py build_ext --inplace, its
# folder in PYTHONPATH.
from=$1 commit=${2:-HEAD}
if [ -z "$from" ]; then
    echo "fetch.sh: found no repository, expected a clone" >&2; exit 2
fi
cd "$(dirname "$0")/../.." || exit 1
rm -rf .peers && mkdir .peers || exit 1
git -C "$from" archive "$commit" fla tests/conftest.py tests/ops/test_kda.py \
    tests/context_parallel pyproject.toml LICENSE | tar x -C .peers || exit 1
git -C "$from" rev-parse --short=10 "$commit" >.peers/FLA_COMMIT
size=$(du -sh .peers | cut -f1)
echo ".peers/: $size, flash-linear-attention $(cat .peers/FLA_COMMIT)"
