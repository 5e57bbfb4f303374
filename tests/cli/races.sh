#!/bin/sh
# races.sh -- ranks as threads and as processes, a minute of them: for a build under the
# thread sanitizer, whose status 66 is a race.
#
# Book: chapter 20.  Checked by: a race that is planted.
# Usage: races.sh BUILD.  Next: network.sh, all of it in .ci/nightly.
B=${1:-build}
program=$B/kcp-check stranger=$B/kcp-stranger
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK KCP_RENDEZVOUS KCP_SECRET \
    KCP_TRUST_NETWORK KCP_JOB TORCHELASTIC_RUN_ID
export KCP_KEY_DIR="$dir/keys" KCP_TIMEOUT_S=60 TSAN_OPTIONS="exitcode=66 $TSAN_OPTIONS"
failed=0
wrong() { echo "races.sh: $*"; failed=1; }

# The sanitizer must see the race that is there, before its silence counts.
"$stranger" race >"$dir/race" 2>&1
[ $? = 66 ] || { echo "races.sh: no thread sanitizer in $B, or it sees no race"; exit 1; }

# job NAME R STATUS words...: R processes meet through a file and end with STATUS; - in
# its place: rank 1 is killed in the middle, the others name it, status 1.
job() {
    name=$1 R=$2 want=$3 r=0 ids=""; shift 3
    while [ $r -lt "$R" ]; do
        WORLD_SIZE=$R RANK=$r LOCAL_WORLD_SIZE=$R KCP_RENDEZVOUS="file:$dir/meet" \
            "$@" >"$dir/$name.$r" 2>&1 & ids="$ids $!"; r=$((r + 1))
    done
    killed=-
    if [ "$want" = - ]; then
        i=0
        until grep -q 'exchange trials' "$dir/$name.0" || [ $i = 300 ]; do
            sleep 0.1; i=$((i + 1)); done
        sleep 2
        killed=$(echo $ids | cut -d' ' -f2)
        kill -KILL "$killed"
    fi
    r=0
    for id in $ids; do
        wait "$id"; status=$?
        if [ "$id" != "$killed" ] && [ $status != "${want#-}" ] &&
            { [ "$want" != - ] || [ $status != 1 ]; }
        then wrong "$name, rank $r: status $status: $(head -40 "$dir/$name.$r")"; fi
        r=$((r + 1))
    done
}
# Threads: every exchange form, halos, options compared, a rank that fails.
for words in '--exchange 2 --ranks 4' '--here --stage 14 --variant ref --ranks 3 --quick' \
    '--here --stage 08 --variant agree' '--here --stage 00 --variant calls'; do
    # shellcheck disable=SC2086
    "$program" --quiet $words >"$dir/threads" 2>&1 ||
        wrong "$words: $(head -40 "$dir/threads")"
done
# Processes: the meeting, messages, those that wait for a caller, a lost rank.
job exchange 3 0 "$program" --exchange 6
job large 3 0 "$stranger" large
job frame 2 1 "$stranger" frame wraps
job lost 3 - "$program" --exchange 0
[ $failed = 0 ] && echo "races.sh: no race in threads, meeting, messages, a lost rank"
exit $failed
