#!/bin/sh
# standalone.sh -- adds the book's colours, light and dark, to a figure's SVG, so that the
# file can be shown outside the book.
# usage: sh book/figures/standalone.sh build/book/figures/journey.svg > book/data/journey.svg
[ -r "$1" ] || { echo "standalone.sh: $1: not found, expected a figure's SVG" >&2; exit 2; }
css=$(dirname "$0")/../book.css
{
    sed -n '/^:root {/,/^} }/p' "$css"
    sed -n 's/^\.figure svg/svg/p' "$css" | sed 's/, \.play svg[^{]*//'
    grep -E '^\.(fill|stroke|rank|seq|wash|line|arrow)[a-z0-9-]* ' "$css"
    echo 'svg { background: var(--paper); }'
} | tr '\n' ' ' > /tmp/standalone.$$
awk -v rules="$(cat /tmp/standalone.$$)" 'NR == 1 {
    sub(/<svg /, "<svg xmlns=\"http://www.w3.org/2000/svg\" ")
    i = index($0, ">"); $0 = substr($0, 1, i) "<style>" rules "</style>" substr($0, i + 1)
} { print }' "$1"
rm -f /tmp/standalone.$$
