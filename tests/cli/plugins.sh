#!/bin/sh
# plugins.sh -- book/examples/plugins, as who copies them would: built, judged, and
# rejected with a mistake in them; in the languages that are here.
#
# Book: CONTRIBUTING.md, "Kernels written elsewhere".  Checked by: its mistakes.
# Usage: plugins.sh BUILD.  Next: torch.sh.
B=$(cd "${1:-build}" && pwd) || exit 2
here=$(cd "$(dirname "$0")/../.." && pwd)
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
stop() { echo "plugins.sh: $*"; exit 1; }
cd "$W" || exit 2
said=""
judged() {                               # WHAT STATUS words of the verdict, command...
    what=$1 want=$2 words=$3; shift 3
    "$@" >out 2>&1
    status=$?
    [ $status = "$want" ] || stop "$what: status $status, not $want: $(tail -2 out)"
    grep -q "$words" out || stop "$what: lacks '$words': $(tail -2 out)"
}
# SUFFIX NAME command...: right, and the state that is kept where it should be given.
language() {
    suffix=$1 name=$2; shift 2
    cp "$here/book/examples/plugins/h0.$suffix" .
    lines=$(grep -vc '^ *\(//\|/\*\|\*\|"""\|#!\|$\)' "h0.$suffix")
    "$@" "h0.$suffix" -o h0.so >out 2>&1 || stop "$name: $(head -5 out)"
    judged "$name" 0 "ok  *from_" "$B/kcp-check" --variant ./h0.so
    sed 's/a->h_kept_in, state)/a->h_in, 0)/
         s/copy(a.kept_in, a.back, state)/copy(a.kept_in, a.back, 0)/' \
        "h0.$suffix" >"wrong.$suffix"
    cmp -s "h0.$suffix" "wrong.$suffix" && stop "$name: no mistake was made"
    "$@" "wrong.$suffix" -o h0.so >out 2>&1 || stop "$name, wrong: $(head -5 out)"
    judged "$name, wrong" 1 'h_back' "$B/kcp-check" --variant ./h0.so
    said="$said, $name ($lines lines)"
}
# shellcheck disable=SC2086
language c C ${CC:-cc} -std=c11 -Wall -Wextra -Werror -shared -fPIC -I"$here/ref"
if command -v rustc >/dev/null && rustc --version >/dev/null 2>&1; then
    language rs Rust rustc --crate-type cdylib -O
else echo "plugins.sh: rustc not found: Rust is left out"
fi
for python in "${PYTHON:-python3}" /usr/bin/python3 none; do
    "$python" -c 'import numpy' 2>/dev/null && break
done
if [ "$python" = none ]; then echo "plugins.sh: NumPy not found: Python is left out"
else
    export PYTHONDONTWRITEBYTECODE=1
    rm -f h0.so
    cp "$here/book/examples/plugins/h0.py" .
    check="$here/tests/kcp_check.py --stage 12 --numpy --check $B/kcp-check"
    [ -n "$FULL" ] || check="$check --drawn"            # not the wide cases too
    # shellcheck disable=SC2086
    judged Python 0 ' 0 failed' "$python" $check h0:run
    sed 's/back\[:1\] = .*/pass/' h0.py >wrong.py
    # shellcheck disable=SC2086
    judged "Python, wrong" 1 'h_back' "$python" $check wrong:run
    said="$said, Python ($(grep -vc '^ *\("""\|Book\|Next\|$\)' h0.py) lines)"
fi
echo "plugins.sh: chapter 12 in ${said#, }: right is passed, wrong is not"
