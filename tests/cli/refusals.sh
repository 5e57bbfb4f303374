# refusals.sh -- the bad inputs of kcp-run; run_cli.sh reads this with its functions.
#
# Book: none.  Checked by: run_cli.sh.  Next: tests/fuzz/npy.c.

rm -rf bad out; cp -r in bad
header() {  # header FILE dictionary [bytes of data]: version 1.0, whatever it says
    printf '\223NUMPY\001\000%b%s' "$(printf '\\%03o\\%03o' $((${#2} % 256)) \
        $((${#2} / 256)))" "$2" >"$1"
    [ "${3:-0}" -eq 0 ] || head -c "$3" /dev/zero >>"$1"
}
f8="'descr': '<f8', 'fortran_order': False"

# Options.
refused --ranks --ranks 0
refused --ranks --ranks 1025
refused --ranks --ranks -1
refused --ranks --ranks 2x
refused --ranks --ranks ' 2'
refused --ranks --ranks 99999999999999999999
refused --ranks --ranks
refused --ranks --ranks 2 --ranks 2
refused option --rank 2
refused option in2
refused option -h
refused --l2norm --l2norm=1
refused --model --model rwkv
refused --model --model ''
refused --form --form ring
refused --gate --gate Softplus
refused --beta --beta sig
refused --save --save none
refused --state-layout --state-layout vv
refused --act --act relu
refused --device --device tpu
refused --dtype --dtype f32
refused --dtype --device gpu --dtype f64
refused --variant --variant v1_stages
refused --variant --device cpu --variant v1_stages
refused --variant --device gpu --variant ''
refused --scale --scale nan
refused --scale --scale inf
refused --scale --scale 1e999
refused --scale --scale 1,5
refused --lower-bound --gate bounded --lower-bound 0
refused --lower-bound --gate bounded --lower-bound -5.001
refused --lower-bound --gate bounded --lower-bound nan
refused --chunk --chunk 0
refused --chunk --chunk 257
refused --canonical --canonical 0
refused --canonical --canonical -4
refused --stage --stage 06
refused --stage --stage 3
refused --ranks --stage 03 --ranks 2
refused --backward --backward
refused --shift --shift
refused --blocks --blocks 2
refused --blocks --form pipeline --blocks 6
refused --act --act silu
refused --lower-bound --gate softplus --lower-bound -2
RANK=1 WORLD_SIZE=2; export RANK WORLD_SIZE; refused torchrun --ranks 3
refused --device --device gpu
RANK=2; refused launcher --ranks 2; unset RANK WORLD_SIZE
for cuts in '' 0 0,,13 0,5, ,13 '0, 13' '0 13' 0,x,13 0,9,5,13 1,13 0,12 0,14 \
    0,13,13,14 -0,13 0,-1,13 0,99999999999999999999,13 0,5.0,13 0x0,13 +0,13
do refused --cuts --cuts "$cuts"; done
refused --cuts --cuts 0,5,13 --ranks 3
for conv in '' w/w3.npy w/w3.npy,w/w2.npy $w,w/wv.npy w/w3.npy,,w/wv.npy \
    w/w3.npy,w/w2.npy,
do refused --conv --conv "$conv"; done
refused wq.npy --conv w/wq.npy,w/w2.npy,w/wv.npy
refused w3.npy --conv w/w3.npy,w/w2.npy,w/w3.npy

# Files that no stage reads.
for f in cu_seqlen Q q_ raw dh0_raw w3; do
    cp in/q.npy bad/$f.npy; refused "$f.npy" --ranks 2
done
cp in/q.npy bad/Q.npy; refused Q.npy --stage 03
cp in/q.npy bad/dht.NPY; refused dht.NPY
cp in/q.npy bad/notes.txt; cp in/q.npy bad/.Q.npy; cp in/q.npy bad/Aqk.npy
if "$run" --in bad --out out >stdout 2>stderr; then pass; else fail "$(cat stderr)"; fi
rm -rf bad out; cp -r in bad

# Shapes and dtypes.
for f in q k v g beta; do
    rm bad/$f.npy; refused $f.npy
    "$arrays" fill bad/$f.npy f8 13 0; refused $f.npy
    "$arrays" fill bad/$f.npy i8 13,2,3 0; refused $f.npy
    "$arrays" poke bad/$f.npy 7 nan; refused $f.npy
    "$arrays" poke bad/$f.npy 0 inf; refused $f.npy
done
for f in h0 do dht; do
    "$arrays" fill bad/$f.npy f8 13,4 0; refused $f.npy
    "$arrays" poke bad/$f.npy 3 -inf; refused $f.npy
done
refused h0.npy --state-layout vk
refused g.npy --model gdn
"$arrays" poke bad/g.npy 5 1e-9; refused g.npy
"$arrays" fill bad/k.npy f8 12,2,3 0; refused k.npy
"$arrays" fill bad/v.npy f8 13,3,5 0; "$arrays" fill bad/g.npy f8 13,3,3 0
"$arrays" fill bad/beta.npy f8 13,3 0; rm bad/h0.npy bad/d*.npy; refused v.npy
"$arrays" fill bad/q.npy f8 13,2,0 0; refused q.npy
grep -q 'expected .T,H,K. = .?,?,?., K from 1 to 65536$' stderr && pass ||
    fail "another range: $(cat stderr)"
# A long T is in its range, and no other letter's is named beside it.
"$arrays" fill bad/q.npy f8 100000,2,3 0; "$arrays" fill bad/k.npy f8 100000,2,4 0
refused k.npy; grep -q 'expected .T,H,K. = .100000,2,3.$' stderr && pass ||
    fail "a range beside T: $(cat stderr)"
"$arrays" fill bad/q.npy f8 13,0,3 0; refused q.npy
"$arrays" fill bad/A_log.npy f8 3 0; refused A_log.npy --gate softplus
"$arrays" fill bad/dt_bias.npy f8 4 0; refused dt_bias.npy --gate softplus
"$arrays" fill bad/cu_seqlens.npy f8 2 0; refused cu_seqlens.npy
"$arrays" fill bad/cu_seqlens.npy i8 0 0; refused cu_seqlens.npy
"$arrays" poke bad/cu_seqlens.npy 0 1; refused cu_seqlens.npy
"$arrays" poke bad/cu_seqlens.npy 4 14; refused cu_seqlens.npy
"$arrays" poke bad/cu_seqlens.npy 1 12; refused cu_seqlens.npy
"$arrays" poke bad/cu_seqlens.npy 1 -3; refused cu_seqlens.npy

# Hostile headers.
: >bad/q.npy; refused q.npy
head -c 40 in/q.npy >bad/q.npy; refused q.npy
head -c 500 in/q.npy >bad/q.npy; refused q.npy
{ cat in/q.npy; printf x; } >bad/q.npy; refused q.npy
printf '\223NUMPY\002\000\377\377\377\377{' >bad/q.npy; refused q.npy
printf '\223NUMPY\011\000\001\000{' >bad/q.npy; refused q.npy
echo 'not an array at all' >bad/q.npy; refused q.npy
for shape in '(-13, 2, 3)' '(13, 2, 3' '(13, 2, x)' '13' '(99999999999999999999,)' \
    '(4294967296, 4294967296, 4294967296)' '(9223372036854775807, 2, 3)' '()' '(13)' \
    '(1, 1, 1, 1, 1, 1, 1, 1, 1)' '(0, 9223372036854775807, 3)'
do header bad/q.npy "{$f8, 'shape': $shape, }"; refused q.npy; done
good="'shape': (13, 2, 3)"
for dict in "{$f8, $good" "{$f8, }" "{$good, }" "{$f8, $good, 'x': 1}" "$f8" "" "{}" \
    "{'descr': '>f8', 'fortran_order': False, $good}" \
    "{'descr': '|O', 'fortran_order': False, $good}" \
    "{'descr': [('a', '<f8')], 'fortran_order': False, $good}" \
    "{'descr': '<f8', 'fortran_order': Maybe, $good}" \
    "{'descr': '<u2', 'fortran_order': False, 'shape': (312, 2, 1)}" \
    "{$f8, $f8, $good}" "{$f8, $good} trailing"
do header bad/q.npy "$dict" 624; refused q.npy; done
rm bad/q.npy; mkdir bad/q.npy; refused q.npy
rm bad/q.npy; mkfifo bad/q.npy; refused q.npy
rm bad/q.npy; ln -s nowhere bad/q.npy; refused q.npy
rm bad/q.npy; ln -s /dev/zero bad/q.npy; refused q.npy
# Sizes that a header says and a disk does not hold: refused before they are paid. The
# limit is on memory; a sparse file is as long as its shape says.
sparse() {
    header bad/$1.npy "$2"
    truncate -s "$(($(wc -c <bad/$1.npy) + $3))" bad/$1.npy
}
for f in q cu_seqlens; do
    # The address sanitizer's own memory is beyond any limit.
    (ulimit -v 2000000; exec "$run" --version) >/dev/null 2>&1 || break
    rm -f bad/$f.npy; sparse $f "{$f8, 'shape': (268435456, 2)}" 4294967296
    (ulimit -v 2000000; exec "$run" --in bad --out out >stdout 2>stderr)
    [ $? -eq 2 ] && grep -q "$f.npy: found .*, expected" stderr &&
        ! grep -q memory stderr && pass || fail "sparse $f: $(cat stderr)"
    rm -rf bad out; cp -r in bad
done
sparse q "{$f8, 'shape': (2000000000, 1000, 1000)}" 0; refused q.npy
if truncate -s 1P bad/x 2>/dev/null; then
    rm bad/x; sparse q "{$f8, 'shape': (1000000, 60000, 300)}" 144000000000000
    refused 'q.npy: .*this machine'
fi
# Memory that no machine has, from files that are small.
rm bad/*; for f in q k; do "$arrays" fill bad/$f.npy f8 0,1,65536 0; done
"$arrays" fill bad/v.npy f8 0,65536,65536 0; "$arrays" fill bad/beta.npy f8 0,65536 0
"$arrays" fill bad/g.npy f8 0,65536,65536 0
"$arrays" fill bad/cu_seqlens.npy i8 65537 0
refused --in

# Stages: a grid and indices of strangers.
rm -rf e; "$B/kcp-check" --emit e --stage 05 --ranks 1 >stdout
stage() { rm -rf bad; cp -r e/case_000/forward bad; "$arrays" poke bad/$1.npy $2 $3
          refused $1 --stage 05 $(cat bad/options.txt); }
stage cu 0 1; stage cu 1 1000000; stage cn 1 7; stage sc 0 1; stage sc 0 -1
stage want 0 4; stage want 0 -1; stage w 0 nan; stage G 0 1

# Places to write.
if "$run" --in in --out no/where >stdout 2>stderr; then fail "no parent"; else pass; fi
[ "$(wc -l <stderr)" -eq 1 ] && [ ! -e no ] && pass || fail "no parent: $(cat stderr)"
: >file; "$run" --in in --out file >stdout 2>stderr
[ $? -eq 2 ] && pass || fail "a file"
"$run" --in nowhere --out out >stdout 2>stderr; [ $? -eq 2 ] && pass || fail "no --in"
"$run" --in in >stdout 2>stderr; [ $? -eq 2 ] && pass || fail "no --out"
# A folder that is not empty is kept without --force, and moved to out.old with it.
mkdir out; echo mine >out/notes.txt
cannot() { "$run" --out out "$@" >stdout 2>stderr
    [ $? -eq 2 ] && [ "$(wc -l <stderr)" -eq 1 ] && [ "$(ls out)" = notes.txt ]; }
cannot --in in && grep -q -- '--out: out is not empty: .*--force' stderr && pass ||
    fail "a full folder: $(cat stderr)"
cannot --in out --force && grep -q -- 'out is also --in' stderr && pass ||
    fail "--out is --in: $(cat stderr)"
mkdir out.old
cannot --in in --force && grep -q -- '--force: .*/out.old exists' stderr && pass ||
    fail "out.old exists: $(cat stderr)"
rmdir out.old
(ulimit -f 1; cannot --in in --force) && [ "$(echo out*)" = out ] && pass ||
    fail "a limit on files with --force: $(cat stderr) $(echo out*)"
"$run" --in in --out out --force >stdout 2>stderr && [ "$(ls out.old)" = notes.txt ] &&
    [ -s out/dq.npy ] && [ ! -e out/notes.txt ] && [ "$(echo out*)" = "out out.old" ] &&
    pass || fail "--force: $(cat stderr) $(echo out*)"
rm -rf out out.old
# An empty folder is filled, through a link too, with the modes that umask leaves.
mkdir out; ln -s out link; (umask 027; exec "$run" --in in --out link/ >stdout 2>stderr)
[ -s out/dq.npy ] && [ -L link ] && pass || fail "an empty folder: $(cat stderr)"
[ "$(stat -c %a out out/o.npy | tr '\n' ' ')" = "750 640 " ] && pass || fail umask
rm -rf out link
# Killed at any time, with --force: each folder has a complete set or does not exist.
"$run" --in in --out first >stdout; n=$(ls first | wc -l)
for ms in 1 2 3 5 8 13 21 34; do
    rm -rf out out.*; cp -r first out
    timeout -s KILL 0.0$(printf %02d $ms) "$run" --in in --out out --force --scale 2 \
        >/dev/null 2>&1
    good=1
    for d in out out.old; do
        [ ! -e $d ] || [ "$(ls $d | wc -l)" = "$n" ] || good=0
    done
    { [ -e out ] || [ -e out.old ]; } && [ $good = 1 ] && pass ||
        fail "killed after $ms ms: $(ls out*)"
done
rm -rf out out.* first
mkdir no; chmod 555 no
if [ "$(id -u)" -ne 0 ]; then "$run" --in in --out no/out >stdout 2>stderr
    [ $? -eq 2 ] && grep -q 'cannot make no/out' stderr && pass || fail "$(cat stderr)"; fi
chmod 755 no; rm -rf no
if [ -c /dev/full ]; then
    "$run" --help >/dev/full 2>stderr
    [ $? -eq 2 ] && grep -q '^kcp-run: cannot write to stdout' stderr && pass ||
        fail "stdout full"
fi
# A limit on the size of a file, as a disk that is full: nothing is left behind.
(ulimit -f 1; exec "$run" --in in --out out >/dev/null 2>stderr)
[ $? -eq 2 ] && [ "$(wc -l <stderr)" -eq 1 ] && [ "$(echo out*)" = "out*" ] && pass ||
    fail "a limit on files: $(cat stderr)"
