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
# What stands: every kernel has the digest that `fresh` gives a row, of one nvcc.
{
    printf 'stage\tvariant\tnvcc\tdigest\ncomm\t-\tGCC:12\tfresh\n'
    printf 'path\tfused\t-\tfresh\n'
    for v in 04_chunk/v1_column 07_merge/v1_column 08_forward/v2_stages \
            13_backward/v2_stages 15_scan/v2_mma 15_scan/v1_plain 05_affine/v2_pieces \
            17_ladder/v1_thread 17_ladder/v2_shared; do
        printf '%s\t%s\t13.0.88\tfresh\n' "${v%/*}" "${v#*/}"
    done
} >"$W/digests"
export DIGESTS="$W/digests"

# Rows are written as words, name=value; `table` makes a table with a column a name.
run="machine=a_GPU driver=1.2 date=2026-01-02 commit=abc1234 nvcc=13.0.88"
head() {                        # file, T, segments, ranks, gate, more words
    file=$1
    common="$run kind=time case=${1%.*} T=$2 H=32 HV=32 K=128 V=128 C=64 sequences=1"
    common="$common segments=$3 ranks=$4 model=kda gate=$5 save=recompute copy=4e12"
    common="$common product=8e14"
    shift 5
    common="$common $*"
}
row() {                         # stage, variant, us, more words
    echo "$common stage=$1 variant=$2 pass=0 us=$3 us_p10=$3 us_p90=$3" \
        "bytes=1000000000 flops=100000000000 $4 $5"
} >>"$W/words"
words() { echo "$run $*" >>"$W/words"; }
table() {                       # file
    awk '{ for (i = 1; i <= NF; i++) {
               name = substr($i, 1, index($i, "=") - 1)
               if (!(name in at)) { at[name] = ++n; column[n] = name }
               cell[NR, name] = substr($i, index($i, "=") + 1)
               if (name ~ /^(machine|what|says|cases)$/) gsub(/_/, " ", cell[NR, name]) } }
         END { for (r = 0; r <= NR; r++)
                   for (i = 1; i <= n; i++)
                       printf "%s%s", r ? cell[r, column[i]] : column[i],
                              i < n ? "\t" : "\n" }' "$W/words" >"$W/$1"
    : >"$W/words"
}
new=digest=fresh old=digest=old
layer() {                       # form, heads' parts, front, sum, exchange, main
    printf 'form=%s head_parts=%s front=%s sum=%s exchange=%s main=%s' "$@"
}

# One GPU: a row of kernels as they stand wins over a later one of others; peers.
head a.t 8192 1 1 live
row 04_chunk v1_column 900 $new
row 07_merge v1_column 40 $new
row 08_forward v2_stages 3000 $new
row 13_backward v2_stages 9000 $new
row 08_forward fla_kda 6000 peer=flash-linear-attention
row 08_forward flashkda 4500 peer=FlashKDA
row forward_backward fla_kda 12000 peer=flash-linear-attention
head b.t 8192 1 1 live
row 08_forward v2_stages 1000 $old
row 08_forward v9_gone 7000 $old
head s.t 8192 1 1 strong
row 08_forward v2_stages 3100 $old
head u.t 32768 1 1 strong
row 08_forward v2_stages 700 $new
row 08_forward flashkda 900 peer=FlashKDA

# A packed batch is another case than an even one, and its lengths are said.
head n.t 8192 1 1 live
row 08_forward v2_stages 3300 $new "sequences=5 lengths=4x1024,4096"

# A token less and more, nothing kept: a row of six.
bare() {                        # T, gate, us
    head e.t $1 1 1 $2 save=none
    row 08_forward v2_stages $3 $old
}
for T in 4095 4096 4097; do bare $T live 6$T; bare $T strong 7$T; done
table 2026-01-02-abc1234-1gpu.tsv

# Ranks: every form, the parts of a layer, one GPU alone, two groups of heads, a peer.
head r4.t 131072 4 4 live gather_bytes=4194304 gather_us=65 comm=fresh cc=GCC:12
for f in all_gather chain chain_window pipeline scan; do
    row 08_forward v2_stages 2500 $new "$(layer $f 1 700 400 100 1300)"
done
row 08_forward v2_stages 2000 $new "$(layer chain 2 600 300 90 1010)"
row 08_forward fla_kda_cp4 5000 peer=flash-linear-attention
# Unequal shares are a plan of their own; what was rounded on the wire is another case.
head r2.t 65536 2 2 live comm=fresh cc=GCC:12
row 08_forward v2_stages 1500 $new "$(layer chain 1 500 200 50 750)"
row 08_forward v2_stages 1400 $new "$(layer chain 1 500 200 40 650) cuts=46,54"
row 08_forward v2_stages 1450 $new "$(layer chain 1 500 200 40 650) cuts=44,56"
row 08_forward v2_stages 1300 $new "$(layer chain_bf16 1 500 200 20 580)"
# A family's layers over ranks, both passes of one stage, without their parts.
head g2.t 131072 2 2 live model=gla comm=fresh cc=GCC:12
for f in all_gather chain; do
    row 16_family v2_tiles 2700 $new "form=$f head_parts=1 pass=0"
    row 16_family v2_tiles 5700 $new "form=$f head_parts=1 pass=1"
done
head r1.t 131072 8 1 live
row 08_forward v2_stages 9000 $new "$(layer all_gather 1 3000 2000 0 3000)"
row 07_merge v1_column 8000 $old
# Alone, in one segment; and in eight only, which is no measure of four GPUs.
head r0.t 131072 1 1 live
row 08_forward v2_stages 8000 $new "$(layer all_gather 1 3000 2000 0 3000)"
head r8.t 262144 8 1 live
row 08_forward v2_stages 9000 $new "$(layer all_gather 1 3000 2000 0 3000)"
# Another exchange than the present one, under kernels as they stand: a dagger.
head r9.t 262144 4 4 live comm=old cc=GCC:12
row 08_forward v2_stages 3000 $new "$(layer chain 1 700 400 100 1300)"
# As many query/key heads, but other value heads: another case, whole before the next.
for n in 64 32; do
    head hv$n.t 524288 1 1 live H=16 HV=$n
    row 08_forward v2_stages 5000 $new; row 13_backward v2_stages 6000 $new
done
# A path whose row in the table is another, and one that is as it was.
head p.t 16384 1 1 live path=fused row=other
row 08_forward v2_stages 4000 $new
head q.t 16384 1 1 strong path=fused row=fresh
row 08_forward v2_stages 4100 $new
words kind=verdict stage=05_affine variant=v2_pieces storage=bf16 verdict=ok \
    cases=19_ok,_15_n/a worst=M error=3.0e-07 allowed=1e-05 ranks=1 $new
words kind=run what=KILL_rank_1_of_--exchange_0 how=processes n=2 status=0 \
    seconds=0.3 says=rank_1_was_lost
words kind=precision gate=live K=32 C=32 chunks=16 size=9.2e-01 fp32=1.0e-07 \
    tf32x3=9.6e-08 tf32=3.6e-06 bf16=6.6e-03 bf16_size=+0.6
for us in 999.9 876.4; do                          # of two times the later one
    words kind=torch what=forward how=kcp_torch model=kda gate=live T=8192 H=96 HV=96 \
        K=128 V=128 C=64 ranks=1 us=$us worst=dk error=5.1e-03 peer=torch-2
done
words kind=torch what=its_own_tests how=FLA n=8 says=4_passed
words kind=torch what=its_own_tests how=FLA n=8 says=5_passed
table 2026-01-02-abc1234-4gpu.tsv

# Chapter 15: cases behind one another; the best tile, the two versions.
walk() { head scan.t ${2:-8192} 1 1 live $1; }
room() { echo "work=$1 saved=0 $new"; }
walk walk=sequential; row 15_scan v2_mma 5000 "$(room 1048576)"
walk walk=scan; row 15_scan v1_plain 9000 $old
row 15_scan v2_mma 7000 "$(room 3145728)"
walk; row 08_forward v9_gone 500 $old
for w in sequential scan; do            # without chunks, and a tile timed twice
    walk walk=$w 256; row 15_scan v1_plain ${#w}00 $old
done
walk walk=scan; row 15_scan v2_mma 7000 "$(room 3145728)"
table 2026-01-02-abc1234-1gpu-scan.tsv

# Chapter 17: a rung beside the one before it; of a third nothing was counted.
head lad.t 8192 1 1 live H=96
row 17_ladder v1_thread 8000 $new; row 17_ladder v2_shared 2000 $new
row 17_ladder v3_mma 1000 $old
for v in v1_thread v2_shared; do
    words kind=counter stage=17_ladder variant=$v T=8192 H=96 registers=40 smem=2048 \
        instructions=24576000 wavefronts=122880 conflicts=12288 issue=36.4 tensor=0.4 \
        warps=6.25 dram=4.4 stalled=wait $new
done
table 2026-01-02-abc1234-1gpu-ladder.tsv

# Chapter 18: the kernels of a packed forward, from Nsight Compute's own page.
head pk.t 8192 1 1 live model=gdn lengths=8x1024
row 08_forward v3_records 146 $old
{
    echo '"Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum","dram__bytes_write.sum","smsp__inst_executed.sum","smsp__issue_active.avg.pct_of_peak_sustained_active","l1tex__data_pipe_lsu_wavefronts_mem_shared.sum","sm__cycles_elapsed.max"'
    echo '"","us","Mbyte","Mbyte","inst","%","","cycle"'
    echo '"void gdn_chunk_prepare_kernel<128, 1>(params)","50.0","80.0","20.0","8,192,000","42","66,000","1,000"'
    echo '"void scan_kernel<128, 2>(params)","80000","150000","10000","4,096,000","21","33,000","1,000"'
} >"$W/ncu.pk.csv"
sed -i '2s/"us","Mbyte","Mbyte"/"ns","Kbyte","Kbyte"/; 3s/"50.0","80.0","20.0"/"50000","80000","20000"/' \
    "$W/ncu.pk.csv"
awk -v stage=08_forward -v variant=v3_records -v T=8192 -v H=16 -v HV=32 -f bench/ncu.awk \
    "$W/ncu.pk.csv" >"$W/pk.counters"
awk -F '\t' 'NR == 1 { for (i = 1; i <= NF; i++) name[i] = $i; next }
    { s = "kind=counter"
      for (i = 1; i <= NF; i++) if ($i != "" && name[i] != "stalled") s = s " " name[i] "=" $i
      print s }' "$W/pk.counters" | while read -r s; do words $s $old; done
table 2026-01-02-abc1234-1gpu-packed.tsv

sh bench/tables.sh "$W/t" "$W"/*.tsv || failed=1
wants torch.md '8192, H.*96 | forward | kcp_torch | 0.876 | dk | 5.1e-03 |'
wants torch-judged.md '| its own tests | FLA | 8 | 5 passed |'
lacks torch.md '1.000'
lacks torch-judged.md '4 passed'
wants ladder.md '| `v2_shared` | 2.00 ms | 4.00 | 4 | 12.5 % | - | 40 | 2 KiB |'
wants ladder.md '| `v3_mma`† | 1.00 ms | 2.00 | 8 |'
wants ladder-2.md '| `v2_shared` | \*\*2.00 ms\*\* | 2.0 | 10 | 1 | 36 % | 0 % | 6.2 % | 4 % | wait |'
wants ladder-2.md '^4.00 times as fast'
[ ! -r "$W/t/ladder-3.md" ] || { echo "tables.sh: counters of none"; failed=1; }
wants 18-bounds.md '| 8.×.1024 | both, 0.146 ms unprofiled |'
wants 18-bounds.md '| `chunk.prepare` | 2.0 | 42 % | 0 % | 50 % |'
wants 18-bounds.md '| `scan` | 1.0 | 21 % | 0 % | 25 % |'
wants 18-bounds.md '| `scan` .* | 0.040 | 1.0 |$'     # 160 MB at the 4 TB/s of its run
wants 17-edges.md '32 | 64.095† | 64.096† | 64.097† | 74.095† | 74.096† | 74.097† |'
lacks 17.md '64.097'
wants 19-nccl.md '`KILL rank 1 of --exchange 0` | processes | 2 | 0 | 0.3 | rank 1 was'
wants 15-forms.md '| forward | 5.000 | 7.000 | 64 |  | 0.500† | 1.0 | 3.0 | 0.0 | chu'
wants 15-forms.md '| 256 | forward | 1.000† | 0.400† | 64 |  |  | .*| scan |'
[ "$(grep -c 'v2_mma' "$W/t/15_scan.md")" = 1 ] || { echo "tables.sh: twice"; failed=1; }
wants 15_scan.md '`v1_plain` | 128 | 32 | 8192 | 64 | forward | 9.000† |'
lacks 08_forward.md 'v9_gone` | 0.500'
wants 04_chunk.md '`v1_column` | forward | 900.0 | 900.0.*900.0 | 1111 | 111.1 | 28.*%'
wants 07_merge.md '`v1_column` | forward | 40.0 | 40.0.*40.0 | | | |$'    # one map
wants 07_merge.md '`v1_column`† | forward | 8000.0 | .* | 125 | 12.5 | 3.*%'
lacks roofline.tsv '07/v1_column 100 2500'
wants 08_forward.md '`v2_stages` | 3.000 | 3.000.*3.000 | 8.*% | 1.50'
wants 08_forward.md '`v2_stages`† | 3.100'
wants 08_forward.md '^| KDA.*32, lengths 4.*×.*1024, 4096 |'
wants 08_forward.md '`v2_stages` | 3.300'
lacks readme.md 'strong gates, T.*8192'          # nobody else was timed on it
wants readme.md 'strong gates, T.*32768.*| 0.700 .*`flashkda` 0.900'
wants readme.md '32, lengths 4.*×.*1024, 4096 |  | 3.300 '
wants 08_forward.md '`v9_gone`† | 7.000'
lacks 08_forward.md '| 1.000 |'
wants 17.md '|  | forward | `fla_kda` | 6.000.* | a |'
wants 17.md '^Others: flash-linear-attention; FlashKDA'
wants 17.md '`flashkda` | 4.500'
wants 17.md '| both | `fla_kda`'
wants 17.md '^| KDA, strong'
wants 17.md '^- \*a\*: a GPU, 1.2, 2026-01-02, commit `abc1234`'
wants 19.md '| forward | 4 | `v2_stages` | chain, one segment a rank, heads in 2 | 2.0'
wants 19.md '| 0.600 | 0.300 | 0.090 | 1.010 | 4.00 |'
wants 19.md '| 3.000 | 0.700 | 0.400 | 0.100 | 1.300 |  |'
wants 19.md '| forward | 1 | `v2_stages` | one segment | 8.000'
wants 19.md '| forward | 4 | `v2_stages`† | chain, one segment a rank | 3.000'
wants 19.md '^KDA, .*262144, .*; a GPU, 1.2, 2026-01-02, commit `abc1234`. Milli'
wants 17.md '| forward | `v2_stages`† | 4.000'
wants 17.md '| forward | `v2_stages` | 4.100'
wants 18-gpu.md '| live | 16 | 9.2e-01 | 1.0e-07 | 9.6e-08 | 3.6e-06 | 6.6e-03 | +0.6 % |'
wants 19.md '`fla_kda_cp4`'
wants 19.md '| 4.0 | 4 | 65 |'
wants 19.md '| forward | 2 | `v2_tiles`.* one segment a rank | 2.700 | | | | |  |'
wants 19.md '| backward | 2 | `v2_tiles`.* one segment a rank | 5.700 | | | | |  |'
wants 19-forms.md '^| GLA.*| backward | 2 | .*| 5.700 | 5.700 |'
for n in 32 64; do
    [ "$(grep -c "^| KDA.*524288.*HV.*$n |" "$W/t/17.md")" = 1 ] ||
        { echo "tables.sh: 17.md: HV = $n is not one case"; failed=1; }
done
wants 19-forms.md '\(| 2.500[^|]*(0.100) \)\{5\}|'
wants 19.md '| forward | 2 | `v2_stages` | chain, one segment a rank, shares 46.*:.*54 | 1.400'
wants 19.md '65536, .*, bf16 on the wire; a GPU'
wants 20-cuts.tsv '^44 chain 1450$'
wants 20-cuts.tsv '^50 chain 1500$'
lacks 20-cuts.tsv ' 1300'
wants 18.md '05_affine | `v2_pieces` | 1 | bf16 | 19 ok, 15 n/a | M | 3.0e-07 | 1e-05'
wants predictions.md '^| case | floor, ms '
lacks predictions.md '^| MODEL '
wants predictions-maps.md 'maps of the strips.*| 0.300 |'
wants predictions-maps.md 'one link of a fold.*| 0.005 | 0.040, 32 heads |'
wants predictions-maps.md 'all-gather of 4 MiB.*| 0.065 | 0.065 |'
wants readme.md '|  | 3.000 (8.*%) | 9.000 (3.*%) | `fla_kda` 6.000, `flashkda` 4.500 |'
wants readme.md ' | 4 |  | 2.000 (4.00) |  | `fla_kda_cp4` 5.000 |'
wants readme.md ' | 4 |  | 3.000† |  |  |'
wants roofline.tsv '^roof 4 800$'

# Where nothing is built, or by another nvcc, nothing is called old, and that is said.
sed 1q "$W/digests" >"$W/none"
sed 's/13\.0\.88/13.1.2/' "$W/digests" >"$W/another"
for d in none another; do
    DIGESTS=$W/$d sh bench/tables.sh "$W/t" "$W/2026-01-02-abc1234-1gpu.tsv" || failed=1
    lacks 08_forward.md '`v2_stages`†'
    wants 08_forward.md '`v2_stages` | 1.000'               # of alike the later
    wants 08_forward.md '^Not compared with the kernels as they stand'
done
# The README has 20 rows at most, of all that is recorded.
unset DIGESTS
sh bench/tables.sh "$W/t" || failed=1
awk '/^\|[-:|]+$/ { head = FILENAME; next } head == FILENAME && !/^\|/ { exit 1 } { head = "" }' \
    "$W"/t/*.md || { echo "tables.sh: a table without a row"; failed=1; }
n=$(grep -c '^| [A-Z].*[0-9]' "$W/t/readme.md")
[ "$n" -ge 10 ] && [ "$n" -le 20 ] ||
    { echo "tables.sh: $n rows for README.md"; failed=1; }
n=$(grep -h ' Milliseconds\.$' "$W"/t/*.md | sort | uniq -d | sed 1q)   # a case, a table
[ -z "$n" ] || { echo "tables.sh: two tables: $n"; failed=1; }
for f in bench/results/*.tsv; do        # every row has the columns that its file names
    case $f in *-test.tsv) continue ;; esac     # of a script that runs beside this one
    awk -F '\t' -v f="$f" 'FNR == 1 { n = NF } NF != n || !n { bad++ }
        END { if (bad) print "tables.sh: " f ": " bad " rows are cut"; exit bad > 0 }' \
        "$f" || failed=1
done
[ $failed = 0 ] && echo "tables.sh: every kind of recorded row is shown"
exit $failed
