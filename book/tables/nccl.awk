# nccl.awk -- ranks on GPUs of their own: what was run, killed, stopped; a table a file.
#
# Book: chapter 20.  Checked by: make book.  Next: predictions.awk.
get("kind") == "run" {
    if (!(file in run_file)) run_files[++nruns] = file
    run_file[file] = machine_of() ", commit `" get("commit") "`"
    if (get("status") != "0") run_bad = 1
    run_rows[file] = run_rows[file] "| `" get("what") "` | " get("how") " | " get("n") \
                     " | " get("status") " | " get("seconds") " | " get("says") " |\n"
}

function nccl_table(f,   i)
{
    for (i = 1; i <= nruns; i++) {
        print "From `" run_files[i] "`, " run_file[run_files[i]] \
              "; status 0: as it should be.\n" > f
        print "| what | ranks | n | status | s | says |" > f
        print "|:------|:--|--:|--:|--:|:-------|" > f
        print run_rows[run_files[i]] > f
    }
    if (run_bad)
        print "Status 1: something was wrong in that run; later records in " \
              "`bench/results/` say what became of it." > f
    close(f)
}
