#!/bin/sh
# network.sh -- what a start and a run stand: strangers, other jobs, files in the way.
#
# Book: chapter 20.  Checked by: make test, which runs it.  Next: stranger.c.
# Everything happens on loopback addresses of this machine. A limit in seconds lies between
# what is promised and what happens without: a slow machine has the room between.
program=${1:-build}/kcp-check stranger=${1:-build}/kcp-stranger
dir=$(mktemp -d) || exit 1
others=""
trap 'kill -KILL $others 2>/dev/null; rm -rf "$dir" "$preload"' EXIT
trap 'exit 1' INT TERM
failed=0
wrong() { echo "network.sh: $*"; failed=1; }
now() { date +%s; }
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE \
    KCP_RENDEZVOUS KCP_TIMEOUT_S KCP_SECRET KCP_TRUST_NETWORK KCP_JOB \
    TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE
export KCP_KEY_DIR="$dir/keys"
. "$(dirname "$0")/free_port.sh"
port=$(free_ports 64)
next_port() { port=$((port + 1)); }
# What is preloaded: LD_PRELOAD parts its names at blanks, which TMPDIR may have.
preload=$dir
case $dir in *[\ :]*) preload=$(mktemp -d /tmp/kcp.XXXXXX) || exit 1 ;; esac
build_preload() {
    ${CC:-cc} -shared -fPIC -o "$preload/$1.so" tests/cli/$1.c -ldl || failed=1
}

# job NAME R words...: R processes by hand, in the background; ids in $ids. What the
# caller sets of KCP_* and MASTER_PORT holds for all. They are told apart by what they
# are started with.
job() {
    name=$1 n=$2; shift 2; ids=""; r=0
    while [ $r -lt $n ]; do
        WORLD_SIZE=$n RANK=$r LOCAL_WORLD_SIZE=$n KCP_TIMEOUT_S=${KCP_TIMEOUT_S:-30} \
            "$@" >"$dir/$name.$r" 2>&1 &
        ids="$ids $!"; r=$((r + 1))
    done
    others="$others $ids"
}
# ends NAME STATUS: the job of $ids, all with this status.
ends() {
    for id in $ids; do
        wait $id; status=$?
        [ $status = $2 ] || wrong "$1: a rank ends with $status, not $2:" \
            "$(cat "$dir/$1".*)"
    done
}
# listens_at PID: the sockets at which it listens, as the kernel tells them.
listens_at() {
    for inode in $(ls -l /proc/$1/fd | sed -n 's/.*socket:\[\([0-9]*\)\].*/\1/p'); do
        awk -v i=$inode '$10 == i && $4 == "0A" { print $2 }' /proc/net/tcp /proc/net/tcp6
    done
}
waits_for() {
    i=0
    until grep -q "$1" "$2" 2>/dev/null || [ $i = 1200 ]; do
        sleep 0.05; i=$((i + 1)); done
}

# ---- torchrun itself: its agent holds MASTER_PORT (static), or rank 0's store will. It
# starts slowly, and ends below.
static="" said="torchrun not found: its variables only"
# Debian's torch 1.13 under Python 3.11 fails on its own default of two options.
some="--redirects 9:1 --tee 9:1 --nproc_per_node 2"
if command -v torchrun >/dev/null 2>&1; then
    said="torchrun, static and c10d"
    next_port
    timeout 300 torchrun $some --master_addr 127.0.0.1 --master_port $port --no_python \
        "$program" --exchange 5 >"$dir/static" 2>&1 & static=$!
    next_port
    timeout 300 torchrun $some --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:$port \
        --no_python "$program" --exchange 6 >"$dir/dynamic" 2>&1 & dynamic=$!
    others="$others $static $dynamic"
fi

# ---- a key of a job of Slurm's: the batch script draws one, another each time
draw() { (eval "$(sed -n '/KCP_SECRET=/,/export KCP_SECRET/p' book/labs/lab.sbatch)"
    sh -c 'echo "$KCP_SECRET"'); }
draw >"$dir/secret"; draw >"$dir/another"
grep -qx '[0-9a-f]\{64\}' "$dir/secret" && ! cmp -s "$dir/secret" "$dir/another" ||
    wrong "lab.sbatch exports no fresh KCP_SECRET: $(cat "$dir/secret" "$dir/another")"

# ---- strangers
# Silent callers and garbage, all before the ranks come and while they do.
next_port; export MASTER_PORT=$port
"$stranger" silent $port 12 300 >"$dir/silent" & strangers=$!
"$stranger" garbage $port 50 300 >"$dir/garbage" & strangers="$strangers $!"
others="$others $strangers"
began=$(now)
WORLD_SIZE=2 RANK=0 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=120 "$program" --exchange 5 \
    >"$dir/door.0" 2>&1 & first=$!
waits_for '^12 called' "$dir/silent"; waits_for '^50 called' "$dir/garbage"
WORLD_SIZE=2 RANK=1 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=120 "$program" --exchange 5 \
    >"$dir/door.1" 2>&1 & ids="$first $!"
ends door 0
[ $(($(now) - began)) -le 90 ] || wrong "strangers held the start up"
kill $strangers

# Callers who come and go without end, and more silent ones than are kept: a start is not
# held up, and one that lacks a rank ends at its deadline.
next_port; MASTER_PORT=$port
"$stranger" flood $port 3 300 >"$dir/flood" & strangers=$!
"$stranger" silent $port 300 300 >"$dir/many" & strangers="$strangers $!"
others="$others $strangers"
began=$(now)
WORLD_SIZE=2 RANK=0 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=120 "$program" --exchange 5 \
    >"$dir/flooded.0" 2>&1 & first=$!
waits_for '^called' "$dir/flood"; waits_for '^300 called' "$dir/many"
WORLD_SIZE=2 RANK=1 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=120 "$program" --exchange 5 \
    >"$dir/flooded.1" 2>&1 & ids="$first $!"
ends flooded 0
[ $(($(now) - began)) -le 90 ] || wrong "a flood of callers held the start up"
kill $strangers
next_port; MASTER_PORT=$port
"$stranger" flood $port 3 300 >"$dir/flood" & strangers=$!
others="$others $strangers"
began=$(now)
WORLD_SIZE=2 RANK=0 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=2 "$program" --exchange 5 \
    >"$dir/alone" 2>&1
[ $? = 1 ] && grep -q 'rank 1 did not come in time' "$dir/alone" ||
    wrong "a flood, and no rank: $(cat "$dir/alone")"
[ $(($(now) - began)) -le 30 ] || wrong "a flood of callers moved the deadline"
# The same where there is always one more, which no flood of this machine's is: one real
# caller makes the listener look.
build_preload no_end
WORLD_SIZE=2 RANK=0 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=2 LD_PRELOAD="$preload/no_end.so" \
    timeout -s KILL 60 "$program" --exchange 5 >"$dir/endless" 2>&1
[ $? = 1 ] && grep -q 'rank 1 did not come in time' "$dir/endless" ||
    wrong "callers without end: $(cat "$dir/endless")"
kill $strangers

# One who knows everything but the key comes first, as rank 1 and as rank 0.
next_port; MASTER_PORT=$port
KCP_SECRET=another-secret-000 WORLD_SIZE=2 RANK=1 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=6 \
    "$program" --exchange 5 >"$dir/seat" 2>&1 & thief=$!
sleep 0.3
job seat 2 env KCP_SECRET=the-secret-of-this-job "$program" --exchange 5
ends seat 0
wait $thief && wrong "a rank without the key is content: $(cat "$dir/seat")"
KCP_SECRET=another-secret-000 WORLD_SIZE=2 RANK=0 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=60 \
    "$program" --exchange 5 >"$dir/false.0" 2>&1 & thief=$!
others="$others $thief"
i=0; until [ -n "$(listens_at $thief)" ] || [ $i = 1200 ]; do sleep 0.05; i=$((i + 1)); done
WORLD_SIZE=2 RANK=1 LOCAL_WORLD_SIZE=2 KCP_SECRET=the-secret-of-this-job \
    KCP_TIMEOUT_S=4 "$program" --exchange 5 >"$dir/false.1" 2>&1 &&
    wrong "rank 1 takes a stranger for rank 0"
grep -q "not found at .*did not prove to be of this job" "$dir/false.1" ||
    wrong "rank 1 says $(cat "$dir/false.1")"
kill $thief; wait $thief 2>/dev/null

# One who takes any word for a proof, and gives zeros as his own.
next_port; MASTER_PORT=$port
"$stranger" claims $port 0 300 >"$dir/claims" & thief=$!
others="$others $thief"
waits_for listening "$dir/claims"
WORLD_SIZE=2 RANK=1 LOCAL_WORLD_SIZE=2 KCP_SECRET=the-secret-of-this-job \
    KCP_TIMEOUT_S=4 "$program" --exchange 5 >"$dir/claimed" 2>&1 &&
    wrong "rank 1 takes one without the key for rank 0"
grep -q "not found at .*did not prove to be of this job" "$dir/claimed" ||
    wrong "a false rank 0: rank 1 says $(cat "$dir/claimed")"
kill $thief

# One who has heard a rank prove itself says the same bytes when the job starts anew.
next_port; MASTER_PORT=$port
"$stranger" replays $port 0 60 >"$dir/replays" & thief=$!
others="$others $thief"
waits_for listening "$dir/replays"
WORLD_SIZE=2 RANK=1 LOCAL_WORLD_SIZE=2 KCP_SECRET=the-secret-of-this-job \
    KCP_TIMEOUT_S=1 "$program" --exchange 5 >"$dir/overheard" 2>&1
waits_for 'heard rank 1 of 2' "$dir/replays"
WORLD_SIZE=2 RANK=0 LOCAL_WORLD_SIZE=2 KCP_SECRET=the-secret-of-this-job \
    KCP_TIMEOUT_S=60 "$program" --exchange 5 >"$dir/anew.0" 2>&1 & first=$!
waits_for 'refused\|welcomed' "$dir/replays"
WORLD_SIZE=2 RANK=1 LOCAL_WORLD_SIZE=2 KCP_SECRET=the-secret-of-this-job \
    KCP_TIMEOUT_S=60 "$program" --exchange 5 >"$dir/anew.1" 2>&1 & ids="$first $!"
ends anew 0
grep -q refused "$dir/replays" || wrong "a proof of another start: $(cat "$dir/replays")"

# Who holds a seat and sends what no rank sends is named; nothing is allocated for it.
for what in wraps terabytes kind words blames; do
    next_port; MASTER_PORT=$port
    job frame 2 "$stranger" frame $what
    ends "frame" 1
    grep -q '^rank 1: it sends' "$dir/frame.0" ||
        wrong "frame $what: rank 0 says $(cat "$dir/frame.0")"
done

# ---- time
# A listener that takes no calls (they hang, as at a host that drops them), and one that
# answers none: the meeting ends at its deadline.
next_port
"$stranger" busy $port 0 300 >"$dir/busy" & others="$others $!"
waits_for listening "$dir/busy"
began=$(now)
MASTER_PORT=$port WORLD_SIZE=2 RANK=1 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=2 \
    KCP_SECRET=0123456789abcdef "$program" --exchange 1 >"$dir/late" 2>&1
[ $? = 1 ] || wrong "a call that hangs: $(cat "$dir/late")"
[ $(($(now) - began)) -le 30 ] || wrong "a call that hangs takes $(($(now) - began)) s"

# A stopped rank with full buffers costs the others one timeout, not four: whoever sends
# to it, or waits for it and cannot tell it that the job has failed. And who sends to it
# hears at once that a third one died.
full() {                        # ranks, how
    next_port; MASTER_PORT=$port
    job "full.$2" $1 env KCP_TIMEOUT_S=10 "$stranger" full $2
}
full_ends() {                   # how, who is named, seconds at most, the job's ids
    name=full.$1 lost=$2 most=$3; shift 3
    wait $1 && wrong "$name: rank 0 is content"
    shift
    kill -KILL "$@" 2>/dev/null; wait "$@" 2>/dev/null
    took=$(sed -n 's/^ended after \(.*\) s$/\1/p' "$dir/$name.0")
    grep -q "^rank $lost: " "$dir/$name.0" || wrong "$name: $(cat "$dir/$name.0")"
    awk "BEGIN { exit !(${took:-99} <= $most) }" ||
        wrong "$name: rank 0 took $took s of a timeout of 10"
}
full 2 sends; sends=$ids; full 2 waits; waits=$ids; full 3 third; third=$ids
full_ends third 2 8 $third; full_ends sends 1 25 $sends; full_ends waits 1 28 $waits

# A rank that is killed while rank 0 still waits for another, and comes again: the new
# one takes its place.
next_port; MASTER_PORT=$port
WORLD_SIZE=3 RANK=0 LOCAL_WORLD_SIZE=3 KCP_TIMEOUT_S=60 "$program" --exchange 5 \
    >"$dir/again.0" 2>&1 & first=$!
WORLD_SIZE=3 RANK=1 LOCAL_WORLD_SIZE=3 KCP_TIMEOUT_S=60 "$program" --exchange 5 \
    >"$dir/again.1" 2>&1 & killed=$!
# It has met rank 0 when it listens for ranks above it: two sockets, not one.
i=0
until [ "$(ls -l /proc/$killed/fd 2>/dev/null | grep -c socket:)" -ge 2 ] ||
    [ $i = 1200 ]; do sleep 0.05; i=$((i + 1)); done
sleep 0.3
kill -KILL $killed; wait $killed 2>/dev/null
ids=$first
for r in 1 2; do
    WORLD_SIZE=3 RANK=$r LOCAL_WORLD_SIZE=3 KCP_TIMEOUT_S=60 "$program" --exchange 5 \
        >"$dir/again.$r" 2>&1 & ids="$ids $!"
    sleep 1
done
ends again 0

# No file descriptor left: said by who lacks them, in the time that there is.
if [ -z "$TSAN_OPTIONS$ASAN_OPTIONS" ]; then
    # Side by side: who lacks one may wait for it until the meeting's deadline.
    few=""
    for n in 4 5 6 7 8 9; do
        next_port; MASTER_PORT=$port
        (ulimit -n $n; export WORLD_SIZE=4 RANK=0 LOCAL_WORLD_SIZE=4 KCP_TIMEOUT_S=8
            exec "$program" --exchange 1) >"$dir/few.$n.0" 2>&1 & few="$few $!"
        for r in 1 2 3; do
            WORLD_SIZE=4 RANK=$r LOCAL_WORLD_SIZE=4 KCP_TIMEOUT_S=8 "$program" \
                --exchange 1 >"$dir/few.$n.$r" 2>&1 & ids="$!"
        done
        others="$others $ids"
    done
    n=4
    for id in $few; do
        wait $id
        case $? in 1|2) ;; *) wrong "$n files: it ends otherwise: $(cat "$dir/few.$n.0")" ;;
        esac
        [ "$(wc -l <"$dir/few.$n.0")" = 1 ] &&
            grep -q 'file descriptors\|more files\|many open files' "$dir/few.$n.0" ||
            wrong "$n files: $(cat "$dir/few.$n.0")"
        n=$((n + 1))
    done
fi

# More than is taken before it is waited for; and no memory, for which nobody else is
# blamed.
next_port; MASTER_PORT=$port
job large 3 "$stranger" large
ends large 0
# (A sanitizer's shadow lies beyond any limit that is set on memory.)
if [ -z "$TSAN_OPTIONS$ASAN_OPTIONS" ]; then
    next_port; MASTER_PORT=$port
    job hungry 2 "$stranger" hungry
    ends hungry 1
    for r in 0 1; do
        grep -q '^rank 0: no memory for a message of 536870912 bytes from rank 1' \
            "$dir/hungry.$r" || wrong "hungry: rank $r says $(cat "$dir/hungry.$r")"
    done
fi
next_port
"$stranger" self $port || wrong "a connection to itself is taken for a rank"

# ---- other jobs
# Two jobs on one port, told apart by their words: each ends with its own answer.
next_port; MASTER_PORT=$port
job one 2 "$program" --exchange 5; first=$ids
job two 2 "$program" --exchange 7
ends two 0; ids=$first; ends one 0
grep -q '^OK: 40 exchanges' "$dir/one.0" && grep -q '^OK: 56 exch' "$dir/two.0" ||
    wrong "two jobs on one port: $(cat "$dir/one.0" "$dir/two.0")"
# The same words: the second one's rank 0 says so, and the first one's ends are right.
next_port; MASTER_PORT=$port
WORLD_SIZE=2 RANK=0 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=60 "$program" --exchange 5 \
    >"$dir/same.0" 2>&1 & first=$!
i=0; until [ -n "$(ls "$dir/keys")" ] || [ $i = 1200 ]; do sleep 0.05; i=$((i + 1)); done
WORLD_SIZE=2 RANK=0 LOCAL_WORLD_SIZE=2 "$program" --exchange 5 >"$dir/again" 2>&1
[ $? = 2 ] && grep -q 'another job of this name is meeting there' "$dir/again" ||
    wrong "two jobs of one name: $(cat "$dir/again")"
WORLD_SIZE=2 RANK=1 LOCAL_WORLD_SIZE=2 "$program" --exchange 5 >"$dir/same.1" 2>&1 ||
    wrong "the first of two jobs of one name: $(cat "$dir/same.1")"
wait $first || wrong "the first of two jobs of one name: $(cat "$dir/same.0")"
# Another service on MASTER_PORT, and torchrun's agent: met at the next port.
next_port; MASTER_PORT=$port
"$stranger" sits $port 0 300 >"$dir/sits" & others="$others $!"
waits_for listening "$dir/sits"
job taken 2 "$program" --exchange 5
ends taken 0

# ---- the rendezvous file
unset MASTER_PORT
X="$dir/meet"
# refused WORDS: rank 0 and rank 1 alone, status 2, and X stays what it is.
refused() {
    for r in 0 1; do
        WORLD_SIZE=2 RANK=$r LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=3 \
            KCP_RENDEZVOUS="file:$X" KCP_SECRET=0123456789abcdef "$program" --exchange 1 >"$dir/out" 2>&1
        [ $? = 2 ] && grep -q "$X is there and was not made by kcp" "$dir/out" ||
            wrong "$1, rank $r: $(cat "$dir/out")"
    done
}
echo 'a text that is dear to me' >"$X"; cp "$X" "$dir/dear"
refused "a text"
cmp -s "$X" "$dir/dear" || wrong "a text as rendezvous file was changed"
rm "$X"; ln -s "$dir/dear" "$X"
refused "a link"
[ -L "$X" ] && grep -q dear "$dir/dear" || wrong "a link as rendezvous file was changed"
rm "$X"; mkfifo "$X"
refused "a FIFO"
[ -p "$X" ] || wrong "a FIFO as rendezvous file is gone"
rm "$X"; mkdir "$X"
refused "a folder"
[ -d "$X" ] || wrong "a folder as rendezvous file is gone"
rmdir "$X"
if mknod "$X" c 1 3 2>/dev/null; then                   # root's, as /dev/null
    refused "a device"
    [ -c "$X" ] || wrong "a device as rendezvous file is gone"
    rm "$X"
fi
ln -s "$dir/dear" "$X.new"
# A dead job's file that names a silent listener is told from a live one's; and what we
# made is gone when we have met.
printf 'kcp meeting 1\n127.0.0.1 %d\nend\n' $port >"$X"
job stale 3 env KCP_RENDEZVOUS="file:$X" "$program" --exchange 5
ends stale 0
[ -e "$X" ] && wrong "the rendezvous file stays"
grep -q dear "$dir/dear" || wrong "X.new was followed"
# Two jobs, one file: the second one is refused, the first one is not disturbed.
KCP_RENDEZVOUS="file:$X" WORLD_SIZE=2 RANK=0 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=60 \
    "$program" --exchange 5 >"$dir/file.0" 2>&1 & first=$!
waits_for end "$X"
KCP_RENDEZVOUS="file:$X" WORLD_SIZE=2 RANK=0 LOCAL_WORLD_SIZE=2 \
    "$program" --exchange 7 >"$dir/other" 2>&1
[ $? = 2 ] && grep -q 'another job of this name is meeting there' "$dir/other" ||
    wrong "two jobs, one file: $(cat "$dir/other")"
KCP_RENDEZVOUS="file:$X" WORLD_SIZE=2 RANK=1 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=2 \
    "$program" --exchange 7 >"$dir/other" 2>&1 &&
    wrong "two jobs, one file: rank 1 of the second joined the first"
listens=$(sed -n 's/^\([0-9.]*\) [0-9]*$/\1/p' "$X")
case $listens in 127.*) ;; *) wrong "file mode says it listens at $listens" ;; esac
at=$(listens_at $first)
case $at in ????????:*) ;; *) wrong "file mode: no socket of rank 0 listens: '$at'" ;; esac
case $at in *[!:]00000000:*|00000000:*) wrong "file mode listens at all addresses" ;; esac
KCP_RENDEZVOUS="file:$X" WORLD_SIZE=2 RANK=1 LOCAL_WORLD_SIZE=2 "$program" \
    --exchange 5 >"$dir/file.1" 2>&1 || wrong "one file: $(cat "$dir/file.1")"
wait $first || wrong "one file: $(cat "$dir/file.0")"

# ---- the key
next_port; export MASTER_PORT=$port
WORLD_SIZE=2 RANK=0 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=60 "$program" --exchange 5 \
    >"$dir/key.0" 2>&1 & ids=$!
i=0
until grep -q end "$dir"/keys/* 2>/dev/null || [ $i = 600 ]; do
    sleep 0.05; i=$((i + 1)); done
[ "$(stat -c %a "$dir/keys")" = 700 ] || wrong "others may look into the key's folder"
[ "$(stat -c %a "$dir"/keys/*)" = 600 ] || wrong "others may read the key"
kill -KILL $ids; wait $ids 2>/dev/null
[ -n "$(ls "$dir/keys")" ] || wrong "no leftover of a killed rank 0 to try"
job leftover 2 "$program" --exchange 5
ends leftover 0
[ -z "$(ls "$dir/keys")" ] || wrong "a key stays: $(ls "$dir/keys")"
# says STATUS WORDS assignments...: rank 1 of 2, alone.
says() {
    want=$1 words=$2; shift 2
    env WORLD_SIZE=2 RANK=1 KCP_TIMEOUT_S=1 "$@" "$program" --exchange 1 \
        >"$dir/out" 2>"$dir/err"
    status=$?
    [ $status = $want ] && [ "$(wc -l <"$dir/err")" = 1 ] &&
        grep -q -- "$words" "$dir/err" || wrong "$*: $status, $(cat "$dir/err")"
}
mkdir -m 755 "$dir/open"
says 2 'KCP_KEY_DIR=.*nobody else can open' KCP_KEY_DIR="$dir/open"
says 2 'KCP_SECRET.*KCP_TRUST_NETWORK=1' KCP_KEY_DIR="$dir/keys"
says 2 'KCP_SECRET.*KCP_TRUST_NETWORK=1' KCP_KEY_DIR= HOME=/proc \
    KCP_RENDEZVOUS="file:$X"
says 2 'KCP_SECRET: expected 16 to 255' KCP_SECRET=short
says 2 'KCP_TRUST_NETWORK=yes: expected 1' KCP_TRUST_NETWORK=yes
# A name that is too long is refused, and no folder is made of its first letters.
mkdir -m 700 "$dir/$(printf 'x%.0s' $(seq 200))"
says 2 'KCP_KEY_DIR=.*nobody else can open' \
    KCP_KEY_DIR="$(echo "$dir"/xxx*)/$(printf 'y%.0s' $(seq 200))"
[ -z "$(ls "$dir"/xxx*)" ] || wrong "a folder of a name cut short: $(ls "$dir"/xxx*)"
mkdir "$dir/home" "$dir/tmp"
job home 2 env KCP_KEY_DIR= HOME="$dir/home" "$program" --exchange 5
ends home 0
[ "$(stat -c %a "$dir/home/.kcp")" = 700 ] || wrong "~/.kcp was not used"
job tmp 2 env KCP_KEY_DIR= HOME=/proc TMPDIR="$dir/tmp" "$program" --exchange 5
ends tmp 0
[ -n "$(ls "$dir/tmp")" ] || wrong "TMPDIR was not used"
# Without a key two jobs on one port are still two: the other one's rank 1 comes first.
export KCP_TRUST_NETWORK=1
WORLD_SIZE=2 RANK=0 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=60 "$program" --exchange 5 \
    >"$dir/trust.0" 2>&1 & ids=$!
WORLD_SIZE=2 RANK=1 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=2 "$program" --exchange 7 \
    >"$dir/too" 2>&1 && wrong "two jobs that trust: one joins the other"
WORLD_SIZE=2 RANK=1 LOCAL_WORLD_SIZE=2 KCP_TIMEOUT_S=60 "$program" --exchange 5 \
    >"$dir/trust.1" 2>&1 & ids="$ids $!"
ends trust 0
unset KCP_TRUST_NETWORK
build_preload no_crypto
says 2 'libcrypto.*KCP_TRUST_NETWORK=1' LD_PRELOAD="$preload/no_crypto.so"
job without 2 env KCP_TRUST_NETWORK=1 LD_PRELOAD="$preload/no_crypto.so" "$program" \
    --exchange 5
ends without 0

# A name service that does not answer: both ranks end at their deadline.
build_preload no_names
for r in 0 1; do
    began=$(now)
    env WORLD_SIZE=2 RANK=$r KCP_TIMEOUT_S=2 MASTER_ADDR=rank0.example KCP_SECRET=\
0123456789abcdef LD_PRELOAD="$preload/no_names.so" "$program" --exchange 1 >"$dir/out" 2>&1
    [ $? = 1 ] && grep -q 'rank0.example' "$dir/out" ||
        wrong "no name service, rank $r: $(cat "$dir/out")"
    [ $(($(now) - began)) -le 30 ] || wrong "no name service: $(($(now) - began)) s"
done

# ---- torchrun, begun above
if [ -n "$static" ]; then
    wait $static && grep -q '^OK: 40 exchanges' "$dir/static" ||
        wrong "torchrun, static: $(cat "$dir/static")"
    wait $dynamic && grep -q '^OK: 48 exchanges' "$dir/dynamic" ||
        wrong "torchrun, c10d: $(cat "$dir/dynamic")"
fi
[ $failed = 0 ] && echo "network.sh: strangers, other jobs and files in the way; $said"
exit $failed
