#!/bin/sh
# dangling.sh -- checks that book.lua rejects each page that has one mistake.
#
# Run by `make book-lint`.
d=$1                               # argument: build/book
fail=0
try() {                            # the mistake, the page's text
    printf -- '---\ntitle: x\nchapter: "99"\n---\n\nA letter $x$ and text.\n\n%s\n' "$2" > "$d/dangling.md"
    if OUT=$d LABELS=$d/labels.tsv pandoc -f markdown --lua-filter book/book.lua --citeproc \
        --bibliography book/refs.bib -t html5 --mathml -M page=dangling -o "$d/dangling.html" \
        "$d/dangling.md" > "$d/dangling.log" 2>&1 && ! grep -q WARNING "$d/dangling.log"; then
        [ "$1" = nothing ] || { echo "dangling: book.lua accepts $1"; fail=1; }
    elif [ "$1" = nothing ]; then echo "dangling: book.lua rejects a page without a mistake:"; cat "$d/dangling.log"; fail=1; fi
}
inc() { printf '`%s`{.include %s}\n' "${1%% *}" "${1#* }"; }
try nothing "$(inc 'ref/07_merge.c fn=ref_merge')"
try "an unknown file" "$(inc 'ref/07_murge.c fn=ref_merge')"
try "an unknown function" "$(inc 'ref/07_merge.c fn=ref_murge')"
try "an unknown region" "$(inc 'ref/07_merge.c region=no-such')"
try "an unknown label" 'See [@eq:no-such].'
try "an unknown section" 'See [@sec:no-such].'
try "an unknown chapter" 'See [@ch:98].'
try "an unknown citation" 'See [@nobody1900].'
try "an unknown figure" '![A figure.](no-such.svg){#fig:none}'
try "an unknown example" '`no-such`{.example}'
try "an unknown test" '$$x = 1$$ {#eq:dangling held=07_merge/mutant_no_such}'
try "a macro that texmath cannot convert" 'A $\cancel{x}$ here.'
try "raw TeX" 'A \vspace{1em} here.'
try "a file that is not in the tree" 'Read `ref/99_none.c`.'
try "a function that is not in the tree" 'It calls `ref_murge`.'
try "a function without prose" '# A header

'"$(inc 'ref/07_merge.c fn=ref_merge')"
rm -f "$d"/dangling.*
[ $fail = 0 ] && echo "book-lint: book.lua rejects pages with 15 kinds of mistakes"
exit $fail
