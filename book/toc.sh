#!/bin/sh
# toc.sh -- one line of the table of contents, as Markdown.   sh toc.sh 07-merge
title=$(sed -n 's/^title: *//p' "book/$1.md" | head -1 | tr -d '"')
about=$(sed -n 's/^about: *//p' "book/$1.md" | head -1 | tr -d '"')
printf '%s. [%s](%s.html)\n%s\n\n' "- ${1%%-*}" "$title" "$1" "  $about"
