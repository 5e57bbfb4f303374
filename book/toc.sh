#!/bin/sh
# toc.sh -- one line of the table of contents, as HTML.   sh toc.sh 07-merge
title=$(sed -n 's/^title: *//p' "book/$1.md" | head -1 | tr -d '"')
about=$(sed -n 's/^about: *//p' "book/$1.md" | head -1 | tr -d '"')
printf '<li><span class="n">%s</span><span><a href="%s.html">%s</a><small>%s</small></span></li>\n' \
    "${1%%-*}" "$1" "$title" "$about"
