# ladder.awk -- chapter 17: each rung beside the one before it, timed and counted.
#
# Book: chapter 17.  Checked by: make book.  Next: nccl.awk.
# Times come from rows of kind "time" of the stage, counters from those of kind
# "counter". ladder.md has all rungs; ladder-N.md rung N and its predecessor.
get("kind") == "time" && get("stage") == "17_ladder" && get("variant") ~ /^v[0-9]_/ {
    rung_us[get("variant"), get("H")] = num("us")
    rung_floor[get("H")] = 1e6 * num("bytes") / num("copy")
    if (1e6 * num("flops") / num("product") > rung_floor[get("H")])
        rung_floor[get("H")] = 1e6 * num("flops") / num("product")
    rung_copy = num("copy"); rung_product = num("product")
    rung_flops[get("H")] = num("flops"); rung_bytes[get("H")] = num("bytes")
    rung_T = get("T")
    ladder_on = machine_of() ", commit `" get("commit") "`, `" file "`"
    if (get("H") == 96 && !rung_seen[get("variant")]++) rung[++rungs] = get("variant")
    if (standing(get("stage"), get("variant")) == STALE) rung_old[get("variant")] = 1
}

get("kind") == "counter" && get("stage") == "17_ladder" {
    v = get("variant")
    counted[v] = 1
    split("registers smem cycles instructions warps issue fma tensor dram dram_bytes " \
          "wavefronts conflicts loads load_sectors stores store_sectors stalled", name, " ")
    for (c in name) counter[v, name[c]] = get(name[c])
    counted_chunks = get("T") / 64 * get("H")
}

function sorted_rungs(   i, j, x)
{
    for (i = 2; i <= rungs; i++)
        for (j = i; j > 1 && rung[j - 1] > rung[j]; j--) {
            x = rung[j]; rung[j] = rung[j - 1]; rung[j - 1] = x
        }
}

# The name as the book says it, without the chip that it is for.
function rung_name(v) { sub(/_sm90/, "", v); return "`" v "`" }
function rung_time(us)
{
    if (!us) return "-"
    return us >= 1000 ? sprintf("%.2f ms", us / 1000) : sprintf("%.0f µs", us)
}

function counters(v, f)
{
    printf " %.1f | %.0f | %.0f | %.0f %% | %.0f %% | %.1f %% | %.0f %% | %s |\n",
        counter[v, "instructions"] / counted_chunks / 1000,
        counter[v, "wavefronts"] / counted_chunks,
        counter[v, "conflicts"] / counted_chunks, counter[v, "issue"],
        counter[v, "tensor"], counter[v, "warps"], counter[v, "dram"],
        counter[v, "stalled"] > f
}

function counters_head(f)
{
    print "| instructions a chunk, thousands | wavefronts of shared memory a chunk " \
          "| of them conflicts | issue | tensor | warps | DRAM | waits most for |" > f
}

function pair_table(f, a, b)
{
    printf "Before and after, T = %d, H = 96; recorded on %s.\n\n", rung_T,
           ladder_on > f
    printf "| rung | time " > f
    counters_head(f)
    print "|:--|--:|--:|--:|--:|--:|--:|--:|--:|:--|" > f
    printf "| %s | %s |", rung_name(a), rung_time(rung_us[a, 96]) > f
    counters(a, f)
    printf "| %s | **%s** |", rung_name(b), rung_time(rung_us[b, 96]) > f
    counters(b, f)
    printf "\n%.2f times as fast.\n", rung_us[a, 96] / rung_us[b, 96] > f
    close(f)
}

function ladder_tables(out,   i, f, v, stale_)
{
    if (!rungs) return
    sorted_rungs()
    f = out "/ladder.md"
    printf "Recorded on %s; there a copy moved %.2f TB/s and a bf16 product did %.0f " \
           "TFLOP/s. The floor is %.0f µs for 96 heads, %.0f µs for 32.\n\n", ladder_on,
           rung_copy / 1e12, rung_product / 1e12, rung_floor[96], rung_floor[32] > f
    print "| rung | H = 96 | than the one before | than the first | of the floor " \
          "| H = 32 | registers | shared memory a block |" > f
    print "|:--|--:|--:|--:|--:|--:|--:|--:|" > f
    for (i = 1; i <= rungs; i++) {
        v = rung[i]
        if (rung_old[v]) stale_ = 1
        printf "| %s%s | %s | %s | %.0f | %.1f %% | %s | %s | %s |\n", rung_name(v),
               rung_old[v] ? "†" : "", rung_time(rung_us[v, 96]),
               i == 1 ? "" : sprintf("%.2f", rung_us[rung[i - 1], 96] / rung_us[v, 96]),
               rung_us[rung[1], 96] / rung_us[v, 96],
               100 * rung_floor[96] / rung_us[v, 96], rung_time(rung_us[v, 32]),
               counter[v, "registers"],
               sprintf("%.0f KiB", counter[v, "smem"] / 1024) > f
        if (i > 1 && counted[v] && counted[rung[i - 1]])
            pair_table(out "/ladder-" i ".md", rung[i - 1], v)
    }
    for (i = 0; i <= rungs; i++) {
        v = rung[i]
        sub(/_sm90/, "", v)
        print i ? v : "floor", i ? rung_us[rung[i], 96] : rung_floor[96] \
            > (out "/ladder.tsv")
    }
    close(out "/ladder.tsv")
    if (stale_) print "\n† of kernels that have changed since." > f
    close(f)
    f = out "/ladder-counters.md"
    printf "Nsight Compute, T = %d, H = 96, the clocks left alone; averages over all " \
           "132 processors, of which 96 have a head.\n\n", rung_T > f
    printf "| rung " > f
    counters_head(f)
    print "|:--|--:|--:|--:|--:|--:|--:|--:|:--|" > f
    for (i = 1; i <= rungs; i++) if (counted[rung[i]]) {
        printf "| %s |", rung_name(rung[i]) > f
        counters(rung[i], f)
    }
    close(f)
}
