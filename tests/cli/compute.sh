#!/bin/sh
# compute.sh -- drives the book's page "compute" in a browser: results on all forms, every
# mutant predicted wrongly and rightly, wrong choices; then checks its layout, and that
# the interactive figures of chapters 06 and 07 show a plan and an exchange.
# Book: page "compute".
cd "$(dirname "$0")/../.." || exit 2
d=build/book
[ -f $d/compute.html ] || { echo "compute.sh: skipped: $d/compute.html is not built"; exit 0; }
. tests/cli/browser.sh
trap 'rm -rf "$W" "$d/drive.html"' EXIT
{ echo '<!doctype html><meta charset="utf-8"><body><script>'; cat book/compute/drive.js
  echo '</script>'; } >$d/drive.html
$CHROME --virtual-time-budget=300000 --timeout=240000 --dump-dom "file://$PWD/$d/drive.html" \
    2>"$W/log" >"$W/page"
grep -q '<pre id="drive">DRIVE BEGIN' "$W/page" || { echo "compute.sh: the page did not answer"; tail -3 "$W/log"; exit 1; }
sed -n '/id="drive">DRIVE BEGIN/,/DRIVE END/p' "$W/page" | sed '1d;$d' >"$W/faults"
$CHROME --virtual-time-budget=10000 --dump-dom "file://$PWD/$d/06-plan.html" 2>"$W/log" |
    grep -q 'States that cross a cut: 3; segments that must send M as well: 2' ||
    echo "chapter 06's interactive figure shows no plan" >>"$W/faults"
$CHROME --virtual-time-budget=10000 --dump-dom "file://$PWD/$d/07-merge.html" 2>"$W/log" |
    grep -q 'Form chain, 4 ranks, .* recurrence.s by at most [0-9]e-1[4-9]' ||
    echo "chapter 07's interactive figure shows no exchange" >>"$W/faults"
WIDTHS="1280 390" sh book/lint.sh $d compute >"$W/layout" || { cat "$W/layout"; exit 1; }
sed 's/^/compute.sh: /' "$W/faults"
[ -s "$W/faults" ] || echo "compute.sh: 24 sets of choices, 10 mutants, 5 wrong choices, layout, chapters 06 and 07"
[ ! -s "$W/faults" ]
