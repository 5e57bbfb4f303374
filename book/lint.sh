#!/bin/sh
# lint.sh -- loads pages in headless Chromium; fails if lint.js finds a fault or a link is broken.
#
# Used by: make book-lint.  CHROME is Chromium's command.
# WIDTHS and SCHEMES select widths and colour schemes; if WIDTHS is set, no source page is loaded.
d=$1; shift
status=0
pages=
for c; do for w in ${WIDTHS:-1280 390 1450 1600}; do pages="$pages[\"$c.html\",$w],"; done; done
[ -n "$WIDTHS" ] || for f in $(cd "$d" && ls src/*/*.html | awk 'NR % 9 == 1'); do pages="$pages[\"$f\",1280],"; done
{ printf '<!doctype html><meta charset="utf-8"><body><script>'
  sed "s#PAGES#[$(printf '%s' "$pages" | sed 's/[&#]/\\&/g')]#" "$(dirname "$0")/lint.js"
  printf '</script>'; } > "$d/lint.html"
for scheme in ${SCHEMES:-light dark}; do
    case $scheme in light) n=1 ;; dark) n=0 ;; esac
    $CHROME --blink-settings=preferredColorScheme=$n --virtual-time-budget=600000 --timeout=300000 --dump-dom \
        "file://$(cd "$d" && pwd)/lint.html" 2> "$d/lint.log" > "$d/lint.$scheme"
    if ! grep -q 'LINT END' "$d/lint.$scheme"; then
        echo "book-lint: Chromium did not finish ($scheme)"; tail -3 "$d/lint.log"; status=1; continue
    fi
    found=$(sed -n '/LINT BEGIN/,/LINT END/p' "$d/lint.$scheme" | sed '1d;$d' | grep -c .)
    sed -n '/LINT BEGIN/,/LINT END/p' "$d/lint.$scheme" | sed '1d;$d' | grep . | head -60
    echo "book-lint: $scheme: $found complaints in $(sed -n 's/.*LINT END \([0-9]*\).*/\1/p' "$d/lint.$scheme") views"
    [ "$found" = 0 ] || status=1
done
# Each link between pages needs an existing file and an existing anchor.
for c; do
    grep -o 'href="[^"#:]*\.html\(#[^"]*\)\?"' "$d/$c.html" | sed 's/href="//;s/"$//' | sort -u |
    while IFS='#' read -r file id; do
        if [ ! -f "$d/$file" ]; then echo "$c.html: no page $file"
        elif [ -n "$id" ] && ! grep -q "id=\"$id\"" "$d/$file"; then echo "$c.html: no anchor $file#$id"; fi
    done
done > "$d/lint.links"
cat "$d/lint.links"; [ -s "$d/lint.links" ] && status=1
exit $status
