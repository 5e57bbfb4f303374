#!/bin/sh
# house.sh -- the rooms as CONTRIBUTING.md draws them: who may include whom, how wide a
# line is, how many files a fast kernel has, where asm may stand, words that the field
# has better ones for, statements that a reader must decode, mistakes of jitter.sh whose
# line is gone, commits of records that the history has not, and scores that are not those
# of tests/mutants.tsv.
#
# Book: none.  Checked by: itself, on planted mistakes.  Next: words.tsv, statements.awk.
# Usage: house.sh BUILD.
cd "$(dirname "$0")/../.." || exit 2
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
git ls-files -co --exclude-standard 2>/dev/null |
    grep -E '^(ref|comm|cuda|tests|bench|book)/.*\.(c|h|cu|cuh|def)$' |
    while read -r f; do [ ! -f "$f" ] || echo "$f"; done >"$W/files"
[ -s "$W/files" ] || find ref comm cuda tests bench book -name '*.[ch]' -o -name '*.cu' \
    -o -name '*.cuh' -o -name '*.def' >"$W/files"

# Every include as "includer included", both from the root. A name in quotes lies beside
# its includer, in ref/ (the public headers), or is a path from the root.
includes() {
    xargs grep -n '^ *# *include *"' <"$W/files" /dev/null |
        sed 's/:[0-9]*: *# *include *"\([^"]*\)".*/ \1/' |
        while read -r from name; do
            dir=${from%/*}
            for at in "$dir/$name" "ref/$name" "$name"; do
                [ -f "$at" ] && { echo "$from $at"; continue 2; }
            done
            echo "$from ?$name"
        done
}

# ref <- comm, cuda <- tests <- bench <- book: a room includes itself and what stands
# left of it. Kernels of a chapter include their own folder, tile/ and host/; those of
# 18_hopper likewise, so that taught and fast kernels share tile/ alone.
arrows() {
    awk '
        function room(f) { sub(/\/.*/, "", f); return f }
        function second(f) { split(f, p, "/"); return p[2] }
        BEGIN { may["ref"] = " ref "; may["comm"] = " ref comm "
                may["cuda"] = " ref cuda "; may["tests"] = " ref comm cuda tests "
                may["bench"] = " ref comm cuda tests bench "
                may["book"] = " ref comm cuda tests bench book " }
        $2 ~ /^\?/ { print $1 ": found no " substr($2, 2); next }
        index(may[room($1)], " " room($2) " ") == 0 { print $1 ": includes " $2; next }
        room($1) == "ref" && $1 !~ /core/ && $2 ~ /ref\/core/ {
            print $1 ": a chapter includes " $2; next }
        room($1) == "cuda" && room($2) == "cuda" {
            a = second($1); b = second($2)
            if (a == "tile" && b != "tile") print $1 ": tile includes " $2
            else if (b != a && b != "tile" && b != "host") print $1 ": includes " $2
        }'
}

# A saved header rebuilds its own: of a fast kernel's at most 6 objects of nvcc (chunk
# factors: two that write them, three that read them, forward's host program), of the
# arrays' (npy) none. What an object includes, through whatever lies between.
rebuilds() {
    awk '
        { into[$1] = into[$1] " " $2 }
        END {
            for (f in into) if (f ~ /\.cu$/) {
                split("", seen); count = 1; queue[1] = f
                for (i = 1; i <= count; i++) {
                    n = split(into[queue[i]], next_ones, " ")
                    for (j = 1; j <= n; j++) if (!(next_ones[j] in seen)) {
                        seen[next_ones[j]] = 1; queue[++count] = next_ones[j]
                        objects[next_ones[j]]++ }
                }
            }
            for (h in objects) {
                if (h ~ /^cuda\/18_hopper\// && objects[h] > 6)
                    print h ": rebuilds " objects[h] " objects of nvcc, at most 6"
                if (h ~ /^ref\/base\/npy/) print h ": rebuilds objects of nvcc"
            }
        }'
}

# A fast kernel reads top down in at most four files of its folder. A header that other
# folders include too is no kernel's own: it says what travels between kernels.
read_top_down() {
    awk '
        function folder(f) { sub(/[^\/]*$/, "", f); return f }
        $1 !~ /^cuda\/18_hopper\// { next }
        folder($1) != folder($2) { shared[$2] = 1; next }
        { into[$1] = into[$1] " " $2 }
        END {
            for (f in into) if (f ~ /\.cu$/) {
                split("", seen); count = 1; files = 1; queue[1] = f
                for (i = 1; i <= count; i++) {
                    n = split(into[queue[i]], next_ones, " ")
                    for (j = 1; j <= n; j++) if (!(next_ones[j] in seen)) {
                        seen[next_ones[j]] = 1; queue[++count] = next_ones[j]
                        files += !(next_ones[j] in shared) }
                }
                if (files > 4) print f ": a kernel of " files " files, at most 4"
            }
        }'
}

# Code alone: no comments, no strings.
code() {
    awk 'FNR == 1 { inside = 0 }
         { s = $0; q = "\047"; gsub(/\\./, "", s); gsub(q "[^" q "]" q, "0", s)
           gsub(/"[^"]*"/, "\"\"", s); sub(/\/\/.*/, "", s)
           while (1) {
               if (inside) { i = index(s, "*/"); if (!i) { s = ""; break }
                             s = substr(s, i + 2); inside = 0 }
               i = index(s, "/*"); if (!i) break
               j = index(substr(s, i), "*/")
               if (!j) { s = substr(s, 1, i - 1); inside = 1; break }
               s = substr(s, 1, i - 1) " " substr(s, i + j + 1)
           }
           print FILENAME ":" FNR ": " s }' "$@"
}

# What a record was made at is in the history, or CONTRIBUTING says that it is not. Asked
# where the whole history is: not of a copy without .git, not of a shallow clone.
gone="4c1a007 6b09393 7087bc2 ceca11a"
commits() {
    [ -s "$W/history" ] || return 0
    for f in tests/seeds.tsv tests/mutants.tsv bench/results/*.tsv; do
        awk -F '\t' -v f="$f" '
            FNR == 1 { for (i = 1; i <= NF; i++) if ($i == "commit") at = i; next }
            at && $at != "" && !n[$at]++ { print $at, f }' "$f"
    done | awk -v gone="$gone" '
        function lack(c, why) { print why c "  (CONTRIBUTING, \"A recorded run\")" }
        BEGIN { n = split(gone, g, " "); for (i = 1; i <= n; i++) left[g[i]] = 1 }
        FILENAME == "CONTRIBUTING.md" {
            for (c in left) if (index($0, "`" c "`")) said[c] = 1
            next }
        FILENAME != "-" { known[substr($0, 1, 7)] = $0; next }
        $1 in left { named[$1] = 1; next }
        length($1) < 7 || index(known[substr($1, 1, 7)], $1) != 1 {
            lack($1, $2 ": not in the history: ") }
        END { for (c in left) {
            if (!(c in named)) lack(c, "house.sh: no record names any more: ")
            if (!(c in said)) lack(c, "CONTRIBUTING.md: does not say what is gone: ") } }
    ' CONTRIBUTING.md "$W/history" -
}
if [ "$(git rev-parse --is-shallow-repository 2>/dev/null)" = false ]; then
    git rev-list HEAD >"$W/history"
fi

# scores.sh, asked in a folder of its own, changes nothing.
scores() {
    mkdir -p "$W/scores/tests"
    cp CONTRIBUTING.md "$W/scores" && cp tests/mutants.tsv "$W/scores/tests" || return
    (script=$PWD/tests/scores.sh && cd "$W/scores" && sh "$script")
    cmp -s CONTRIBUTING.md "$W/scores/CONTRIBUTING.md" ||
        echo "CONTRIBUTING.md: not the scores of tests/mutants.tsv: sh tests/scores.sh"
}

look() {
    commits
    scores
    includes >"$W/includes"
    arrows <"$W/includes"
    rebuilds <"$W/includes"
    read_top_down <"$W/includes"
    grep -v '\.def$' "$W/files" | xargs awk 'length($0) > 88 {
        print FILENAME ":" FNR ": " length($0) " columns" }'
    grep '^cuda/' "$W/files" | grep -v '^cuda/tile/' >"$W/kernels"
    xargs sh -c 'grep -nE "(^|[^a-z_])asm *(volatile)? *\(" "$@" /dev/null' x \
        <"$W/kernels" | sed 's/$/  (asm stands in cuda\/tile alone)/'
    grep -E '^(cuda|tests)/' "$W/files" >"$W/named"
    code $(cat "$W/named") >"$W/code"
    # Words that would name dozens of things, as the bare name of a function or a struct;
    # fields and arguments of the public face keep theirs.
    grep -E ":[0-9]+: *((static|inline|void|int|size_t|const|template.*>|__device__|__forceinline__|struct [a-z_]+) +)+[*]?(run|back|work|fetch|walk|part|span|room)\(|struct (run|back|work|fetch|walk|part|span|room) *\{" "$W/code" |
        grep -vE "static int run\(void \*args\)|static size_t work\(const void \*args\)" | sed 's/$/  (a bare word for one of many)/' | cut -c1-120
    code $(cat "$W/files") | awk -f tests/cli/statements.awk | cut -c1-160
    # What a comment implements is named as the book names it: eq:fold, sec:plan-idea.
    grep -nE '(^|[^a-z])spec [0-9]' $(cat "$W/files") /dev/null |
        sed 's/$/  (the book has names for equations and sections)/' | cut -c1-160
    grep -noE '(^|[ (])(eq|sec):[A-Za-z][A-Za-z0-9-]*' $(cat "$W/files") /dev/null |
        sed 's/:[ (]*\(eq:\|sec:\)/ \1/' | while read -r at label; do
        grep -q -- "#$label[ }]" book/[0-9]*.md || echo "$at: the book has no $label"
    done
    # A mistake for jitter.sh is a line of a kernel, which may have changed.
    sh tests/cli/jitter.sh build lines
    # words.tsv: a word, what it is now, files where it has another legitimate meaning.
    grep -v '^#' tests/cli/words.tsv | while IFS="$(printf '\t')" read -r was is but; do
        grep -E "(^|[^A-Za-z0-9_])($was)([^A-Za-z0-9_]|\$)" "$W/code" |
            grep -vE "^(${but:-nowhere})" | sed "s/\$/  ($was is $is)/" | cut -c1-120
    done
}

look >"$W/found"
if [ -s "$W/found" ]; then
    cat "$W/found"
    echo "house.sh: $(wc -l <"$W/found") lines are not as the house should be"
    exit 1
fi

# What it should see, it is shown: a line each at the end of a file, many at once, so that
# one look is for all that say different things.
plants=0
plant() {                                               # FILE LINE WORDS
    plants=$((plants + 1))
    [ -e "$W/kept/$1" ] || { mkdir -p "$W/kept/${1%/*}" && cp "$1" "$W/kept/$1"; }
    printf '%s\n' "$2" >>"$1"
    printf '%s\t%s\n' "$3" "$2 in $1" >>"$W/planted"
}
seen() {
    look >"$W/found"
    while IFS="$(printf '\t')" read -r words what; do
        grep -q "$words" "$W/found" || { echo "house.sh: did not see: $what"; echo >"$W/unseen"; }
    done <"$W/planted"
    [ "$(cut -f1 "$W/planted" | sort | uniq -d | wc -l)" = 0 ] ||
        { echo "house.sh: two plants of one look say the same"; echo >"$W/unseen"; }
    (cd "$W/kept" && find . -type f) | while read -r f; do cp "$W/kept/$f" "$f"; done
    rm -rf "$W/kept" "$W/planted"
}
(
    mkdir -p "$W/tree" && tar -cf - $(cat "$W/files") tests/cli book/[0-9]*.md \
        CONTRIBUTING.md tests/scores.sh tests/*.tsv bench/results/*.tsv | tar -xf - -C "$W/tree"
) 2>/dev/null
cd "$W/tree" || exit 2
plant ref/01_step.c '#include "comm/bootstrap.h"' 'ref/01_step.c: includes comm'
plant comm/halo.c '#include "cuda/tile/device.cuh"' 'comm/halo.c: includes cuda'
plant cuda/tile/mma.cuh '#include "cuda/host/mapops.cuh"' 'mma.cuh: tile includes cuda/host'
plant cuda/04_chunk/v1_column.cu '#include "cuda/07_merge/v2_group_maps.cuh"' \
    'v1_column.cu: includes cuda/07'
plant cuda/04_chunk/v1_column.cu 'void f(void) { asm volatile("nop;"); }' 'asm stands'
plant cuda/04_chunk/v1_column.cu 'void f(void) { bulk_copy(); }' '(bulk_copy|bulk'
plant tests/judge/check.c 'static int walk(int x) { return x; }' 'int walk.*a bare word'
plant tests/judge/check.c 'struct part { int x; };' 'struct part.*a bare word'
plant ref/01_step.c '/* spec 7. The fold. */' 'the book has names'
plant ref/01_step.c '/* eq:no-such. */' 'the book has no eq:no-such'
plant ref/01_step.c "$(printf '/* %089d */' 0)" 'columns'
plant ref/01_step.c 'int f(int x) { return x > 1 ? 2 : x ? 1 : 0; }' '01_step.c.*a ternary in a'
plant book/figures/plot.h 'int f(int x) { return x > 1 ? g(x ? 1 : 2) : 0; }' \
    'plot.h.*a ternary in a'
plant comm/halo.c 'void f(int *x) { if (x) x[0] = 1, x[1] = 2; }' 'halo.c.*a comma in place of'
plant bench/run/ranks.c 'int f(int *x) { return *x = 1, 2; }' 'a comma in a return'
plant tests/judge/check.c 'int f(int *x) { return x[1] = 1; }' 'an assignment that is'
plant tests/judge/check.c '#define F(x) do { x = 1, x++; } while (0)' \
    'check.c.*a comma in place of'
if [ -s "$W/history" ]; then
    tab=$(printf '\t')
    plant tests/seeds.tsv "abcdef0${tab}1" 'seeds.tsv: not in the history: abcdef0'
    plant tests/mutants.tsv "$(head -1 "$W/history" | cut -c1-6)${tab}tests/x.c" \
        'mutants.tsv: not in the history: '
fi
plant tests/mutants.tsv \
    "$(printf 'c57c18f\tref/01_step.c\t9\t9\t + \t - \t90217\tSURVIVED\t')" \
    'not the scores of tests/mutants.tsv'
seen
# Of includes one alone: what it drags along would show another.
plant cuda/tile/mma.cuh '#include "cuda/18_hopper/chunk_factors.cuh"' 'rebuilds [0-9]* obj'
seen
plant cuda/18_hopper/backward/finish_gate.cuh '#include "states.cuh"' 'a kernel of 5 files'
plant cuda/host/workspace.cuh '#include "ref/base/npy.h"' 'npy.h: rebuilds'
grep -v 'griddepcontrol_wait();' cuda/18_hopper/maps/maps_sm90.cu >"$W/without"
cp "$W/without" cuda/18_hopper/maps/maps_sm90.cu
plant ref/01_step.c '' 'jitter.sh: walk_wait: '
seen
[ ! -e "$W/unseen" ] || exit 1
[ -s "$W/history" ] && dated="records name commits of the history" ||
    dated="commits of records were not asked for (no history here)"
echo "house.sh: includes go one way, headers rebuild their own, asm is in tile, words are" \
    "the field's, statements are plain, $dated; $plants plants seen"
