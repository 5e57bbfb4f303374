# precision.awk -- what M loses in narrower arithmetic over many chunks, on a GPU.
#
# Book: chapter 19.  Checked by: make book.  Next: nccl.awk.
# The rows are those of kcp-precision; of several runs the last file's stand.
get("kind") == "precision" {
    if (file != precision_file) nprecision = 0
    precision_file = file
    precision_on = machine_of() ", commit `" get("commit") "`"
    precise_K = get("K"); precise_C = get("C")
    precise[++nprecision] = "| " get("gate") " | " get("chunks") " | " get("size") \
                            " | " get("fp32") " | " get("tf32x3") " | " get("tf32") \
                            " | " get("bf16") " | " get("bf16_size") " % |"
}

function precision_table(f,   i)
{
    if (!nprecision) return
    printf "Recorded on %s: K = %d, chunks of %d tokens; relative error of $M$.\n\n",
           precision_on, precise_K, precise_C > f
    print "| gates | chunks | norm of $M$ / sqrt(K) | fp32 | tf32x3 | tf32 | bf16 " \
          "| size of bf16 $M$ |" > f
    print "|:--|--:|--:|--:|--:|--:|--:|--:|" > f
    for (i = 1; i <= nprecision; i++) print precise[i] > f
    close(f)
}
