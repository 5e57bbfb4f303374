#!/bin/sh
# proxy.sh -- no kernel lacks a proxy fence between writes of threads and an engine.
#
# Book: chapter 18.  Checked by: PLANT=1, which removes each fence and must see it missing.
# Next: ../proxy/main.c.
# Usage: proxy.sh BUILD, after make has compiled the PTX of the kernels for sm_90a. What
# kcp-proxy prints must be the lines of tests/proxy/threads_alone.tsv, each of which says
# why no engine reads or overwrites those bytes: a new line fails, and so does a line that
# no kernel has. PRINT=1: print the lines. Without PTX (no nvcc): a message, status 0.
B=${1:-build}
list=tests/proxy/threads_alone.tsv
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
export LC_ALL=C
# An old build may have the PTX of a kernel whose source is gone.
ptx=$(find "$B/ptx" -name '*.ptx' 2>/dev/null | sort | while read -r p; do
    from=${p#"$B/ptx/"}
    [ ! -f "${from%.ptx}.cu" ] || echo "$p"
done)
[ -n "$ptx" ] || { echo "proxy.sh: no PTX in $B (no nvcc): nothing was read"; exit 0; }

# Places are identified by the text of their lines, because line numbers change.
places() {                                  # TREE PTX...: file text file text
    tree=$1; shift
    for p; do "$B/kcp-proxy" "$p" || exit 1; done | cut -f2,3 | sort -u |
        awk -F '\t' -v tree="$tree" '
            function text(at,   file, n, i, line) {
                file = at; sub(/:[0-9]*$/, "", file)
                n = at; sub(/.*:/, "", n); n += 0
                for (i = 1; i <= n; i++)
                    if ((getline line < (tree "/" file)) <= 0) break
                close(tree "/" file)
                gsub(/^[ \t]+|[ \t]+$/, "", line)
                if (!n) { file = "a load"; line = "of the copy engine" }
                return file "\t" line
            }
            { print text($1) "\t" text($2) }' | sort -u
}
grep -v '^#' $list | cut -f1-4 | sort -u >"$W/known"
# shellcheck disable=SC2086
places . $ptx >"$W/found" || exit 1
[ -z "$PRINT" ] || { cat "$W/found"; exit 0; }
comm -13 "$W/known" "$W/found" >"$W/new"
comm -23 "$W/known" "$W/found" >"$W/gone"
sed 's/^/proxy.sh: visible without fence.proxy.async: /' "$W/new"
sed "s|^|proxy.sh: $list: no kernel has: |" "$W/gone"
[ ! -s "$W/new" ] && [ ! -s "$W/gone" ] || exit 1
n=$(echo "$ptx" | wc -l)
[ -n "$PLANT" ] || {
    echo "proxy.sh: $n objects: $(wc -l <"$W/found") places, all of them known"
    exit 0
}

# Each fence removed in a copy of the tree must give a new place.
mkdir -p "$W/tree"
tar cf - Makefile ref cuda bench/*.mk book/*.mk book/labs/*.mk tests/*.mk |
    tar xf - -C "$W/tree" || exit 2
seen=0 missed=0
for at in $(grep -rn '^ *fence_proxy_async();' cuda/*/*.cu* cuda/*/*/*.cu* |
            grep -v '^cuda/tile' | cut -d: -f1,2); do
    file=${at%:*} line=${at#*:}
    object=$(grep -l "$file" $(find "$B/ptx" -name '*.d') | head -1)
    object=${object#"$B/ptx/"} object=${object%.d}
    case $file in *.cu) object=${file%.cu} ;; esac
    sed "${line}s/fence_proxy_async();/;/" "$file" >"$W/tree/$file"
    if make -s -C "$W/tree" B=build "build/ptx/$object.ptx" >"$W/log" 2>&1 &&
        places "$W/tree" "$W/tree/build/ptx/$object.ptx" >"$W/now" &&
        [ -n "$(comm -13 "$W/known" "$W/now")" ]; then seen=$((seen + 1))
    else
        missed=$((missed + 1))
        echo "proxy.sh: without the fence of $at nothing is seen ($object)"
        tail -2 "$W/log"
    fi
    cp "$file" "$W/tree/$file"
done
echo "proxy.sh: $seen fences taken away and seen, $missed not"
[ $missed = 0 ] && [ $seen -gt 0 ]
