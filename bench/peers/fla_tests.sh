#!/bin/sh
# fla_tests.sh -- runs flash-linear-attention's tests by pytest on kcp_torch's backend.
# Book: chapter 19.
#
#   sh bench/peers/fla_tests.sh tests/ops/test_kda.py -k test_chunk         one GPU
#   sh bench/peers/fla_tests.sh tests/context_parallel/test_cp_gdn.py       two or more GPUs
#   FLA_CI_ENV=1 sh bench/peers/fla_tests.sh tests/context_parallel/test_cp_kda.py
#
# .peers/ contains FLA's unchanged package and tests (fetch.sh). FLA_CI_ENV=1, as in FLA's
# continuous integration, turns an error above the limit into a warning, unless a number
# differs by more than 0.3.
cd "$(dirname "$0")/../.." || exit 1
[ -d .peers/tests ] || { echo "fla_tests.sh: .peers/tests not found: run fetch.sh"; exit 1; }
here=$PWD/bench/peers
export PYTHONPATH="$here/backend:$here:$PWD/.peers:$PWD/book/examples/torch:$PYTHONPATH"
export PYTHONDONTWRITEBYTECODE=1
export KCP_FLA="${KCP_FLA:-all}"             # also calls for which KCP's kernels are slow
cd .peers && exec python3 -m pytest -p verdicts -p no:cacheprovider --log-level=INFO "$@"
