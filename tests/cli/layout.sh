#!/bin/sh
# layout.sh -- checks the pages in a browser: no formula is cut off at the width of a
# desktop or a phone, and text in figures has enough contrast in light and dark mode.
[ -f build/book/03-wy.html ] || { echo "layout.sh: skipped: no book is built"; exit 0; }
. tests/cli/browser.sh
export WIDTHS="1280 390" SCHEMES=light
failed=0
pages=$(cd build/book && ls idea.html users.html [0-9A-Z]*-*.html | sed 's/\.html$//')
sh book/lint.sh build/book index $pages >"$W/output" || { cat "$W/output"; failed=1; }
WIDTHS=1280 SCHEMES=dark sh book/lint.sh build/book index $pages >"$W/dark" || {
    cat "$W/dark"
    failed=1
}
[ $failed = 0 ] && sed 's/book-lint/layout.sh/' "$W/output" "$W/dark"
exit $failed
