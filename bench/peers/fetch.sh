#!/bin/sh
# fetch.sh -- copies flash-linear-attention's sources to .peers/, which git ignores.
#
#   sh bench/peers/fetch.sh REPOSITORY [COMMIT]       REPOSITORY: a clone, bare or not
#
# Then add .peers/, which has the package and its tests (9 MB of Python), to PYTHONPATH.
# To time FlashKDA (fla_ops.py --others), build it on the machine with the GPU by python3 setup.py
# build_ext --inplace with CUTLASS's include/, and add its folder to PYTHONPATH.
from=$1 commit=${2:-HEAD}
if [ -z "$from" ]; then
    echo "fetch.sh: usage: fetch.sh REPOSITORY [COMMIT]" >&2; exit 2
fi
cd "$(dirname "$0")/../.." || exit 1
rm -rf .peers && mkdir .peers || exit 1
git -C "$from" archive "$commit" fla tests/conftest.py tests/ops/test_kda.py \
    tests/context_parallel pyproject.toml LICENSE | tar x -C .peers || exit 1
number=$(sed -n 's/^__version__ = *//p' .peers/fla/__init__.py | tr -d "\"'")
echo "flash-linear-attention $number $(git -C "$from" rev-parse --short=10 "$commit")" \
    >.peers/FLA_VERSION
size=$(du -sh .peers | cut -f1)
echo ".peers/: $size, $(cat .peers/FLA_VERSION)"
