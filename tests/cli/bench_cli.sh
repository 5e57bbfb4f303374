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
head='{"T":8192,"H":96,"HV":96,"K":128,"V":128,"C":64,"segments":1,"ranks":1,'
head=$head'"model":"kda","gate":"live","save":"recompute","copy":4e12,"product":7e14'
row='"pass":0,"us":2000.00,"us_p10":1900.00,"us_p90":2100.00,"bytes":5,"flops":6'
cat >"$W/a.json" <<END
$head,"rows":[
  {},
  {"stage":"08_forward","variant":"v2_stages",$row},
  {"stage":"08_forward","variant":"v1_stages",$row},
  {"stage":"08_forward","variant":"theirs",$row,"peer":"theirs"}
]}
END
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
    refuses -e -b 1024 -e 4096 --json "$W/b.json"
    refuses --backend --backend mpi
    refuses --against --against "$W/a.json" --gate strong
    refuses --against --against "$W/a.json" -T 4096
    refuses --against --against "$W/missing.json"
    refuses --json -T 8192 --json "$W/a.json" --against "$W/a.json"
    [ -e "$W/b.json" ] && wrong "a refusal leaves a record"
else
    echo "bench_cli.sh: no kcp-bench (built without CUDA): its options were not tried"
fi

# A row enters with a verdict of the same run and a digest; another system's as it is.
echo "a GPU, a driver, a day" >"$W/machine.txt"
printf '08_forward\n  ok       v2_stages   5 cases\n  FAIL     v1_stages\n' \
    >"$W/judge.txt"
KEEP_README=1 sh bench/record.sh "$W" bench-cli abc1234 >/dev/null 2>"$W/err"
kept=bench/results/bench-cli-a.json
grep -q '"machine":"a GPU, a driver, a day","commit":"abc1234"' $kept || wrong "no head"
grep -q '"variant":"v2_stages".*"digest":"[0-9a-f]*"}' $kept || wrong "a row got lost"
grep -q '"variant":"v1_stages"' $kept && wrong "a row without a verdict entered"
grep -q 'v1_stages: no verdict ok' "$W/err" || wrong "it was not said"
grep -q '"variant":"theirs"' $kept || wrong "a peer's row got lost"
sh bench/table.sh "$W/a.json" | grep -q 'v2_stages .* 2.000 .* 1.00$' ||
    wrong "table.sh lacks a row"
[ $failed = 0 ] && echo "bench_cli.sh: options refused, records kept and left out"
exit $failed
