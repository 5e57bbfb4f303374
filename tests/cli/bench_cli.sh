#!/bin/sh
# bench_cli.sh -- kcp-bench from outside, without a GPU: what it refuses; its records.
#
# Book: chapter 18.  Checked by: make test, which runs it.  Next: bench/bench/options.c.
# Usage: bench_cli.sh BUILD, in the tree's root.
program=${1:-build}/kcp-bench
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"; rm -f bench/results/bench-cli-*' EXIT
failed=0
wrong() { echo "bench_cli.sh: $*"; failed=1; }

refuses() {                    # what it names, options...
    want=$1; shift
    "$program" "$@" >"$W/out" 2>"$W/err"
    status=$?
    [ $status = 2 ] || wrong "$* exits with $status, not 2"
    [ "$(wc -l <"$W/err")" = 1 ] || wrong "$* says $(wc -l <"$W/err") lines"
    grep -q -- "^kcp-bench: $want: found .*, expected " "$W/err" ||
        wrong "$* says: $(cat "$W/err")"
    [ -s "$W/out" ] && wrong "$* prints on stdout"
}
# A record of two cases, of which the second lacks a column that the first needs not.
columns="stage variant form head_parts pass us us_p10 us_p90 bytes flops peer model gate"
columns="$columns T H HV K V C sequences segments ranks save walk reuse_M copy product"
columns="$columns verdict worst error allowed lengths"
tsv() { echo "$*" | tr ' ' '\t' | sed 's/-//g'; }
{
    tsv $columns
    for v in v2_stages v1_stages theirs; do
        tsv 08_forward $v - - 0 2000.00 1900.00 2100.00 5 6 \
            "$([ $v = theirs ] && echo theirs || echo -)" kda live 8192 96 96 128 128 64 \
            1 1 1 recompute - - 4e12 7e14 ${verdict:-ok} o 0.004 0.006 -
    done
} >"$W/a.tsv"
if [ -x "$program" ]; then
    refuses -T -T x
    refuses -T -T 0
    refuses -T -T
    refuses -g -g 9
    refuses -n -n 4
    refuses -f -b 1024 -e 4096 -f 1
    if [ -c /dev/full ]; then
        "$program" --help >/dev/full 2>"$W/err" && wrong "a full disk is not said"
        grep -q '^kcp-bench: cannot write to stdout' "$W/err" || wrong "$(cat "$W/err")"
    fi
    refuses --gate --gate weak
    refuses --model --model rwkv
    refuses option --colour blue
    grep -q "found '--colour'" "$W/err" || wrong "it does not say which option"
    "$program" --version | grep -qx 'kcp-bench [0-9]*\.[0-9]*\.[0-9]*' ||
        wrong "no --version"
    refuses --HV -H 4 --HV 6
    refuses --stage --stage 99
    refuses --segments -T 8 --segments 9
    refuses -e -b 1024 -e 4096 --against "$W/a.tsv"
    refuses --backend --backend mpi
    # A list of which nothing is known would time nothing, with status 0.
    for x in x 8 8,13 08, ,08 08,,13 99 '08 13' 0813; do refuses --stages --stages "$x"; done
    for x in x gather all_gather, ,scan chainscan 'chain scan'; do
        refuses --forms -g 2 --forms "$x"; done
    # Rubbish, too much, and what says the same twice.
    for x in x 0 -1 1.5 '8 8' 4x 4xx8 x8 4x0 0x4 ,8 8, 8,,8 4x8x2 08 1e3 \
            4097x1 4096x8192 16777217 99999999999999999999; do
        refuses --lengths --lengths "$x"; done
    refuses --lengths --lengths "$(seq -s , 1 99)"
    grep -q '255 letters' "$W/err" || wrong "a list that no record has room for"
    for x in '-T 8192' '-b 1024' '-e 4096' '--sequences 2'; do
        refuses --lengths --lengths 4x8192 $x; done
    refuses --segments --lengths 4x1,4 --segments 9
    refuses --tsv --tsv "$W/a.tsv"             # an earlier record is never overwritten
    refuses --against --lengths 8192 --against "$W/a.tsv"
    refuses --variant --variant nope
    mkfifo "$W/pipe"
    for x in "$W/pipe" "$W" /dev/null; do refuses --against --against "$x"; done
    rm "$W/pipe"
    refuses --against --against "$W/a.tsv" --gate strong
    refuses --against --against "$W/a.tsv" -T 4096
    refuses --against --against "$W/missing.json"
    refuses --tsv -T 8192 --tsv "$W/a.tsv" --against "$W/a.tsv"
    refuses -e -b 1024 -e 4096 --tsv "$W/b.tsv"
    # The case is found by the columns' names, in any order; without a GPU it ends there.
    awk -F '\t' 'BEGIN { OFS = FS } { t = $1; $1 = $14; $14 = t; print }' "$W/a.tsv" \
        >"$W/order.tsv"
    for f in a order; do
        "$program" --against "$W/$f.tsv" --stage 08 -w 0 -n 5 >"$W/out" 2>"$W/err"
        grep -q 'against' "$W/err" && wrong "$f.tsv is no record: $(cat "$W/err")"
    done
    # A packed case is another than an even one of as many tokens, however it is said.
    awk -F '\t' 'BEGIN { OFS = FS }
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; print; next }
        { $(at["lengths"]) = "4x2048"; $(at["sequences"]) = 4; print }' "$W/a.tsv" \
        >"$W/lengths.tsv"
    "$program" --against "$W/lengths.tsv" --lengths 2048,3x2048 --stage 08 -n 5 \
        >"$W/out" 2>"$W/err"
    grep -q 'against' "$W/err" && wrong "lengths.tsv is no record: $(cat "$W/err")"
    refuses --against --against "$W/lengths.tsv" -T 8192 --sequences 4
    refuses --against --against "$W/a.tsv" --lengths 4x2048
    grep -v '^08' "$W/a.tsv" >"$W/empty.tsv"
    refuses --against --against "$W/empty.tsv"
    [ -e "$W/b.tsv" ] && wrong "a refusal leaves a record"
else
    echo "bench_cli.sh: no kcp-bench (built without CUDA): its options were not tried"
fi

# A row is kept with a verdict of the same run and a digest; another system's without.
command -v python3 >/dev/null || { echo "bench_cli.sh: no python3: records not tried"
    exit $failed; }
kept=bench/results/bench-cli-test.tsv
echo "a GPU, a driver, 2026-01-02" >"$W/machine.txt"
cat >"$W/judge.txt" <<'END'
08_forward
  ok       v2_stages   bf16  5 ok  worst o 1e-3 of 5e-3 (case 1)
  ok       path        fused  v2_stages  2 cases
  FAIL     v1_stages   bf16  5 ok  worst o 1e-2 of 5e-3 (case 1)  alive 9e-01
END
sed '1s/^/repeats 100\n/' "$W/judge.txt" >"$W/repeats.txt"
printf 'stage\tvariant\tnvcc\tdigest\n08_forward\tv1_stages\t13.0\td1\n' >"$W/digests.tsv"
printf '08_forward\tv2_stages\t13.0\td2\npath\tfused\t-\tp1\n' >>"$W/digests.tsv"
rm -f "$W/b.tsv" "$W/order.tsv" "$W/empty.tsv" "$W/lengths.tsv"
awk 'BEGIN { FS = OFS = "\t" } { print $0, NR == 1 ? "path" : "fused" }' "$W/a.tsv" \
    >"$W/c.tsv"
awk 'BEGIN { FS = OFS = "\t" } NR > 1 { for (i = 1; i <= NF; i++) if ($i == "ok") $i = "FAIL" }
    { print }' "$W/a.tsv" >"$W/bad.tsv"
record() { python3 bench/records.py add "$@" bench-cli-test abc1234 >"$W/out" 2>"$W/err"; }
record "$W" || wrong "$(cat "$W/err")"
of() {                         # ROW NAME: a column of the first row that matches
    awk -F '\t' -v row="$1" -v name="$2" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $0 ~ row && !n++ { print $(at[name]) }' $kept
}
is() { [ "$(of "$1" "$2")" = "$3" ] || wrong "$1: $2 is '$(of "$1" "$2")', not '$3'"; }
for pair in kind=time machine=a_GPU driver=a_driver date=2026-01-02 commit=abc1234 \
        nvcc=13.0 digest=d2 case=a us=2000.00 T=8192 gate=live path=; do
    is '^time.*v2_stages' "${pair%%=*}" "$(echo "${pair#*=}" | tr _ ' ')"
done
is '^time.*fused.*v2_stages' row p1; is '^time.*theirs' digest ''
is '^verdict.*v1_stages' verdict FAIL; is '^verdict.*v1_stages' alive 9e-01
is '^verdict.*v2_stages' error 1e-3; is '^verdict.*v2_stages' cases '5 ok'
is '^repeat' repeats 100; is '^repeat' digest d2
[ "$(grep -c '^repeat' $kept)" = 1 ] || wrong "a variant that failed has a row of repeats"
[ "$(grep -c '^time.*v2_stages' $kept)" = 2 ] || wrong "a row whose verdict is FAIL was kept"
[ -z "$(of '^time.*v1_stages' kind)" ] || wrong "a row without a verdict was kept"
grep -q 'v1_stages: no verdict ok' "$W/err" || wrong "the reason was not printed"
record "$W" || wrong "$(cat "$W/err")"
[ "$(grep -c '^time.*v2_stages' $kept)" = 4 ] || wrong "a second run replaced the first"

# A run of which no record can be made leaves the record unchanged.
cp $kept "$W/before"
refused() {                    # the words of the error
    record "$W" && wrong "accepted: $1"
    [ "$(wc -l <"$W/err")" = 1 ] && grep -q "$1" "$W/err" || wrong "$1: $(cat "$W/err")"
    cmp -s "$W/before" $kept || wrong "the record changed: $1"
}
rm "$W/bad.tsv" "$W/c.tsv"
sed -i 1d "$W/repeats.txt"; refused 'the line "repeats N" is missing'; rm "$W/repeats.txt"
mv "$W/a.tsv" "$W/all"; cut -f 1-27 "$W/all" >"$W/a.tsv"; refused "need a column 'verdict'"
mv "$W/all" "$W/a.tsv"
sed -i '/v2_stages/d' "$W/digests.tsv"; refused 'v2_stages: no digest'
echo "a GPU" >"$W/machine.txt"; refused 'machine.txt: found'
rm "$W/machine.txt"; refused 'machine.txt: not found'
[ $failed = 0 ] && echo "bench_cli.sh: options refused, records kept and left out"
exit $failed
