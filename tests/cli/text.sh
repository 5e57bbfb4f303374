#!/bin/sh
# text.sh -- tests kcp-text (make run): its input, and training over ranks.
#
# Usage: text.sh BUILD.
program=$(cd "${1:-build}" && pwd)/kcp-text || exit 2
self=$(cd "$(dirname "$0")" && pwd)/text.sh
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
cd "$W" || exit 2
unset WORLD_SIZE RANK SLURM_NTASKS OMPI_COMM_WORLD_SIZE
failed=0
wrong() { echo "text.sh: $*"; failed=1; }

# With a file name that contains spaces, no file may be written.
head -c 300 "$self" >"with spaces"
mkdir folder
(cd folder && "$program" --text "../with spaces") >out 2>err ||
    wrong "a name with spaces: $(cat err)"
[ -z "$(ls folder)" ] || wrong "it makes $(ls folder)"

# Trains three steps on three files (one has two bytes), on one rank and on five ranks.
head -c 300 "$self" >one
printf 'ab' >two
head -c 90 "$self" >three
for ranks in 1 5; do
    "$program" --ranks $ranks --steps 3 --text "one two three" >out 2>err ||
        wrong "$ranks ranks: status $?, $(cat err)"
    grep -q '^PASS: forward and backward over '$ranks out || wrong "$ranks ranks: no PASS"
    [ -s err ] && wrong "$ranks ranks: stderr has $(cat err)"
    awk '/at most/ { if ($NF + 0 <= 1e-11) ok = 1 } END { exit !ok }' out ||
        wrong "$ranks ranks: losses differ: $(grep 'at most' out)"
done
[ $failed = 0 ] && echo "text.sh: the runs on 1 and 5 ranks are correct"
exit $failed
