# bounds.awk -- chapter 18: what bounds a forward of packed sequences, kernel by kernel.
#
# Book: chapter 18.  Checked by: make book.  Next: modes.awk.
# Rows of kind "counter" whose `what` is a kernel; the time of the whole call is the
# newest row of kind "time" of the same case.
get("kind") == "counter" && get("what") != "" && get("case") != "" {
    c = get("case")
    if (!(c in bound_of)) bound_key[bound_of[c] = ++bounds] = c
    if (bound_file[c] != file) bound_rows[c] = 0
    bound_file[c] = file
    bound_from[c] = machine_of() ", commit `" get("commit") "`, `" file "`"
    b = c SUBSEP (bound_rows[c]++)
    split("what instructions issue tensor warps stalled T HV wavefronts cycles " \
          "dram_bytes", name, " ")
    for (i in name) bound_cell[b, name[i]] = get(name[i])
}

get("kind") == "time" && get("stage") == "08_forward" && get("peer") == "" {
    c = get("case")
    bound_us[c] = num("us"); bound_words[c] = lengths_in_words()
    bound_copy[c] = num("copy")
}

# Of the clocks of 132 processors, those in which shared memory served a warp's load or store, of all.
function bound_shared(b)
{
    if (!(bound_cell[b, "cycles"] > 0)) return ""
    return sprintf("%.0f %%", bound_cell[b, "wavefronts"] / bound_cell[b, "cycles"] \
                   / 1.32)
}

# How long a copy takes for the bytes that the memory moved, in milliseconds.
function bound_moved(c, b)
{
    if (!(bound_cell[b, "dram_bytes"] > 0 && bound_copy[c] > 0)) return ""
    return sprintf("%.3f", 1e3 * bound_cell[b, "dram_bytes"] / bound_copy[c])
}

function bound_clocks(b)
{
    if (!(bound_cell[b, "cycles"] > 0)) return ""
    return sprintf("%.1f", bound_cell[b, "cycles"] / 1e3)
}

function bound_row(c, b, f,   chunks)
{
    chunks = bound_cell[b, "T"] / 64 * bound_cell[b, "HV"]
    printf "| | `%s` | %.1f | %.0f %% | %.0f %% | %s | %.0f %% | %s | %s | %s |\n",
        bound_cell[b, "what"], bound_cell[b, "instructions"] / chunks / 1e3,
        bound_cell[b, "issue"], bound_cell[b, "tensor"], bound_shared(b),
        bound_cell[b, "warps"], bound_cell[b, "stalled"], bound_moved(c, b),
        bound_clocks(b) > f
}

function bound_table(f,   i, j, c)
{
    if (!bounds) { print "No counters are recorded." > f; close(f); return }
    print "| sequences | kernel | instructions a chunk and head, thousands | issue " \
          "| tensor | shared memory | warps | waits most for | its bytes, ms " \
          "| clocks, thousands |" > f
    print "|:--|:--|--:|--:|--:|--:|--:|:--|--:|--:|" > f
    for (i = 1; i <= bounds; i++) {
        c = bound_key[i]
        if (!(bound_us[c] > 0)) continue
        printf "| %s | both, %.3f ms unprofiled | | | | | | | | |\n", bound_words[c],
               bound_us[c] / 1e3 > f
        for (j = 0; j < bound_rows[c]; j++) bound_row(c, c SUBSEP j, f)
    }
    printf "\nCounted on %s.\n", bound_from[bound_key[bounds]] > f
    close(f)
}
