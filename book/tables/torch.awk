# torch.awk -- the layer called from PyTorch beside FLA's functions; others' kernels and
# tests, judged or run.
#
# Book: chapter 19.  Checked by: make book.  Next: nccl.awk.
# Rows with a time are of torch_layer.py; the others say what was run and came out. Of a
# thing that was timed or run twice the later one counts, in the place of the earlier.
get("kind") == "torch" && get("us") != "" {
    what = "| " in_words() (num("ranks") > 1 ? ", " get("ranks") " GPUs" : "") " | " \
           get("what") " | " get("how") " | "
    if (!(what in torch_at)) torch_at[what] = ++ntorch
    torch_row[torch_at[what]] = what sprintf("%.3f", num("us") / 1000) " | " \
                                get("worst") " | " get("error") " |"
    torch_by[torch_at[what]] = machine_of() ", commit `" get("commit") "`; " get("peer")
}

get("kind") == "torch" && get("us") == "" {
    what = get("what")
    gsub(/--/, "\\-\\-", what)              # pandoc would make a dash of it
    what = "| " what " | " get("how") " | "
    if (!(what in judged_at)) judged_at[what] = ++njudged
    judged_row[judged_at[what]] = what get("n") " | " get("says") " |"
}

# Who made the rows that are left: machines, commits and versions, each once.
function torch_names(   i, j, n, s, part, known)
{
    for (i = 1; i <= ntorch; i++) {
        n = split(torch_by[i], part, "; ")
        for (j = 1; j <= n; j++)
            if (!(part[j] in known)) {
                known[part[j]]
                s = s " " part[j] ";"
            }
    }
    return s
}

# A row without its case where that is the one of the row above.
function torch_cells(row,   what)
{
    what = substr(row, 1, index(substr(row, 3), " | ") + 2)
    if (what == torch_above) return "| " substr(row, length(what))
    torch_above = what
    return row
}

function torch_tables(times, said,   i)
{
    if (ntorch) {
        print "Recorded on" torch_names() " medians.\n" > times
        print "| case | pass | by | ms | worst of all outputs | its error |" > times
        print "|:--|:--|:--|--:|:--|--:|" > times
        for (i = 1; i <= ntorch; i++) print torch_cells(torch_row[i]) > times
        close(times)
    }
    if (!njudged) return
    print "| what | of | how many | came out |" > said
    print "|:--|:--|--:|:--|" > said
    for (i = 1; i <= njudged; i++) print judged_row[i] > said
    close(said)
}
