#!/bin/sh
# fonts.sh -- writes @font-face rules with embedded fonts, so that a page needs no other
# file.
#
# Usage: fonts.sh build/book > fonts.css.
# The fonts are Debian's TeX Gyre Pagella (GUST font licence), reduced to the letters that
# the book uses. If the fonts or pyftsubset are missing, the script prints one line and
# writes no rules, so pages use the system fonts named in book.css.
tmp=$1/fonts
otf=
for d in /usr/share/texmf/fonts/opentype/public /usr/share/fonts/opentype /usr/share/texlive/texmf-dist/fonts/opentype/public; do
    [ -f "$d/tex-gyre-math/texgyrepagella-math.otf" ] &&
        [ -f "$d/tex-gyre/texgyrepagella-regular.otf" ] && otf=$d && break
done
if [ -z "$otf" ] || ! command -v pyftsubset > /dev/null; then  # .ci/setup installs these
    echo "book: fonts-texgyre, fonts-texgyre-math or pyftsubset is missing, so pages use system fonts; .ci/setup installs them" >&2
    exit 0
fi
mkdir -p "$tmp"
latin='U+20-7E,U+A0-FF,U+2010-2027,U+2030,U+2039-203A,U+20AC,U+2190-2193,U+2212,U+00D7,U+0141-0142,U+0160-0161'
maths="U+20-7E,U+A0-FF,U+2010-2027,U+391-3C9,U+3D5,U+3F5,U+2032-2033,U+2061-2064,U+210E,U+211D,U+2113,U+2190-2194,U+21A6,U+21D0-21D4,U+2200-220B,U+220F-221E,U+2225-222B,U+2248,U+2260-2265,U+226A-226B,U+2282-2287,U+2295-2299,U+22A4-22A5,U+22C5-22C6,U+22EE-22F1,U+2308-230B,U+23B4-23B5,U+23DE-23E1,U+27E8-27E9,U+1D434-1D467,U+1D6E2-1D71B,U+1D7CE-1D7D7"
face() {   # family weight style file glyphs features
    sub=$tmp/$(basename "$4" .otf).woff2
    pyftsubset "$otf/$4" --unicodes="$5" --flavor=woff2 --layout-features="$6" --output-file="$sub" 2> /dev/null || return
    printf '@font-face { font-family: "%s"; font-weight: %s; font-style: %s; src: url(data:font/woff2;base64,%s) format("woff2"); }\n' \
        "$1" "$2" "$3" "$(base64 -w0 "$sub")"
}
face "Book" 400 normal tex-gyre/texgyrepagella-regular.otf "$latin" "kern,liga,onum,smcp,c2sc"
face "Book" 400 italic tex-gyre/texgyrepagella-italic.otf "$latin" "kern,liga,onum,smcp,c2sc"
face "Book" 600 normal tex-gyre/texgyrepagella-bold.otf "$latin" "kern,liga,onum,smcp,c2sc"
face "Book Math" 400 normal tex-gyre-math/texgyrepagella-math.otf "$maths" ssty
