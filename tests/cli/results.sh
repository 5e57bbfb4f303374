#!/bin/sh
# results.sh -- what kcp-run leaves behind: by name all of a run's results or none,
# whenever it is killed, whatever fails, and whoever writes at the same time.
#
# Book: chapter 20, what is promised.  Checked by: a file lost, a set mixed.
# Usage: results.sh BUILD.  Next: tests/cli/halt.c, which kills at each step.
B=$(cd "${1:-build}" && pwd) || exit 1
script=$(cd "$(dirname "$0")" && pwd)/results.sh
# In memory, where a sync costs nothing; FULL=1 on the disk, and at every step.
room=/dev/shm; [ -w $room ] && [ -z "$FULL" ] || room=${TMPDIR:-/tmp}
W=$(mktemp -d -p $room) || exit 1
trap 'rm -rf "$W"' EXIT
cd "$W" || exit 1
run="$B/kcp-run" arrays="$B/kcp-arrays" halt="$B/halt.so" passed=0 failed=0
unset WORLD_SIZE RANK SLURM_NTASKS OMPI_COMM_WORLD_SIZE
fail() { failed=$((failed + 1)); echo "  FAIL  results: $*"; }
pass() { passed=$((passed + 1)); }

# Two sets of results, of the same inputs at two scales; and a folder that has the first
# one and things of others: a file, a link, a pipe, a folder with a file, a hidden file.
"$arrays" layer in 5 1 1 2 2 2 kda raw 1 || exit 1
"$run" --in in --out first --scale 1 >stdout || fail "no first set"
"$run" --in in --out second --scale 2 >stdout || fail "no second set"
others() {
    mkdir -p "$1/theirs"
    echo mine >"$1/notes.txt"; echo deep >"$1/theirs/file"; echo dot >"$1/.hidden"
    ln -s notes.txt "$1/link"; mkfifo "$1/pipe"
}
fresh() { rm -rf at; mkdir at; cp -r first at/out; others at/out; }
# set_of DIR: first, second, or mixed, by the names that a run writes.
set_of() {
    a=0 b=0 n=0
    for f in first/*.npy; do
        n=$((n + 1)) f=${f##*/}
        cmp -s "first/$f" "$1/$f" && a=$((a + 1))
        cmp -s "second/$f" "$1/$f" && b=$((b + 1))
    done
    # Outputs that no scale changes are the same in both.
    if [ $a = $n ]; then echo first; elif [ $b = $n ]; then echo second
    else echo mixed; fi
}
kept() {
    [ "$(cat "$1/notes.txt" "$1/theirs/file" "$1/.hidden" "$1/link" 2>&1 |
        tr '\n' ' ')" = "mine deep dot mine " ] && [ -p "$1/pipe" ]
}
# clean: nothing of ours is left, and what was a file is one, not a link to it.
clean() {
    [ "$(ls -A at)" = out ] && [ ! -e at/out/.kcp-results ] &&
        [ -f at/out/notes.txt ] && [ ! -L at/out/notes.txt ] &&
        [ ! -L at/out/theirs ] && [ -L at/out/link ] &&
        ! ls -A at/out | grep -q '^\.kcp'
}
[ "$(set_of first)$(set_of second)" = firstsecond ] || fail "the two sets are alike"

# ---- all goes well
fresh; before=$(stat -c '%i %a' at/out)
"$run" --in in --out at/out --scale 2 >stdout 2>stderr || fail "$(cat stderr)"
[ "$(set_of at/out)" = second ] && kept at/out && clean && pass || fail "a second run"
[ "$(stat -c '%i %a' at/out)" = "$before" ] && pass || fail "another folder is there"
ln -s out at/name; "$run" --in in --out at/name --scale 1 >stdout 2>stderr
[ "$(set_of at/out)" = first ] && [ -L at/name ] && pass || fail "through a link"
rm at/name
(cd at/out && "$run" --in ../../in --out . --scale 2 >../../stdout 2>../../stderr &&
    [ "$(cat notes.txt)" = mine ]) &&
    [ "$(set_of at/out)" = second ] && clean && pass ||
    fail "--out . $(cat stderr)"
umask 027; "$run" --in in --out at/new --scale 1 >stdout; umask 022
[ "$(stat -c %a at/new at/new/o.npy | tr '\n' ' ')" = "750 640 " ] && pass || fail umask
rm -rf at/new

# ---- synced: each result and the staged folder before names are exchanged, the folder
# above afterwards; no test sees a power cut.
synced() {                                 # what is amiss of the steps in log, a line each
    awk '{ name = $2; sub(".*/", "", name) }
        $1 == "write" && name ~ /\.npy$/ { dirty[name] = entered = 1; results++ }
        $1 == "fsync" { delete dirty[name] }
        $1 == "symlinkat" || ($1 == "renameat" && name ~ /^\.kcp-/) { entered = 1 }
        $1 == "fsync" && name ~ /^\.kcp-/ { entered = 0 }
        $1 == "fsync" && name == "at" { renamed = 0 }
        /^renameat2? .*\/at$/ {
            for (file in dirty) print file " is not synced before names change"
            if (entered) print "the staged folder is not"
            renamed = results; changes++ }
        renamed && ($1 == "linkat" || ($1 == "unlinkat" && name ~ /^\.kcp-/)) {
            print "the folder above is not synced before " $1 }
        END { if (renamed) print "the folder above is not synced at the end"
              if (!results || !changes) print results + 0 " writes, " changes + 0 " changes" }
        ' log
}
for new in out new; do
    fresh
    LD_PRELOAD=$halt HALT_LOG=$W/log "$run" --in in --out at/$new --scale 2 >stdout 2>&1
    [ -z "$(synced)" ] && pass || fail "$new: $(synced)"
    for without in 'fsync .*\.npy$' 'fsync .*/\.kcp-[^/]*$' 'fsync .*/at$'; do
        mv log whole; grep -v "$without" whole >log
        [ -n "$(synced)" ] && pass || fail "no $without is not seen"
        mv whole log
    done
done

# ---- killed at each step, then run again
steps_of() {                   # HALT_COUNT is only written by a run that ends
    fresh
    LD_PRELOAD=$halt HALT_COUNT=$W/count "$run" --in in --out at/out --scale 2 >stdout
    cat count
}
if [ -e "$halt" ]; then
    steps=$(steps_of)
    [ "$steps" -gt 40 ] || fail "halt.so saw $steps steps only"
    seen=
    for by in KILL TERM EIO; do
        by_step=1; [ $by = KILL ] || [ -n "$FULL" ] || by_step=3
        for at in $(seq 1 $by_step "$steps"); do
            fresh
            LD_PRELOAD=$halt HALT_AT=$at HALT_BY=$by "$run" --in in --out at/out \
                --scale 2 >stdout 2>stderr
            status=$? found=$(set_of at/out) good=1
            [ "$found" = mixed ] && { fail "$by at step $at: a mixed set"; good=0; }
            kept at/out || { fail "$by at step $at: files of others"; good=0; }
            case $by$status$found in
            KILL137*|TERM143*|EIO2first|EIO0second|EIO2second) ;;
            *) fail "$by at step $at: status $status, the $found set"; good=0 ;;
            esac
            [ $by = TERM ] && ! clean && { fail "TERM at step $at: $(ls -A at at/out)"
                good=0; }
            [ $by = EIO ] && [ $status = 2 ] && [ "$(wc -l <stderr)" != 1 ] && {
                fail "EIO at step $at: $(cat stderr)"; good=0; }
            "$run" --in in --out at/out --scale 2 >stdout 2>stderr ||
                { fail "$by at step $at: not again: $(cat stderr)"; good=0; }
            [ "$(set_of at/out)" = second ] && kept at/out && clean ||
                { fail "$by at step $at: afterwards $(ls -A at at/out)"; good=0; }
            [ $good = 1 ] && pass
            seen="$seen $by$found"
        done
    done
    case $seen in *KILLfirst*KILLsecond*) pass ;; *) fail "all before, or after" ;; esac
    # The same where the folder is new: all, or none.
    for at in $(seq 1 2 $((steps - 6))); do
        rm -rf at; mkdir at
        LD_PRELOAD=$halt HALT_AT=$at "$run" --in in --out at/out --scale 2 >stdout \
            2>stderr
        [ ! -e at/out ] || [ "$(set_of at/out)" = second ] || fail "new, step $at"
        "$run" --in in --out at/out --scale 2 >stdout 2>stderr &&
            [ "$(set_of at/out)" = second ] && clean_new=1 || clean_new=0
        [ $clean_new = 1 ] && [ ! -e at/out/.kcp-results ] && pass ||
            fail "new, step $at: $(ls -A at at/out) $(cat stderr)"
    done
else
    fail "no halt.so"
fi

rounds=15; [ -z "$FULL" ] || rounds=150
# ---- two at once: one set or the other, and at least one of the two succeeds
fresh
for i in $(seq 1 $rounds); do
    "$run" --in in --out at/out --scale 1 >/dev/null 2>one & p=$!
    "$run" --in in --out at/out --scale 2 >/dev/null 2>two & q=$!
    wait $p; a=$?; wait $q; b=$?
    found=$(set_of at/out)
    case $a$b in
    00) [ "$found" != mixed ] ;;
    02) [ "$found" = first ] && grep -q 'another run that writes' two ;;
    20) [ "$found" = second ] && grep -q 'another run that writes' one ;;
    *) false ;;
    esac && pass || fail "two at once: $a $b $found $(cat one two)"
done
kept at/out && clean && pass || fail "two at once: $(ls -A at at/out)"
for i in $(seq 1 $rounds); do
    rm -rf at/new
    "$run" --in in --out at/new --scale 1 >/dev/null 2>one & p=$!
    "$run" --in in --out at/new --scale 2 >/dev/null 2>two & q=$!
    wait $p; a=$?; wait $q; b=$?
    case $a$b$(set_of at/new) in
    00first|00second|02first|20second) pass ;;
    *) fail "two at once, new: $a $b $(set_of at/new) $(cat one two)" ;;
    esac
    [ "$(ls -A at | tr '\n' ' ')" = "new out " ] || fail "left: $(ls -A at)"
done
rm -rf at/new

# Whoever holds the folder's lock is a run that writes: nothing is done beside it.
if command -v flock >/dev/null; then
    fresh
    "$run" --in in --out at/out --scale 1 >stdout 2>stderr
    flock at/out "$run" --in in --out at/out --scale 2 >stdout 2>stderr
    [ $? = 2 ] && [ "$(wc -l <stderr)" = 1 ] && grep -q 'another run that writes' stderr &&
        [ "$(set_of at/out)" = first ] && kept at/out && clean && pass ||
        fail "a folder that is locked: $(cat stderr)"
fi

# ---- where it cannot be switched: refused, and nothing is touched
refused() {
    "$run" --in in --out "$1" >stdout 2>stderr
    [ $? = 2 ] && [ "$(wc -l <stderr)" = 1 ] &&
        grep -q -- "--out: found .*$2.*expected" stderr && pass ||
        fail "$1: $(cat stderr)"
}
mount=$(awk '$2 != "/" && ($3 == "tmpfs" || $3 == "proc") { print $2 }' /proc/mounts |
    while read -r m; do [ -w "$m" ] && { echo "$m"; break; }; done)
[ -z "$mount" ] || { refused "$mount" 'mount point'
    ls -A "$mount" | grep -q 'kcp-results\|o\.npy' && fail "a mount was touched"; }
refused / 'mount point'
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    # Another user's folder under a sticky parent, open to all.
    rm -rf sticky; mkdir sticky; chmod 1777 sticky; chmod 755 .
    mkdir sticky/out; chmod 777 sticky/out; : >sticky/out/theirs
    setpriv --reuid 65534 --clear-groups "$run" --in in --out sticky/out \
        >/dev/null 2>err
    [ $? = 2 ] && grep -q 'sticky folder' err && [ "$(ls -A sticky sticky/out)" = \
        "$(printf 'sticky:\nout\n\nsticky/out:\ntheirs')" ] && pass || fail "$(cat err)"
    # Somebody else's parent.
    rm -rf up; mkdir -p up/out; chmod 777 up/out
    setpriv --reuid 65534 --clear-groups "$run" --in in --out up/out >/dev/null 2>err
    [ $? = 2 ] && grep -q 'parent of up/out' err && [ -z "$(ls -A up/out)" ] && pass ||
        fail "$(cat err)"
fi

# ---- a full disk: one line, status 2, and what was there is there
full_disk() {                  # in mounts of its own, which end with the process
    mkdir -p at && mount -t tmpfs -o size=200k none at && cp -r first at/out &&
        others at/out || return 3
    head -c 300k /dev/zero >at/ballast 2>/dev/null
    "$run" --in in --out at/out --scale 2 >stdout 2>stderr
    echo "$? $(wc -l <stderr) $(set_of at/out) $(kept at/out && echo kept)"
    truncate -s -12288 at/ballast              # room for the first of the results
    "$run" --in in --out at/out --scale 2 >stdout 2>stderr
    echo "$? $(wc -l <stderr) $(set_of at/out) $(kept at/out && echo kept)"
    rm at/ballast
    "$run" --in in --out at/out --scale 2 >stdout 2>stderr
    echo "$? $(set_of at/out) $(kept at/out && clean && echo kept)"
}
if command -v unshare >/dev/null && unshare -m true 2>/dev/null; then
    rm -rf at
    sed -n '/^set_of() {/,/^}/p; /^kept() {/,/^}/p; /^clean() {/,/^}/p
        /^others() {/,/^}/p; /^full_disk() {/,/^}/p' "$script" >full_disk.sh
    echo 'full_disk' >>full_disk.sh
    got=$(run=$run unshare -m sh full_disk.sh 2>err | tr '\n' '|')
    [ "$got" = '2 1 first kept|2 1 first kept|0 second kept|' ] && pass ||
        fail "full disk: $got $(cat err)"
fi

# ---- a container in which every process has the same number: names are not of it
if command -v unshare >/dev/null && unshare -pf true 2>/dev/null; then
    fresh
    LD_PRELOAD=$halt HALT_AT=30 unshare -pf "$run" --in in --out at/out >/dev/null 2>&1
    unshare -pf "$run" --in in --out at/out --scale 2 >/dev/null 2>err &&
        [ "$(set_of at/out)" = second ] && clean && pass ||
        fail "same number: $(cat err)"
fi
echo "results: $passed passed, $failed failed"
[ $failed -eq 0 ]
