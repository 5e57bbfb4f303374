#!/bin/sh
# examples.sh -- the examples say the same on any number of ranks, or refuse.
#
# Book: chapters 08 and 13.  Checked by: make test, which runs it.
# Next: ../book/examples/kda.c.
B=${1:-build}
failed=0
unset RANK WORLD_SIZE
for name in kda gdn; do
    one=$("$B/$name" 1) || { echo "examples.sh: $name 1: status $?"; failed=1; }
    for ranks in 2 3 5; do
        many=$("$B/$name" $ranks) || { echo "examples.sh: $name: status $?"; failed=1; }
        [ -n "$one" ] && [ "$one" = "$many" ] ||
            { echo "examples.sh: $name $ranks: $many, not $one"; failed=1; }
    done
    "$B/$name" 0 2>/dev/null && { echo "examples.sh: $name takes 0 ranks"; failed=1; }
done
[ $failed = 0 ] && echo "examples.sh: KDA and GDN say the same on 1, 2, 3 and 5 ranks"
exit $failed
