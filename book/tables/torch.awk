# torch.awk -- the layer called from PyTorch beside FLA's functions; others' kernels and
# tests, judged or run.
#
# Book: chapter 19.  Checked by: tests/cli/tables.sh.  Next: nccl.awk.
# Rows with a time are of torch_layer.py; the others say what was run and came out.
get("kind") == "torch" && get("us") != "" {
    torch_name(machine_of() ", commit `" get("commit") "`")
    torch_row[++ntorch] = "| " in_words() (num("ranks") > 1 ? ", " get("ranks") " GPUs" \
        : "") " | " get("what") " | " get("how") " | " \
        sprintf("%.3f", num("us") / 1000) " | " get("worst") " | " get("error") " |"
    torch_name(get("peer"))
}

get("kind") == "torch" && get("us") == "" {
    what = get("what")
    gsub(/--/, "\\-\\-", what)              # pandoc would make a dash of it
    judged_row[++njudged] = "| " what " | " get("how") " | " get("n") " | " \
                            get("says") " |"
}

function torch_name(s)
{
    if (!(s in torch_known)) torch_named[++nnamed] = s
    torch_known[s]
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
        printf "Recorded on" > times
        for (i = 1; i <= nnamed; i++) printf " %s;", torch_named[i] > times
        print " medians.\n" > times
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
