#!/bin/sh
# run_folder.sh -- checks that kcp-run's output folder has all results or none, even with
# --force, after a kill at any time, or on a full disk.
# Book: chapter 20.
# Usage: run_folder.sh BUILD.
. "$(dirname "$0")/run_common.sh"
arrays layer in 13 4 2 4 3 5 kda raw 1 || exit 1

# cannot PATTERN option...: checks for status 2, one line, and an unchanged out/.
mkdir out; echo mine >out/notes.txt
cannot() {
    words=$1; shift
    "$run" --out out "$@" >stdout 2>stderr
    [ $? = 2 ] && [ "$(wc -l <stderr)" = 1 ] && grep -q -e "$words" stderr &&
        [ "$(ls out)" = notes.txt ] && pass || fail "$*: $(cat stderr) $(ls out)"
}
cannot '^kcp-run: --out: .*--force' --in in
cannot '^kcp-run: --out: .*--in' --in out --force
mkdir out.old; cannot 'out.old' --in in --force; rmdir out.old
(ulimit -f 1; cannot '' --in in --force; [ $failed = 0 ]) || failed=$((failed + 1))
[ "$(echo out*)" = out ] && pass || fail "a full disk with --force leaves $(echo out*)"
"$run" --in in --out out --force >stdout 2>stderr
[ "$(ls out.old)" = notes.txt ] && [ -s out/dq.npy ] && [ ! -e out/notes.txt ] &&
    [ "$(echo out*)" = "out out.old" ] && pass || fail "--force: $(cat stderr) $(echo out*)"
rm -rf out out.old

# kcp-run must fill an empty folder, also through a link, with file modes according to
# umask.
mkdir out; ln -s out link
(umask 027; exec "$run" --in in --out link/ >stdout 2>stderr)
[ -s out/dq.npy ] && [ -L link ] && pass || fail "an empty folder: $(cat stderr)"
[ "$(stat -c %a out out/o.npy | tr '\n' ' ')" = "750 640 " ] && pass || fail umask
rm -rf out link

# After a kill of kcp-run --force, out/ or out.old/ must exist, and neither may lack files.
gives first
n=$(ls first | wc -l)
for ms in 01 02 03 05 08 13 21 34; do
    rm -rf out out.*; cp -r first out
    timeout -s KILL 0.0$ms "$run" --in in --out out --force --scale 2 >stdout 2>&1
    good=no
    for d in out out.old; do
        [ ! -e $d ] && continue
        [ "$(ls $d | wc -l)" = "$n" ] || { good=no; break; }
        good=yes
    done
    [ $good = yes ] && pass || fail "killed after $ms ms: $(ls out*)"
done
# After two concurrent runs, the folder must have all files of one run, none of the other.
gives second --scale 2
for i in 1 2 3 4 5 6 7 8; do
    rm -rf out out.*
    "$run" --in in --out out >stdout 2>&1 & p=$!
    "$run" --in in --out out --scale 2 >stdout 2>&1
    wait $p
    cmp -s first/o.npy out/o.npy; a=$?
    cmp -s first/dq.npy out/dq.npy; b=$?
    [ $a$b = 00 ] || { cmp -s second/o.npy out/o.npy && cmp -s second/dq.npy out/dq.npy; } &&
        pass || fail "two concurrent runs: out/ equals the outputs of neither run"
done
echo "run_folder.sh: $passed passed, $failed failed"
[ $failed = 0 ]
