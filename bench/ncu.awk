# ncu.awk -- Nsight Compute's raw page, one kernel a file, as rows of a table.
#
# Book: chapter 17, "Reading ncu".  Checked by: tests/cli/tables.sh.  Next: record.sh.
# usage: awk -v stage=17_ladder -v T=8192 -v H=96 -f bench/ncu.awk ncu.VARIANT.csv...
#        awk -v stage=08_forward -v variant=v3_records -v T=.. -v H=.. -v HV=.. -f ...
# The file's name says the variant, and its first kernel is the row; or, with a variant
# named, the file's name says the case, and each of its kernels is a row, `what`. A row
# has the counters that the book reads; what a file lacks is empty. `stalled` is the
# reason for which most warps waited, and how many of them for one that could issue.
function cells(line, to,   n, s)
{
    n = 0
    sub(/^"/, "", line)
    while (match(line, /"(,"|$|\r$)/)) {
        s = substr(line, 1, RSTART - 1)
        line = substr(line, RSTART + RLENGTH)
        gsub(/,/, "", s)
        to[++n] = s
        if (line == "" && RLENGTH < 3) break
    }
    return n
}

function value(name) { return name in at ? now[at[name]] : "" }

function bytes(name,   s)
{
    s = unit[at[name]]
    if (s ~ /^K/) return value(name) * 1e3
    if (s ~ /^M/) return value(name) * 1e6
    if (s ~ /^G/) return value(name) * 1e9
    return value(name)
}

function most_stalled(   i, name, best, what)
{
    for (i = 1; i <= ncells; i++) {
        name = head[i]
        if (name !~ /^smsp__average_warps_issue_stalled_.*_per_issue_active/) continue
        if (name ~ /_selected_/) continue
        if (now[i] + 0 > best) {
            best = now[i] + 0
            what = name
            sub(/.*_stalled_/, "", what)
            sub(/_per_issue.*/, "", what)
        }
    }
    gsub(/_/, " ", what)
    return what == "" ? "" : sprintf("%s %.1f", what, best)
}

function microseconds(name,   s)
{
    s = unit[at[name]]
    if (s ~ /^n/) return value(name) / 1e3
    return s ~ /^m/ ? value(name) * 1e3 : value(name)
}

# A kernel as the book calls it: without its template's arguments and its chip.
function kernel_name(   s)
{
    s = now[at["Kernel Name"]]
    sub(/^void /, "", s)
    sub(/[<(].*/, "", s)
    sub(/_kernel.*/, "", s)
    sub(/^(gdn|kda)_/, "", s)
    return s
}

BEGIN {
    OFS = "\t"
    named = variant
    print "stage", "variant", "T", "H", "registers", "smem", "cycles", "instructions",
          "warps", "issue", "fma", "tensor", "dram", "dram_bytes", "wavefronts",
          "conflicts", "loads", "load_sectors", "stores", "store_sectors",
          "local_sectors", "stalled" (named == "" ? "" : OFS "case" OFS "what" OFS "us" OFS "HV")
}

FNR == 1 { lines = 0 }
!/^"/ { next }
{ lines++ }
lines == 1 {
    split("", at)
    ncells = cells($0, head)
    for (i = 1; i <= ncells; i++) at[head[i]] = i
}
lines == 2 { cells($0, unit) }
lines == 3 || (lines > 3 && named != "") {
    cells($0, now)
    variant = FILENAME
    sub(/.*ncu\./, "", variant)
    sub(/\.csv$/, "", variant)
    more = ""
    if (named != "") {
        more = OFS variant OFS kernel_name() OFS microseconds("gpu__time_duration.sum")
        more = more OFS HV
        variant = named
    }
    l1 = "l1tex__t_sectors_pipe_lsu_mem_"
    asked = "l1tex__t_requests_pipe_lsu_mem_global_op_"
    print stage, variant, T, H, value("launch__registers_per_thread"),
          value("launch__shared_mem_per_block"), value("sm__cycles_elapsed.max"),
          value("smsp__inst_executed.sum"),
          value("sm__warps_active.avg.pct_of_peak_sustained_active"),
          value("smsp__issue_active.avg.pct_of_peak_sustained_active"),
          value("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active"),
          value("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"),
          value("dram__throughput.avg.pct_of_peak_sustained_elapsed"),
          bytes("dram__bytes_read.sum") + bytes("dram__bytes_write.sum"),
          value("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"),
          value("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
          value(asked "ld.sum"), value(l1 "global_op_ld.sum"),
          value(asked "st.sum"), value(l1 "global_op_st.sum"),
          value(l1 "local_op_ld.sum"), most_stalled() more
}
