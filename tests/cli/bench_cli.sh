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
        grep -q '^kcp-bench: stdout: found' "$W/err" || wrong "$(cat "$W/err")"
    fi
    refuses --gate --gate weak
    refuses --model --model rwkv
    refuses option --colour blue
    grep -q "found '--colour'" "$W/err" || wrong "it does not say which option"
    "$program" --version | grep -qx 'kcp-bench [0-9]*\.[0-9]*\.[0-9]*' ||
        wrong "no --version"
    refuses --json --json
    refuses --HV -H 4 --HV 6
    refuses --stage --stage 99
    refuses --segments -T 8 --segments 9
    refuses -e -b 1024 -e 4096 --json "$W/b.tsv"
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
    refuses --tsv --lengths 4x8192 --tsv "$W/a.tsv" --against "$W/a.tsv"
    refuses --against --lengths 8192 --against "$W/a.tsv"
    refuses --variant --variant nope
    mkfifo "$W/pipe"
    for x in "$W/pipe" "$W" /dev/null; do refuses --against --against "$x"; done
    rm "$W/pipe"
    refuses --against --against "$W/a.tsv" --gate strong
    refuses --against --against "$W/a.tsv" -T 4096
    refuses --against --against "$W/missing.json"
    refuses --json -T 8192 --json "$W/a.tsv" --against "$W/a.tsv"
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

# A list of lengths is read once, and written in one way.
try="$W/lengths"
${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -I. \
    bench/lengths_try.c bench/bench/lengths.c -o "$try" || failed=1
reads() { [ "$("$try" "$1")" = "$2" ] || wrong "lengths $1: $("$try" "$1"), not $2"; }
reads 8192 '1 8192 8192'
reads 4x8192,1024 '5 33792 4x8192,1024'
reads 2x8,8,2x8,1x3,8 '7 51 5x8,3,8'
reads 1200,800,1500,500,900,1100,1300,892 '8 8192 1200,800,1500,500,900,1100,1300,892'
reads 4096x4096 '4096 16777216 4096x4096'
for x in '' x 0 4x 4x0 8, 4x8x2 4097x1 4096x8192; do
    "$try" "$x" >"$W/out" && wrong "lengths $x: $(cat "$W/out")"; done

# An earlier record is lost only to a whole new one that has rows.
mkdir "$W/file"
try="$W/try" kept="$W/file/r.tsv"
${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -I. bench/record_file_try.c \
    bench/bench/record_file.c -o "$try" || failed=1
lines() { cat "$1" 2>/dev/null | tr '\n' ' '; }
# after ROWS ENDING: what stands at the name, and in how many files beside it.
after() {
    "$try" "$kept" "$1" "$2" 2>"$W/err"
    [ "$(lines "$kept")" = "$3" ] || wrong "record, $1 rows, $2: $(lines "$kept")"
    [ "$(ls "$kept".* 2>/dev/null | wc -l)" = "$4" ] ||
        wrong "record, $1 rows, $2: beside it $(ls "$kept".*)"
}
after 0 fails '' 0; [ -e "$kept" ] && wrong "a run without rows leaves a record"
after 1 killed 'row 0 ' 0                   # nothing was there: its rows stay
chmod 640 "$kept"
after 3 killed 'row 0 ' 1; rm -f "$kept".*
after 3 fails 'row 0 ' 1
grep -q "^kcp-bench: $kept is as it was; 3 rows of this run are in $kept\." "$W/err" ||
    wrong "where the rows are was not said: $(cat "$W/err")"
[ "$(cat "$kept".*)" = "$(printf 'row 0\nrow 1\nrow 2')" ] || wrong "rows are lost"
rm -f "$kept".*
after 0 ends 'row 0 ' 0
ln "$kept" "$W/file/other"; ln -s r.tsv "$W/file/link"
kept="$W/file/link"; after 2 ends 'row 0 row 1 ' 0; kept="$W/file/r.tsv"
[ -L "$W/file/link" ] && [ "$(lines "$kept")" = 'row 0 row 1 ' ] || wrong "a link was replaced"
[ "$(stat -c %a "$kept")" = 640 ] || wrong "a record has another mode"
[ "$(lines "$W/file/other")" = 'row 0 ' ] || wrong "an earlier record was written into"
[ "$("$try" /dev/stdout 2 ends | wc -l)" = 2 ] || wrong "a record to /dev/stdout"

# A row enters with a verdict of the same run and a digest; another system's as it is.
kept=bench/results/bench-cli-test.tsv
export FUNCTIONS="$W/made_of"
echo "a GPU, a driver, 2026-01-02" >"$W/machine.txt"
printf '08_forward\n  ok       v2_stages   bf16  5 ok  worst o 1e-3 of 5e-3 (case 1)\n' \
    >"$W/judge.txt"
printf '  FAIL     v1_stages   bf16  5 ok  worst o 1e-2 of 5e-3 (case 1)  alive 9e-01\n' \
    >>"$W/judge.txt"
printf 'stage\tvariant\tnvcc\tdigest\n08_forward\tv1_stages\t13.0\td1\n' >"$W/digests.tsv"
printf '08_forward\tv2_stages\t13.0\td2\npath\tfused\t-\tp1\n' >>"$W/digests.tsv"
rm -f "$W/b.tsv" "$W/order.tsv" "$W/empty.tsv" "$W/lengths.tsv"
record() { KEEP_README=1 sh bench/record.sh "$@" >"$W/out" 2>"$W/err"; }
record "$W" bench-cli-test abc1234 || wrong "$(cat "$W/err")"
# of ROW NAME: the value of a column by its name, of the first row that matches.
of() {
    awk -F '\t' -v row="$1" -v name="$2" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $0 ~ row && !n++ { print $(at[name]) }' $kept
}
is() { [ "$(of "$1" "$2")" = "$3" ] || wrong "$1: $2 is '$(of "$1" "$2")', not '$3'"; }
for pair in kind=time machine=a_GPU driver=a_driver date=2026-01-02 commit=abc1234 \
        nvcc=13.0 digest=d2 case=a us=2000.00 T=8192 gate=live path=; do
    is '^time.*v2_stages' "${pair%%=*}" "$(echo "${pair#*=}" | tr _ ' ')"
done
is '^verdict.*v1_stages' verdict FAIL; is '^verdict.*v1_stages' alive 9e-01
is '^verdict.*v2_stages' error 1e-3; is '^verdict.*v2_stages' cases '5 ok'
[ -z "$(of '^time.*v1_stages' kind)" ] || wrong "a row without a verdict entered"
grep -q 'v1_stages: no verdict ok' "$W/err" || wrong "it was not said"
is '^time.*theirs' us 2000.00; is '^time.*theirs' digest ''
sh bench/table.sh "$W/a.tsv" | grep -q 'v2_stages .* 2.000 .* 1.00$' ||
    wrong "table.sh lacks a row"

# A row whose own verdict is FAIL, or which has none, does not enter either.
for verdict in FAIL ''; do
    mkdir -p "$W/unjudged"
    cp "$W/machine.txt" "$W/judge.txt" "$W/digests.tsv" "$W/unjudged"
    awk -v is="$verdict" 'BEGIN { FS = OFS = "\t" }
        NR == 1 { for (i = 1; i <= NF; i++) if ($i == "verdict") at = i; print; next }
        { $at = is; print }' "$W/a.tsv" >"$W/unjudged/c.tsv"
    record "$W/unjudged" bench-cli-test abc1234 || wrong "$(cat "$W/err")"
    grep -q "v2_stages: found verdict '$verdict' in its row" "$W/err" ||
        wrong "a row of verdict '$verdict': $(cat "$W/err")"
    [ "$(grep -c '^time.*v2_stages' $kept)" = 1 ] || wrong "a row of '$verdict' entered"
done

# Over ranks a row needs no verdict of its own, but judge.txt's; notes enter as they are.
ranks() {                       # VARIANT COLUMNS: a row over two ranks, with a verdict or not
    awk -v v="$1" -v columns="$2" 'BEGIN { FS = OFS = "\t" }
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; last = at["product"] }
        NR > 1 && $2 != v { next }
        NR > 1 { $(at["form"]) = "chain"; $(at["ranks"]) = 2; $(at["verdict"]) = "" }
        columns == "none" { NF = last } { print }' "$W/a.tsv" >"$W/unjudged/c.tsv"
}
printf 'comm\t-\tGCC:12\tc1\n' >>"$W/unjudged/digests.tsv"
printf 'what\tsays\njudged rows\t1 of 1 rows say FAIL\n' >"$W/unjudged/notes.tsv"
for columns in all none; do
    cp $kept "$W/before"
    ranks v2_stages $columns
    record "$W/unjudged" bench-cli-test abc1234 || wrong "$(cat "$W/err")"
    [ "$(grep -c '^time.*v2_stages.*chain' $kept)" = 1 ] ||
        wrong "a row over ranks with judge.txt's verdict, $columns columns: $(cat "$W/err")"
    is '^note' what 'judged rows'; is '^note' says '1 of 1 rows say FAIL'
    cp "$W/before" $kept
    ranks v1_stages $columns                            # judge.txt says FAIL
    record "$W/unjudged" bench-cli-test abc1234 || wrong "$(cat "$W/err")"
    grep -q 'v1_stages: no verdict ok' "$W/err" || wrong "over ranks: $(cat "$W/err")"
    mv "$W/unjudged/judge.txt" "$W/judged"; ranks v2_stages $columns
    record "$W/unjudged" bench-cli-test abc1234 || wrong "$(cat "$W/err")"
    grep -q 'v2_stages: no verdict ok' "$W/err" || wrong "no judge.txt: $(cat "$W/err")"
    mv "$W/judged" "$W/unjudged/judge.txt"
    grep -q '^time.*chain' $kept && wrong "a row over ranks that nobody judged entered"
    cp "$W/before" $kept
done
rm "$W/unjudged/notes.tsv"

# A table of one GPU without the column is of a program that judged nothing: refused.
cp $kept "$W/before"
cut -f 1-27 "$W/a.tsv" >"$W/unjudged/c.tsv"
head -1 "$W/unjudged/c.tsv" | grep -q 'product$' || wrong "the column is elsewhere"
KEEP_README=1 sh bench/record.sh "$W/unjudged" bench-cli-test abc1234 >"$W/out" 2>"$W/err"
[ $? = 2 ] && [ "$(wc -l <"$W/err")" = 1 ] &&
    grep -q "c.tsv: found no column 'verdict', expected one" "$W/err" ||
    wrong "a table of one GPU without verdicts: $(cat "$W/err")"
cmp -s "$W/before" $kept || wrong "a table without verdicts changed the record"

# Rows of a wrong number: all of them say FAIL, or nothing is timed. Programs stand in.
mkdir -p "$W/fake" "$W/told"
cat >"$W/fake/kcp-bench" <<'END'
#!/bin/sh
[ "$KCP_BENCH_WRONG" = 1 ] || exit 9
while [ $# -gt 0 ]; do [ "$1" != --tsv ] || to=$2; shift; done
[ "$ROWS" = none ] || { printf 'stage\tverdict\n'; for v in $ROWS; do
    printf '08_forward\t%s\n' "$v"; done; } >"$to"
exit $STATUS
END
chmod +x "$W/fake/kcp-bench"
wrong_row() {                   # STATUS ROWS: what a program does; the status is wrong_row's
    STATUS=$1 ROWS=$2 sh bench/wrong_row.sh "$W/fake" "$W/told" >"$W/out" 2>&1
}
wrong_row 1 'FAIL FAIL' || wrong "rows that say FAIL are not believed: $(cat "$W/out")"
tail -1 "$W/told/notes.tsv" | grep -q '^judged rows.*2 of 2 rows say FAIL$' ||
    wrong "wrong_row.sh notes $(cat "$W/told/notes.tsv")"
for case in '0 ok' '1 FAIL ok' '0 FAIL' '1 MARGINAL' '1 none' '1' '137 FAIL'; do
    wrong_row ${case%% *} "$(echo "$case" | cut -s -d ' ' -f 2-)" &&
        wrong "a wrong row passes: status and rows $case"
    grep -q '^wrong_row.sh: with a wrong number planted .* expected all of them' "$W/out" ||
        wrong "it does not say: $(cat "$W/out")"
    [ ! -e "$W/told/notes.tsv" ] || wrong "a wrong row that passes leaves a note"
done
sh bench/wrong_row.sh "$W/fake" >"$W/out" 2>&1; [ $? = 2 ] || wrong "wrong_row.sh: no folder"
# gpu_bench.sh asks it first, and stops; so does gpu_ranks.sh where it judges rows.
printf '#!/bin/sh\necho "a GPU, a driver"; echo "another, a driver"\n' >"$W/fake/nvidia-smi"
printf '#!/bin/sh\n' >"$W/fake/make"
printf '#!/bin/sh\necho "0 passed"\n' >"$W/fake/kcp-check"
chmod +x "$W"/fake/*
for script in gpu_bench gpu_ranks; do
    rm -rf "$W/run"
    PATH="$W/fake:$PATH" STATUS=0 ROWS=ok OUT="$W/run" MORE=--judge CASES=dplr LIMIT=90 \
        sh bench/$script.sh "$W/fake" >"$W/out" 2>&1
    [ $? = 1 ] && grep -q 'stopped: no row of a wrong number' "$W/out" ||
        wrong "$script.sh goes on though a wrong row passes: $(tail -3 "$W/out")"
    [ "$(ls "$W/run" | grep -cvE '^(machine.txt|digests.tsv|judge.txt)$')" = 0 ] ||
        wrong "$script.sh timed though a wrong row passes: $(ls "$W/run")"
done

# A second run of that machine and commit: its rows follow, its path needs its verdict.
mkdir "$W/second"
cp "$W/machine.txt" "$W/judge.txt" "$W/digests.tsv" "$W/second"
awk 'BEGIN { FS = OFS = "\t" } { print $0, NR == 1 ? "path" : "fused" }' "$W/a.tsv" \
    >"$W/second/c.tsv"
record "$W/second" bench-cli-test abc1234 || wrong "$(cat "$W/err")"
grep -q 'v2_stages, path fused: no verdict ok' "$W/err" || wrong "a path without a verdict"
[ "$(grep -c '^time.*v2_stages' $kept)" = 1 ] || wrong "what was there is gone"
echo '  ok       path        fused  v2_stages  2 cases' >>"$W/second/judge.txt"
record "$W/second" bench-cli-test abc1234 || wrong "$(cat "$W/err")"
is '^time.*v2_stages.*fused' row p1; is '^time.*v2_stages.*fused' digest d2
[ "$(grep -c '^time.*v2_stages' $kept)" = 2 ] || wrong "a path with a verdict is not there"

# Repeats: who passed gave the same bits N times; who failed has no row.
sed '1s/^/repeats 100\n/' "$W/judge.txt" >"$W/second/repeats.txt"
record "$W/second" bench-cli-test abc1234 || wrong "$(cat "$W/err")"
is '^repeat' variant v2_stages; is '^repeat' verdict same; is '^repeat' repeats 100
is '^repeat' digest d2
[ "$(grep -c '^repeat' $kept)" = 1 ] || wrong "a variant that failed has a row of repeats"

# What no record can be made of is refused, and what is there stays.
cp $kept "$W/before"
refused() {                     # what it says
    record "$W/second" bench-cli-test abc1234 && wrong "taken: $1"
    [ "$(wc -l <"$W/err")" = 1 ] && grep -q "$1" "$W/err" || wrong "$1: $(cat "$W/err")"
    cmp -s "$W/before" $kept || wrong "a refusal changed the record: $1"
}
sed -i 1d "$W/second/repeats.txt"; refused 'found no line "repeats N"'
rm "$W/second/repeats.txt"
sed -i '/v2_stages/d' "$W/second/digests.tsv"; refused 'v2_stages: found no digest'
cp "$W/digests.tsv" "$W/second"
sed -i '1s/us_p90/us90/' "$W/second/c.tsv"; refused "found column 'us90'"
rm "$W/second/c.tsv"; echo "a GPU" >"$W/second/machine.txt"; refused 'machine.txt: found'
rm "$W/second/machine.txt"; refused 'machine.txt: not found'
[ $failed = 0 ] && echo "bench_cli.sh: options refused, records kept and left out"
exit $failed
