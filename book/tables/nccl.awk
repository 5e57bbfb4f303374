# nccl.awk -- ranks on GPUs of their own: what was run, killed, stopped; the last record.
#
# Book: chapter 20.  Checked by: tests/cli/tables.sh.  Next: predictions.awk.
# The table that bench/gpu_nccl.sh leaves: words in columns of fixed width.
function trimmed(from, n,   s)
{
    s = substr($0, from, n)
    gsub(/^ +| +$/, "", s)
    return s
}

/^what +ranks +n +status/ { nccl_on = FILENAME; sub(/.*\//, "", nccl_on); nccl = nccl_bad = 0 }

nccl_on != "" && FILENAME ~ (nccl_on "$") && !/^what|^#/ && length($0) > 60 {
    nccl_bad += trimmed(49, 6) != "0"
    nccl_row[++nccl] = "| `" trimmed(1, 30) "` | " trimmed(32, 9) " | " trimmed(42, 5) \
                       " | " trimmed(49, 6) " | " trimmed(56, 5) " | " trimmed(63, 110) " |"
}

function nccl_table(f,   i)
{
    if (!nccl) return
    print "From `" nccl_on "`; status 0: as it should be.\n" > f
    print "| what | ranks | n | status | s | says |\n|:------|:--|--:|--:|--:|:-------|" > f
    for (i = 1; i <= nccl; i++) print nccl_row[i] > f
    if (nccl_bad)
        print "\nStatus 1: something was wrong in that run; later records in " \
              "`bench/results/` say what became of it." > f
    close(f)
}
