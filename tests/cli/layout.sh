#!/bin/sh
# layout.sh -- checks the pages in a browser: no formula is cut off at the width of a
# desktop or a phone, and text in figures has enough contrast in light and dark mode.
chrome=
for c in chromium-headless-shell chromium google-chrome chrome; do
    command -v "$c" >/dev/null 2>&1 && chrome=$c && break
done
[ -n "$chrome" ] || { echo "layout.sh: skipped: no headless Chromium"; exit 0; }
[ -f build/book/03-wy.html ] || { echo "layout.sh: skipped: no book is built"; exit 0; }
CHROME="$chrome --headless --no-sandbox --disable-gpu --hide-scrollbars"
CHROME="$CHROME --allow-file-access-from-files --disable-dev-shm-usage"
WIDTHS="1280 390" SCHEMES=light
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
# Uses a separate HOME, because a running Chromium locks the profile in HOME, and some
# users have no HOME.
unset XDG_CONFIG_HOME XDG_CACHE_HOME
HOME=$W
export CHROME WIDTHS SCHEMES HOME
failed=0
pages=$(cd build/book && ls idea.html users.html [0-9A-Z]*-*.html | sed 's/\.html$//')
sh book/lint.sh build/book index $pages >"$W/output" || { cat "$W/output"; failed=1; }
WIDTHS=1280 SCHEMES=dark sh book/lint.sh build/book index $pages >"$W/dark" || {
    cat "$W/dark"
    failed=1
}
[ $failed = 0 ] && sed 's/book-lint/layout.sh/' "$W/output" "$W/dark"
exit $failed
