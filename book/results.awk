# results.awk -- tables of chapters and the points of the roofline, from recorded runs.
#
# Book: chapters 01 to 19.  Usage: awk -v out=build/book/results -f results.awk
# bench/results/*.json, as kcp-bench writes them: a head line, then a line a variant.
function num(key,   s) { s = $0; if (!match(s, "\"" key "\":[-0-9.e+]+")) return ""; s = substr(s, RSTART, RLENGTH); sub(/.*:/, "", s); return s + 0 }
function str(key,   s) { s = $0; if (!match(s, "\"" key "\":\"[^\"]*\"")) return ""; s = substr(s, RSTART, RLENGTH); sub(/^"[^"]*":"/, "", s); sub(/"$/, "", s); return s }
/"copy":/ {
    copy = num("copy"); product = num("product"); file = FILENAME; sub(/.*\//, "", file)
    ranks = num("ranks") > 1 ? num("ranks") : 1
    if (ranks > 1 && num("gather_us"))
        gather[++gathers] = sprintf("all-gather of %.1f MiB a rank over %d GPUs: %.0f µs (`%s`)", num("gather_bytes") / 1048576, ranks, num("gather_us"), file)
    what = sprintf("%s, %s gates, T = %d, H = %d%s, K = %d, V = %d, C = %d%s", toupper(str("model")), str("gate"), num("T"), num("H"),
                   num("HV") > num("H") ? sprintf(", HV = %d", num("HV")) : "", num("K"), num("V"), num("C"),
                   (num("sequences") > 1 ? sprintf(", %d packed sequences", num("sequences")) : "") (num("segments") > 1 ? sprintf(", %d segments", num("segments")) : ""))
}
/"variant":/ {
    stage = str("stage"); us = num("us"); bytes = num("bytes"); flops = num("flops")
    if (us <= 0) next
    if (ranks > 1 || num("front") != "") {         # whole layers over ranks: chapter 19
        if (!layers++)
            print "| case | stage | whose | form | time, ms | front | t_sum | t_exchange | t_main |\n|:-----|:---|:---|:---|----:|----:|----:|----:|----:|" > (out "/19.md")
        where = (ranks > 1) ? ranks " GPUs" : "1 GPU"; whose = str("peer"); how = str("form")
        if (whose != "") whose = " (" whose ")"
        if (num("head_parts") > 1) how = how ", heads in " num("head_parts")
        parts = (num("front") == "") ? " | | |" : sprintf("%.3f | %.3f | %.3f | %.3f", num("front") / 1e3, num("sum") / 1e3, num("exchange") / 1e3, num("main") / 1e3)
        print "| " what ", " where " | " stage " | `" str("variant") "`" whose " | " how " | " sprintf("%.3f", us / 1e3) " | " parts " |" > (out "/19.md")
        next
    }
    f = out "/" stage ".md"; key = stage FS file
    if (!(key in seen)) {
        seen[key] = 1
        printf "%sRecorded in `%s`: %s; in the same run a copy moved %.2f TB/s and a bf16 product did %.0f TFLOP/s.\n\n", \
               (f in begun) ? "\n" : "", file, what, copy / 1e12, product / 1e12 > f
        print "| variant | pass | µs | 10 to 90 % | GB/s | TFLOP/s | of its floor |\n|:---------|:------|-----:|----------:|-----:|------:|-----:|" > f
        begun[f] = 1
    }
    if (str("peer") != "") {
        printf "| `%s` (%s) | %s | %.1f | %.1f to %.1f | | | |\n", str("variant"), str("peer"), num("pass") ? "backward" : "forward", us, num("us_p10"), num("us_p90") > f
        if (stage == "08_forward" || stage == "13_backward")
            print "| " stage " | `" str("variant") "` | " what " | " sprintf("%.3f", us / 1e3) " ms |" > (out "/17.rows")
        next
    }
    floor = bytes / copy; if (flops / product > floor) floor = flops / product
    printf "| `%s` | %s | %.1f | %.1f to %.1f | %.0f | %.1f | %.0f %% |\n", str("variant"), num("pass") ? "backward" : "forward", us, \
           num("us_p10"), num("us_p90"), bytes / us / 1e3, flops / us / 1e6, 100 * floor * 1e6 / us > f
    if (flops && bytes) {              # the roofline shows the fastest of each stage and pass
        pair = stage FS num("pass")
        if (!(pair in best) || flops / us > best[pair]) {
            best[pair] = flops / us
            point[pair] = sprintf("%s/%s%s %.4g %.4g", substr(stage, 1, 2), str("variant"), num("pass") ? "'" : "", flops / bytes, flops / us / 1e6)
        }
    }
    if (stage == "08_forward" || stage == "13_backward")
        print "| " stage " | `" str("variant") "` | " what " | " sprintf("%.3f", us / 1e3) " ms |" > (out "/17.rows")
}
END {
    for (i = 1; i <= gathers; i++) said = said (i == 1 ? "\nControls of the same runs: " : "; ") gather[i]
    if (gathers) print said "." > (out "/19.md")
    for (pair in point) print point[pair] | ("sort > " out "/roofline.tsv")
    close(out "/17.rows")
    if ((getline l < (out "/17.rows")) > 0) {
        print "| stage | variant | case | median |\n|:------|:------|:----------------|-----:|" > (out "/17.md")
        do print l > (out "/17.md"); while ((getline l < (out "/17.rows")) > 0)
    }
}
