#!/bin/sh
# bench_cli.sh -- checks which rows of kcp-bench become records, and which rows do not.
#
# Book: chapter 18.
# Usage: bench_cli.sh BUILD, in the tree's root. cases.tsv tests kcp-bench's options.
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"; rm -f bench/results/bench-cli-*' EXIT
failed=0
wrong() { echo "bench_cli.sh: $*"; failed=1; }

# Writes kcp-bench's table: three rows of one case, the last row from another system.
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
# A timed row of KCP becomes a record only if in the same run the judge accepted its variant
# and the row, and the kernel has a digest. Rows of other systems need no verdict or digest.
command -v python3 >/dev/null || { echo "bench_cli.sh: python3 not found: records not tested"
    exit $failed; }
kept=bench/results/bench-cli-test.tsv
echo "a GPU, a driver, 2026-01-02" >"$W/machine.txt"
cat >"$W/judge.txt" <<'END'
08_forward
  ok       v2_stages   bf16  5 ok  worst o 1e-3 of 5e-3 (case 1)
  ok       path        fused  v2_stages  2 cases
  FAIL     v1_stages   bf16  5 ok  worst o 1e-2 of 5e-3 (case 1)  alive 9e-01
END
printf 'stage\tvariant\tnvcc\tdigest\n08_forward\tv1_stages\t13.0\td1\n' >"$W/digests.tsv"
printf '08_forward\tv2_stages\t13.0\td2\npath\tfused\t-\tp1\n' >>"$W/digests.tsv"
awk 'BEGIN { FS = OFS = "\t" } { print $0, NR == 1 ? "path" : "fused" }' "$W/a.tsv" \
    >"$W/c.tsv"
awk 'BEGIN { FS = OFS = "\t" } NR > 1 { for (i = 1; i <= NF; i++) if ($i == "ok") $i = "FAIL" }
    { print }' "$W/a.tsv" >"$W/bad.tsv"
record() { python3 bench/records.py add "$@" bench-cli-test abc1234 >"$W/out" 2>"$W/err"; }
record "$W" || wrong "$(cat "$W/err")"
of() {                         # ROW NAME: prints column NAME of the first row that matches ROW
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
[ "$(grep -c '^time.*v2_stages' $kept)" = 2 ] || wrong "a row whose verdict is FAIL was kept"
[ -z "$(of '^time.*v1_stages' kind)" ] || wrong "a row without a verdict was kept"
grep -q 'v1_stages: no verdict ok' "$W/err" || wrong "the reason was not printed"
record "$W" || wrong "$(cat "$W/err")"
[ "$(grep -c '^time.*v2_stages' $kept)" = 4 ] || wrong "a second run replaced the first"

# If a run cannot become a record, the file of records must stay unchanged.
cp $kept "$W/before"
refused() {                    # WORDS: checks that `add` fails with one line that contains WORDS
    record "$W" && wrong "accepted: $1"
    [ "$(wc -l <"$W/err")" = 1 ] && grep -q "$1" "$W/err" || wrong "$1: $(cat "$W/err")"
    cmp -s "$W/before" $kept || wrong "the record changed: $1"
}
rm "$W/bad.tsv" "$W/c.tsv"
mv "$W/a.tsv" "$W/all"; cut -f 1-27 "$W/all" >"$W/a.tsv"; refused "need a column 'verdict'"
mv "$W/all" "$W/a.tsv"
sed -i '/v2_stages/d' "$W/digests.tsv"; refused 'v2_stages: no digest'
echo "a GPU" >"$W/machine.txt"; refused 'machine.txt: found'
rm "$W/machine.txt"; refused 'machine.txt: not found'
[ $failed = 0 ] && echo "bench_cli.sh: the right rows become records"
exit $failed
