#!/bin/sh
# tables.sh -- every kind of row that a run records is in some table of the book.
#
# Book: chapters 18 to 20.  Checked by: make test, which runs it.  Next: none.
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
failed=0
wants() {                       # table, a pattern that one of its lines must match
    grep -q -- "$2" "$W/t/$1" || { echo "tables.sh: $1 lacks $2"; failed=1; }
}
lacks() {
    grep -q -- "$2" "$W/t/$1" && { echo "tables.sh: $1 has $2"; failed=1; }
}
head() {                        # file, T, segments, ranks, gate, more
    printf '{"machine":"a GPU, a day","commit":"abc1234","T":%s,"H":32,"HV":32,' $2
    printf '"K":128,"V":128,"C":64,"segments":%s,"ranks":%s,"model":"kda",' $3 $4
    printf '"gate":"%s","save":"recompute","copy":4e12,"product":8e14%s,' $5 "$6"
    printf '"rows":[\n  {}'
} >>"$W/$1"
row() {                         # file, stage, variant, us, more
    printf ',\n  {"stage":"%s","variant":"%s","pass":0,"us":%s,"us_p10":%s,' $2 $3 $4 $4
    printf '"us_p90":%s,"bytes":1000000000,"flops":100000000000%s}' $4 "$5"
} >>"$W/$1"
end() { printf '\n]}\n' >>"$W/$1"; }
now() { printf ',"digest":"%s"' "$(sh bench/digest.sh $1 $2)"; }
layer() {                       # form, heads' parts, front, sum, exchange, main
    printf ',"form":"%s","head_parts":%s,"front":%s,"sum":%s,"exchange":%s,"main":%s' $*
}

# One GPU: a row of sources as they stand wins over a later one of others; peers.
head a.json 8192 1 1 live
row a.json 04_chunk v1_column 900 "$(now 04_chunk v1_column)"
row a.json 07_merge v1_column 40 "$(now 07_merge v1_column)"
row a.json 08_forward v2_stages 3000 "$(now 08_forward v2_stages)"
row a.json 13_backward v2_stages 9000 "$(now 13_backward v2_stages)"
row a.json 08_forward fla_kda 6000 ',"peer":"flash-linear-attention 0.5.2"'
row a.json 08_forward flashkda 4500 ',"peer":"FlashKDA"'
row a.json forward_backward fla_kda 12000 ',"peer":"flash-linear-attention 0.5.2"'
end a.json
old=',"digest":"old"'
head b.json 8192 1 1 live; row b.json 08_forward v2_stages 1000 $old
row b.json 08_forward v9_gone 7000 $old; end b.json
head s.json 8192 1 1 strong; row s.json 08_forward v2_stages 3100 $old; end s.json

# A token less and more, nothing kept: a row of six.
bare() {                        # T, gate, us
    head e.json $1 1 1 $2; row e.json 08_forward v2_stages $3 $old; end e.json
}
for T in 4095 4096 4097; do bare $T live 6$T; bare $T strong 7$T; done
sed -i.old 's/"recompute"/"none"/' "$W/e.json"

# Ranks: every form, the parts of a layer, one GPU alone, two groups of heads, a peer.
head r4.json 131072 4 4 live ',"gather_bytes":4194304,"gather_us":65'
for f in all_gather chain pipeline scan; do
    row r4.json 08_forward v2_stages 2500 "$(layer $f 1 700 400 100 1300)"
done
row r4.json 08_forward v2_stages 2000 "$(layer chain 2 600 300 90 1010)"
row r4.json 08_forward fla_kda_cp4 5000 ',"peer":"flash-linear-attention","ranks":4'
end r4.json
head r1.json 131072 8 1 live
row r1.json 08_forward v2_stages 9000 "$(layer all_gather 1 3000 2000 0 3000)"
row r1.json 07_merge v1_column 8000 "$old"
end r1.json
# Alone, in one segment; and in eight only, which is no measure of four GPUs.
head r0.json 131072 1 1 live
row r0.json 08_forward v2_stages 8000 "$(layer all_gather 1 3000 2000 0 3000)"
end r0.json
head r8.json 262144 8 1 live
row r8.json 08_forward v2_stages 9000 "$(layer all_gather 1 3000 2000 0 3000)"
end r8.json
head r9.json 262144 4 4 live
row r9.json 08_forward v2_stages 3000 "$(layer chain 1 700 400 100 1300)"
end r9.json
printf '# a GPU, a day, commit abc1234\n05_affine\n  ok      v2_pieces  %s\n' \
    'bf16  19 ok, 15 n/a  worst M 3.0e-07 of 1e-05 (case 12)  alive 1e+00' \
    >"$W/x-judge.txt"

# Chapter 15: cases behind one another in one file; the best tile, the two versions.
walk() { head x-scan.json 8192 1 1 live ",\"walk\":\"$1\""; }
room() { printf ',"work":%s,"saved":0%s' $1 "$(now 15_scan v2_mma)"; }
walk sequential; row x-scan.json 15_scan v2_mma 5000 "$(room 1048576)"; end x-scan.json
walk scan; row x-scan.json 15_scan v1_plain 9000 "$old"
row x-scan.json 15_scan v2_mma 7000 "$(room 3145728)"; end x-scan.json
head x-scan.json 8192 1 1 live; row x-scan.json 08_forward v9_gone 500 "$old"
end x-scan.json
for w in sequential scan; do            # without chunks, and a tile timed twice
    head x-scan.json 256 1 1 live ",\"walk\":\"$w\""
    row x-scan.json 15_scan v1_plain ${#w}00 "$old"; end x-scan.json
done
walk scan; row x-scan.json 15_scan v2_mma 7000 "$(room 3145728)"; end x-scan.json

printf '%-30s %-9s %5s  %-6s %5s  %s\n' what ranks n status s says \
    'KILL rank 1 of --exchange 0' processes 2 0 0.3 'rank 1 was lost' >"$W/x-nccl.txt"

sh bench/tables.sh "$W/t" "$W"/*.json "$W"/x-judge.txt "$W"/x-nccl.txt || failed=1
wants 17-edges.md '32 | 64.095† | 64.096† | 64.097† | 74.095† | 74.096† | 74.097† |'
lacks 17.md '64.097'
wants 19-nccl.md '`KILL rank 1 of --exchange 0` | processes | 2 | 0 | 0.3 | rank 1 was'
wants 15-forms.md '| forward | 5.000 | 7.000 | 64 |  | 0.500† | 1.0 | 3.0 | 0.0 | chu'
wants 15-forms.md '| 256 | forward | 1.000† | 0.400† | 64 |  |  | .*| scan |'
[ "$(grep -c 'v2_mma' "$W/t/15_scan.md")" = 1 ] || { echo "tables.sh: twice"; failed=1; }
wants 15_scan.md '`v1_plain` | 128 | 32 | 8192 | 64 | forward | 9.000† |'
lacks 08_forward.md 'v9_gone` | 0.500'
wants 04_chunk.md '`v1_column` | forward | 900.0 | 900.0.*900.0 | 1111 | 111.1 | 28 %'
wants 07_merge.md '`v1_column` | forward | 40.0 | 40.0.*40.0 | | | |$'    # one map
wants 07_merge.md '`v1_column`† | forward | 8000.0 | .* | 125 | 12.5 | 3 %'
lacks roofline.tsv '07/v1_column 100 2500'
wants 08_forward.md '`v2_stages` | 3.000 | 3.000.*3.000 | 8 % | 1.50'
wants 08_forward.md '`v2_stages`† | 3.100'
wants 08_forward.md '`v9_gone`† | 7.000'
lacks 08_forward.md '| 1.000 |'
wants 17.md '`fla_kda` | 6.000'
wants 17.md '^Others: flash-linear-attention 0.5.2; FlashKDA'
wants 17.md '`flashkda` | 4.500'
wants 17.md '| both | `fla_kda`'
wants 17.md '^\*\*KDA, strong'
wants 19.md '| forward | 4 | `v2_stages`† | chain, one segment a rank, heads in 2 | 2.0'
wants 19.md '| 0.600 | 0.300 | 0.090 | 1.010 | 4.00 |'
wants 19.md '| 3.000 | 0.700 | 0.400 | 0.100 | 1.300 |  |'
wants 19.md '| forward | 1 | `v2_stages`† | one segment | 8.000'
wants 19.md '`fla_kda_cp4`'
wants 19.md '4.0 MiB a rank over 4 GPUs: 65 µs'
wants 19-forms.md '2.500.*(0.100) | 2.500.*(0.100) | 2.500.*(0.100) | 2.500.*(0.100) |'
wants 18.md '05_affine | `v2_pieces` | bf16 | 19 ok, 15 n/a | M | 3.0e-07 | 1e-05'
wants predictions-maps.md 'maps of the strips.*| 0.300 |'
wants readme.md '`v2_stages` | 3.000 | 8 % | `fla_kda` 6.000, `flashkda` 4.500'
wants readme.md '| forward | 4 | chain, one segment a rank, heads in 2 | 2.000'
wants roofline.tsv '^roof 4 800$'
[ $failed = 0 ] && echo "tables.sh: every kind of recorded row is shown"
exit $failed
