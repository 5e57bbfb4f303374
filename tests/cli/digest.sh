#!/bin/sh
# digest.sh -- a comment, a new name and another order change no digest; a number does.
#
# Book: chapter 18.  Checked by: make test, which runs it.  Next: ../../bench/digest.sh.
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
failed=0
wrong() { echo "digest.sh: $*"; failed=1; }
same() { [ "$1" = "$2" ] || wrong "$3: $1, $2"; }
other() { [ "$1" != "$2" ] || wrong "$3: both are $1"; }

# Rows of paths: comments, blanks and how a text is cut do not count, a number does.
sh bench/digest.sh --all >"$W/all"
text() {
    printf '%b' "$1" >"$W/t.def"
    ${CC:-cc} -x c -E -P "$W/t.def" >"$W/t.c"
    build/kcp-digest --paths "$W/t.c" | cut -f 4
}
base=$(text 'KCP_PATH("one", "08", sm, "K > 1 (" "T > 2", "columns=64")\n')
echo "$base" | grep -qx '[0-9a-f]\{16\}' || wrong "a path has no digest but '$base'"
same "$base" "$(text '/* a comment */\n#define BIG "K > 1 ("
KCP_PATH("one",  "08",\n   sm, BIG "T > 2", "columns=64")\n')" "a comment, a macro"
other "$base" "$(text 'KCP_PATH("one", "08", sm, "K > 1 (T > 2", "columns=32")\n')" 32
other "$base" "$(text 'KCP_PATH("one", "08", sm, "K > 1 (T > 3", "columns=64")\n')" 'T 3'

# What is no build, or no object, is named.
refuses() {
    want=$1; shift
    "$@" >"$W/out" 2>"$W/err"
    [ $? = 2 ] || wrong "$* does not exit with 2"
    [ "$(wc -l <"$W/err")" = 1 ] && grep -q "$want" "$W/err" || wrong "$(cat "$W/err")"
}
refuses "$W: found no objects" sh bench/digest.sh --compare "$W" "$W"
refuses "t.c: found no object, expected" build/kcp-digest "$W/t.c"
refuses "nothing.o: found none" build/kcp-digest "$W/nothing.o"
refuses "found no object, expected options" build/kcp-digest
refuses "found --colour" build/kcp-digest --colour
[ "$(sh bench/digest.sh 04_chunk v2_warp "$W")" = - ] || wrong "no build has a digest"

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
if [ "$CUDA_HOME" = none ] || [ -z "$nvcc" ]; then
    [ $failed = 0 ] && echo "digest.sh: no nvcc: digests of paths alone were tried"
    exit $failed
fi
# One variant with a kernel of its own, and the object of a function that it calls.
cat >"$W/own.cu" <<'END'
#include "ref/kcp.h"
__global__ void scale(float *x, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 3.f;
}
__global__ void shift(float *x) { x[threadIdx.x] += 1.f; }
int helper(void *args);
static int run(void *args)
{
    scale<<<1, 32>>>((float *)args, 32);
    shift<<<1, 32>>>((float *)args);
    return helper(args);
}
KCP_VARIANT(test_v1_own) = {
    "04_chunk", "v1_own", "", KCP_F32, KCP_DEVICE, "", run, NULL };
END
cat >"$W/helper.cu" <<'END'
__global__ void helps(float *x) { x[threadIdx.x] = 5.f; }
int helper(void *args) { helps<<<1, 32>>>((float *)args); return 0; }
END
for b in A B C E; do mkdir -p $W/$b/cuda/04_chunk; cp $W/*.cu $W/$b/cuda/04_chunk; done
# B: names, comments, another order. C: a number in what is called. E: nothing is
# called.
awk '/^__global__ void scale/ { held = 1 }
     /^int helper/ { print "// a comment\n/* and another */" }
     held { kept = kept $0 "\n" }
     !held { print }
     /^__global__ void shift/ { printf "%s", kept }
     /^}/ { held = 0 }' "$W/own.cu" |
    sed 's/scale/multiply/; s/shift/add/; s/\<i\>/index/g' \
    >"$W/B/cuda/04_chunk/own.cu"
sed -i 's/5\.f/7.f/' "$W/C/cuda/04_chunk/helper.cu"
sed -i 's/return helper(args)/return 0/' "$W/E/cuda/04_chunk/own.cu"
compile() {
    "$nvcc" -std=c++17 -O3 -lineinfo -I. -Iref -gencode arch=compute_90a,code=sm_90a \
        -c "$1" -o "$1.o" 2>"$1.log"
}
for b in A/cuda/04_chunk/own A/cuda/04_chunk/helper B/cuda/04_chunk/own \
        C/cuda/04_chunk/helper E/cuda/04_chunk/own; do compile "$W/$b.cu" & done
wait
for b in A/cuda/04_chunk/own A/cuda/04_chunk/helper B/cuda/04_chunk/own \
        C/cuda/04_chunk/helper E/cuda/04_chunk/own; do
    [ -s "$W/$b.cu.o" ] || wrong "nvcc: $(cat "$W/$b.cu.log")"
done
cp "$W/A/cuda/04_chunk/helper.cu.o" "$W/B/cuda/04_chunk"
cp "$W/A/cuda/04_chunk/own.cu.o" "$W/C/cuda/04_chunk"
of() { sh bench/digest.sh 04_chunk v1_own "$W/$1"; }
echo "$(of A)" | grep -qx '[0-9a-f]\{16\}' || wrong "no digest but '$(of A)'"
same "$(of A)" "$(of B)" "names, comments and order"
other "$(of A)" "$(of C)" "a number in what is called"
sh bench/digest.sh --all "$W/A" | grep -q '^04_chunk.v1_own.[0-9]*\.[0-9.]*.[0-9a-f]*' ||
    wrong "no nvcc in $(sh bench/digest.sh --all "$W/A")"
sh bench/digest.sh --compare "$W/A" "$W/B" >"$W/out" ||
    wrong "B is not A: $(cat "$W/out")"
sh bench/digest.sh --compare "$W/A" "$W/C" >"$W/out" && wrong "C is A: $(cat "$W/out")"
sh bench/digest.sh --added "$W/A" "$W/B" >"$W/out" || wrong "$(cat "$W/out")"
sh bench/digest.sh --added "$W/A" "$W/C" >"$W/out" && wrong "C adds nothing"
sh bench/digest.sh --compare "$W/A" "$W/E" >"$W/fewer" || wrong "$(cat "$W/fewer")"
grep -q '^04_chunk.v1_own.*fewer$' "$W/fewer" ||
    wrong "E is not fewer: $(cat "$W/fewer")"
sh bench/digest.sh --compare "$W/E" "$W/A" >"$W/fewer" && wrong "more is not other"
{ printf 'nvcc\tdigest\tfunctions\n'
  sh bench/digest.sh --sets "$W/A" | awk -F '\t' 'NR > 1 { print $3 "\t" $4 "\t" $5 }'
} >"$W/functions"
# What records keep knows the rows of paths too: a sanitizer's row of one names its line.
for kind in --sets --all; do
    [ "$(sh bench/digest.sh $kind "$W/A" | grep -c '^path.*[0-9a-f]\{16\}')" -gt 50 ] ||
        wrong "$kind has no digests of paths"
done
FUNCTIONS=$W/functions sh bench/digest.sh --all "$W/E" | grep -q "$(of A)\$" ||
    wrong "what can launch less is not as it was recorded"
FUNCTIONS=$W/functions sh bench/digest.sh --all "$W/C" | grep -q "$(of A)" &&
    wrong "what launches another is as it was recorded"
mv "$W/A/cuda/04_chunk/helper.cu.o" "$W/kept.o"
[ "$(of A)" = - ] || wrong "what is called is not built, and there is a digest"
mv "$W/kept.o" "$W/A/cuda/04_chunk/helper.cu.o"
grep -q '^digest.sh: 3 functions: 1 not there before$' "$W/out" ||
    wrong "$(cat "$W/out")"
[ $failed = 0 ] && echo "digest.sh: names and comments change no digest, numbers do"
exit $failed
