# bounds.awk -- chapter 18: what bounds a forward of packed sequences, kernel by kernel.
#
# Book: chapter 18.  Checked by: tests/cli/tables.sh.  Next: modes.awk.
# Rows of kind "counter" whose `what` is a kernel; the time of the whole call is the row
# of kind "time" of the same file and case.
get("kind") == "counter" && get("what") != "" && get("case") != "" {
    c = file SUBSEP get("case")
    if (!(c in bound_of)) { bound_of[c] = ++bounds; bound_key[bounds] = c }
    b = c SUBSEP (bound_rows[c]++)
    split("what us dram_bytes instructions issue tensor warps stalled T HV", name, " ")
    for (n in name) bound_cell[b, name[n]] = get(name[n])
}

get("kind") == "time" && get("stage") == "08_forward" && get("peer") == "" {
    c = file SUBSEP get("case")
    bound_us[c] = num("us"); bound_copy[c] = num("copy"); bound_words[c] = lengths_in_words()
    bound_on[c] = machine_of() ", commit `" get("commit") "`, `" file "`"
}

function bound_row(c, b, f,   chunks, rate)
{
    chunks = bound_cell[b, "T"] / 64 * bound_cell[b, "HV"]
    rate = bound_cell[b, "dram_bytes"] / bound_cell[b, "us"] / 1e6
    printf "| | `%s` | %.3f | %.0f | %.2f | %.0f %% | %.1f | %.0f %% | %.0f %% | %.0f %% | %s |\n",
        bound_cell[b, "what"], bound_cell[b, "us"] / 1e3, bound_cell[b, "dram_bytes"] / 1e6,
        rate, 100 * rate * 1e12 / bound_copy[c], bound_cell[b, "instructions"] / chunks / 1e3,
        bound_cell[b, "issue"], bound_cell[b, "tensor"], bound_cell[b, "warps"],
        bound_cell[b, "stalled"] > f
}

# The newest file that has a case.
function bound_table(f,   i, j, c, w, last, some)
{
    for (i = 1; i <= bounds; i++) {
        split(bound_key[i], w, SUBSEP)
        if (bound_us[bound_key[i]] > 0) { last[w[2]] = i; some = 1 }
    }
    if (!some) { print "No counters are recorded." > f; close(f); return }
    print "| sequences | kernel | ms | MB | TB/s | of a copy | instructions a chunk and " \
          "head, thousands | issue | tensor | warps | waits most for |" > f
    print "|:--|:--|--:|--:|--:|--:|--:|--:|--:|--:|:--|" > f
    for (i = 1; i <= bounds; i++) {
        c = bound_key[i]
        split(c, w, SUBSEP)
        if (last[w[2]] != i) continue
        printf "| %s | whole, not profiled | **%.3f** | | | | | | | | |\n", bound_words[c],
               bound_us[c] / 1e3 > f
        for (j = 0; j < bound_rows[c]; j++) bound_row(c, c SUBSEP j, f)
        w[3] = bound_on[c]
    }
    printf "\nRecorded on %s.\n", w[3] > f
    close(f)
}
