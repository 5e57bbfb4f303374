#!/bin/sh
# print.sh -- joins all pages into one, for a PDF.  Usage: print.sh build/book index ...
d=$1; shift
awk '/<body/ { exit } { print }' "$d/$1.html"
echo '<body>'
for c; do
    awk '/<main>/ { on = 1 } on { print } /<\/main>/ { on = 0 }' "$d/$c.html" |
        sed -E "s/<main>/<main id=\"page-$c\">/; s/href=\"[0-9A-Z][0-9a-z]*-[a-z0-9_]+\.html#/href=\"#/g; s/href=\"([0-9A-Z][0-9a-z]*-[a-z0-9_]+|idea|users|models)\.html\"/href=\"#page-\1\"/g; s/<details class=\"(answer|folded|solution)\">/<details class=\"\1\" open>/g; s/href=\"src\/[^\"]*\"//g"
done
echo '</body></html>'
