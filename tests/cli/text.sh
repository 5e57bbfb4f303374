#!/bin/sh
# text.sh -- make run from outside: what it refuses, and what it says of three files.
#
# Book: none.  Checked by: make test, which runs it.  Next: bench/text/main.c.
program=$(cd "${1:-build}" && pwd)/kcp-text || exit 1
unset WORLD_SIZE RANK SLURM_NTASKS OMPI_COMM_WORLD_SIZE
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
# Names without the folder's: blanks in TMPDIR would part one file from another.
self=$(cd "$(dirname "$0")" && pwd)/text.sh
cd "$dir" || exit 1
failed=0
wrong() { echo "text.sh: $*"; failed=1; }

# Bad input: status 2, one line on stderr, nothing else anywhere.
refuses() {
    want=$1; shift
    "$program" --out bad.html "$@" >out 2>err
    status=$?
    [ $status = 2 ] || wrong "$* exits with $status, not 2"
    [ "$(wc -l <err)" = 1 ] || wrong "$* says $(wc -l <err) lines"
    grep -q -- "$want" err || wrong "$* says: $(cat err)"
    [ -s out ] && wrong "$* prints on stdout"
    [ -e bad.html ] && wrong "$* leaves a page"
}
: >empty
"$program" --version | grep -qx 'kcp-text [0-9]*\.[0-9]*\.[0-9]*' || wrong "no --version"
"$program" -h | grep -q '^usage: kcp-text' || wrong "no -h"
refuses '--ranks: .*0' --ranks 0
refuses '--ranks: .*abc' --ranks abc
refuses '--ranks: .*4x' --ranks 4x
refuses '--ranks: .*99999999999999999999' --ranks 99999999999999999999
refuses '--steps: .*-1' --steps -1
refuses '--steps: .*1.5' --steps 1.5
refuses 'missing.*No such file' --text missing
refuses 'it is empty' --text empty
refuses 'it is a directory' --text "$dir"
mkfifo silent
(refuses 'it is a special file' --text silent; exit $failed) & p=$!
(sleep 10; : >silent) 2>/dev/null & q=$!       # who waits is let go, and fails
wait $p || failed=1
kill $q 2>/dev/null
refuses "option: found '--rank'" --rank 4
refuses "--steps: found ''" --steps
refuses 'nowhere' --text "$self" --out nowhere/page.html
long=$(printf '%600s' '' | tr ' ' x)
refuses 'File name too long' --text "$self" --out "$long"
mkdir page
refuses 'page: Is a directory' --text "$self" --out page
# What is no file is not replaced by one; a pipe here, because a test may run as root.
mkfifo pipe
refuses 'pipe: File exists' --text "$self" --out pipe
[ -p pipe ] || wrong "a page took the place of a pipe"
RANK=0 WORLD_SIZE=2; export RANK WORLD_SIZE
refuses 'torchrun started 2 processes' --text "$self"
unset RANK WORLD_SIZE
if [ -c /dev/full ]; then
    "$program" --text "$self" --out page.html >/dev/full 2>err
    [ $? = 2 ] && grep -q '^kcp-text: cannot write to stdout' err ||
        wrong "a full disk is not said: $(cat err)"
fi
# A page that finds no room is no page, and the old one stays.
echo old >page.html
(trap '' XFSZ; ulimit -f 2
    "$program" --text "$self" --out page.html 2>&1 >/dev/null) |
    grep -q 'cannot write the page' || wrong "a lack of room is not said"
[ "$(cat page.html)" = old ] && [ ! -e page.html.part ] ||
    wrong "a page without room: $(ls -l "$dir")"
# A name with spaces is a name; away from the tree nothing is left there but the page.
head -c 300 "$self" >"with spaces"
(cd page && "$program" --text "../with spaces" --out one.html) >out 2>err ||
    wrong "with spaces: $(cat err)"
[ "$(ls page)" = one.html ] || wrong "it leaves $(ls page)"

# Three files, five ranks of which some hold a few bytes only, three steps of training.
head -c 300 "$self" >one
printf 'ab' >two
head -c 90 "$self" >three
for ranks in 1 5; do
    "$program" --ranks $ranks --steps 3 --out page.html \
        --text "one two three" >out 2>err ||
        wrong "$ranks ranks: status $?, $(cat err)"
    grep -q '^PASS: forward and backward over '$ranks out || wrong "no PASS line"
    [ -s err ] && wrong "$ranks ranks: stderr says $(cat err)"
    awk '/at most/ { if ($6 + 0 <= 1e-11) ok = 1 } END { exit !ok }' out ||
        wrong "$ranks ranks: the curves part: $(grep 'at most' out)"
    grep -qE 'https?:|src=|<link' page.html && wrong "the page wants a network"
    grep -q '</html>' page.html || wrong "the page does not end"
done
[ $failed = 0 ] && echo "text.sh: 17 refusals and 3 runs as they should be"
exit $failed
