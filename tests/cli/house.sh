#!/bin/sh
# house.sh -- checks rules of the source tree: includes and calls between directories,
# columns, names, where inline assembly is, labels of the book, records, and the source
# lines that jitter.sh removes.
#
# Usage: house.sh BUILD. Prints a line per broken rule, and fails if a rule is broken.
B=$(cd "${1:-build}" && pwd) || exit 2
cd "$(dirname "$0")/../.." || exit 2
export LC_ALL=C
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
find ref comm cuda tests bench book -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
    -o -name '*.def' | grep -v '^book/labs/work/' | sort >"$W/files"

# ref <- comm, cuda <- tests <- bench <- book: a directory may include itself and the
# directories before it. A quoted name is a file in the includer's directory or in ref/,
# or a path from the root. A folder cuda/NN_name may include itself, tile/, host/.
includes() {
    xargs grep -o '^ *# *include *"[^"]*"' <"$W/files" |
        sed 's/: *# *include *"/ /; s/"$//' | awk -v files="$W/files" '
        function part(f, i) { split(f, p, "/"); return p[i] }
        BEGIN { while ((getline f <files) > 0) is_file[f] = 1
                may["ref"] = " ref "; may["comm"] = " ref comm "; may["cuda"] = " ref cuda "
                may["tests"] = " ref comm cuda tests "
                may["bench"] = " ref comm cuda tests bench "
                may["book"] = may["bench"] "book " }
        { near = $1; sub(/[^\/]*$/, $2, near); to = ""
          while (sub(/[^\/]*\/\.\.\//, "", near)) continue
          if (near in is_file) to = near
          else if ("ref/" $2 in is_file) to = "ref/" $2
          else if ($2 in is_file) to = $2
          if (to == "") { print $1 ": includes " $2 ": no such file"; next }
          if (!index(may[part($1, 1)], " " part(to, 1) " ")) print $1 ": includes " to
          if ($1 ~ /^ref\/[0-9]/ && to ~ /^ref\/core/) print $1 ": a chapter includes " to
          if ($1 ~ /^cuda/ && to ~ /^cuda/ && part(to, 2) != part($1, 2) &&
              part(to, 2) != "tile" && (part(to, 2) != "host" || part($1, 2) == "tile"))
              print $1 ": includes " to }'
}
# ref/ must call comm/ and cuda/ only through the tables of ref/moves.h, not by name. The
# only weak symbols of ref/ and comm/ are the bounds of the registry's linker sections.
calls() {
    find "$B/comm" "$B/cuda" -name '*.o' | xargs nm -g --defined-only |
        awk 'NF == 3 { print $3 }' | sort -u >"$W/beyond"
    find "$B/ref" "$B/comm" -name '*.o' | xargs nm -u | awk '
        $1 ~ /^[wv]$/ && $2 !~ /^__(start|stop)_kcp_/ { print $2 ": a weak symbol" }'
    find "$B/ref" -name '*.o' | xargs nm -u | awk 'NF == 2 { print $2 }' | sort -u |
        comm -12 - "$W/beyond" | sed 's/$/: ref\/ calls it by name, comm\/ or cuda\/ has it/'
}
rules() {
    includes
    calls
    grep -v '\.def$' "$W/files" | xargs awk '
        { gsub(/[\200-\277]/, "") }                  # continuation bytes of UTF-8
        length($0) > 88 { print FILENAME ":" FNR ": " length($0) " columns, at most 88" }'
    grep '^cuda/' "$W/files" | grep -v '^cuda/tile/' |
        xargs grep -nE '(^|[^a-z_])asm *(volatile)? *\(' |
        sed 's/$/  (inline assembly outside cuda\/tile)/'
    # Rejects function names that would fit dozens of functions, except a variant's work().
    grep -E '^(cuda|tests)/' "$W/files" |
        xargs grep -nE '^[a-z].* \*?(back|work|fetch|walk|part|span|room)\(.*[^;]$' |
        grep -v 'static size_t work(const void' | sed 's/$/  (a name that says nothing)/'
    xargs grep -noE '(^|[ (])(eq|sec):[A-Za-z][A-Za-z0-9-]*' <"$W/files" |
        sed 's/:[ (]*\(eq:\|sec:\)/ \1/' | while read -r at label; do
        grep -q -- "#$label[ }]" book/*.md || echo "$at: the book has no $label"
    done
    sh tests/cli/jitter.sh build lines
    # Chapter 20's checks must pass wrong arguments to each function of the installed
    # headers.
    printf '#include "layer.h"\n' | ${CC:-cc} -E -P -Iref - |
        grep -o 'kcp_[a-z0-9_]*(' | grep -v '^kcp_copy(' | sort -u | while read -r f; do
        grep -qF "$f" tests/20_clusters/*.c || echo "tests/20_clusters: $f) is not called"
    done
    for f in bench/results/*.tsv; do
        awk -F '\t' -v f="$f" 'FNR == 1 { n = NF } NF != n {
            print f ":" FNR ": " NF " fields, the first line has " n }' "$f"
    done
}
rules >"$W/broken"
cat "$W/broken"
[ -s "$W/broken" ] || echo "house.sh: rules of includes, calls, columns, names, labels, records hold"
[ ! -s "$W/broken" ]
