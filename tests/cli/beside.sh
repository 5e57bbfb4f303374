#!/bin/sh
# beside.sh -- bench/beside.sh without a GPU, on two programs that print times typed here.
#
# Book: chapter 18.  Checked by: make test, which runs it.  Next: ../../bench/beside.sh.
cd "$(dirname "$0")/../.." || exit 2
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
wrong() { echo "beside.sh: $*"; exit 1; }
# bench NAME FORWARD BACKWARD: a program; it adds 1 us at every call, so that a median of
# turns is no single one of them.
bench() {
    cat >"$W/$1" <<END
#!/bin/sh
echo "\$*" >>$W/$1.asked
n=\$(wc -l <$W/$1.asked)
echo '# copy 4.27 TB/s'
printf '%-18s%-9s%-22s%10s%10s%10s%9s%9s%8s\n' stage pass variant us p10 p90 GB/s TFLOP/s '% floor'
printf '%-18s%-9s%-22s%10.1f%10.1f%10.1f\n' 08_forward '' v9_slow 9999 1 2 08_forward '' v3 \$(($2 + n)) 1 2
[ -z "$3" ] || printf '%-18s%-9s%-22s%10.1f%10.1f%10.1f  ok o 1e-3\n' 13_backward '' v4 \$(($3 + n)) 1 2
END
    chmod +x "$W/$1"
}
beside() { rm -f "$W"/*.asked; sh bench/beside.sh "$@" >"$W/said" 2>"$W/err"; status=$?; }
export CASES="kda_8192_96 packed" ROUNDS=1
bench old 1000 2000
bench near 1015 1900
beside "$W/old" "$W/near"
[ $status = 0 ] && [ ! -s "$W/err" ] && grep -q '4 rows within 2 % .* 0 not' "$W/said" ||
    wrong "within: status $status, $(cat "$W/said" "$W/err")"
grep -qE '^kda_8192_96 +08_forward +1001\.5 +1016\.5 +1\.015  ok$' "$W/said" ||
    wrong "the medians: $(cat "$W/said")"
grep -q -- '--newest --stages 08,13 -T 32768 -H 64 --sequences 20' "$W/old.asked" ||
    wrong "asked: $(cat "$W/old.asked")"
bench slow 1000 2060
beside "$W/old" "$W/slow"
[ $status = 1 ] && [ "$(grep -c 'SLOWER$' "$W/said")" = 2 ] ||
    wrong "3 %: status $status, $(cat "$W/said")"
PERCENT=5 beside "$W/old" "$W/slow"
[ $status = 0 ] || wrong "3 of 5 %: status $status, $(cat "$W/said")"
bench half 1000 ''
beside "$W/old" "$W/half"
[ $status = 1 ] && [ "$(grep -c 'LACKS A ROW' "$W/said")" = 2 ] ||
    wrong "a row is not there: status $status, $(cat "$W/said")"
printf '#!/bin/sh\necho no GPU here >&2; exit 1\n' >"$W/none"
chmod +x "$W/none"
beside "$W/none" "$W/none"
[ $status = 1 ] && grep -q 'no GPU here' "$W/said" || wrong "no GPU: $status, $(cat "$W/said")"
refused() {
    want=$1; shift
    beside "$@"
    [ $status = 2 ] && [ "$(wc -l <"$W/err")" = 1 ] && grep -q -- "$want" "$W/err" ||
        wrong "$*: status $status, $(cat "$W/err")"
}
refused 'found 1 programs, expected OLD and NEW' "$W/old"
refused 'found no such program' "$W/old" "$W/not-there"
refused 'found no such commit' --build no-such-commit
ROUNDS=x refused 'ROUNDS=x' "$W/old" "$W/old"
PERCENT=-1 refused 'PERCENT=-1' "$W/old" "$W/old"
CASES=kda refused 'found kda' "$W/old" "$W/old"
echo "beside.sh: old beside new: within, slower, a row not there, no GPU; 6 refusals"
