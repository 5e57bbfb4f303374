#!/bin/sh
# toc.sh -- prints a part of the contents as HTML.  Usage: toc.sh TITLE 07-merge ...
part=$1; shift
[ -z "$part" ] || printf '<h2>%s</h2>\n' "$part"
echo '<ul class="toc">'
for page; do
    title=$(sed -n 's/^title: *//p' "book/$page.md" | head -1 | tr -d '"')
    about=$(sed -n 's/^about: *//p' "book/$page.md" | head -1 | tr -d '"')
    case $page in *-*) no=${page%%-*} ;; *) no= ;; esac
    printf '<li><span class="n">%s</span><span><a href="%s.html">%s</a><small>%s</small></span></li>\n' \
        "$no" "$page" "$title" "$about"
done
echo '</ul>'
