#!/bin/sh
# proxy.sh -- finds missing proxy fences in the kernels' PTX.
# Book: chapter 18.
# Usage: proxy.sh BUILD [--plant], after make has compiled the PTX.
command -v python3 >/dev/null || { echo "proxy.sh: python3 not found: skipped"; exit 0; }
exec python3 tests/proxy/kcp_proxy.py "$@"
