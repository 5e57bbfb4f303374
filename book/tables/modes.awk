# modes.awk -- chapter 18: what each mode of the saved block costs, in bytes and in time.
#
# Book: chapter 18.  Checked by: make book.  Next: all.awk.
# A case has a row a mode where another mode than the default was recorded of it.
function case_of_modes(i,   s)
{
    s = kase[i]
    sub(kept_in[i] "$", "", s)
    if (segments_of(i) > 1) s = s ", " segments_of(i) " segments"
    return s
}

# Our newest forward and backward of every case and mode.
function find_modes(   j, i, c)
{
    for (j = 1; j <= rows; j++) {
        i = sorted[j]
        if (is_layer[i] || peer[i] != "" || save_[i] == "none" || save_[i] == "") continue
        if (stage[i] != "08_forward" && stage[i] != "13_backward") continue
        c = case_of_modes(i)
        if (!(c in has_modes)) { has_modes[c] = 0; mode_case[++mode_cases] = c }
        if (save_[i] != "recompute") has_modes[c] = 1
        mode_row[c, save_[i], stage[i]] = i
    }
}

function mode_ms(i)
{
    return i ? sprintf("%.3f%s", time[i] / 1e3, mark(i)) : ""
}

# Bytes a token and value head of what a call was lent, or of the block.
function mode_bytes(i, n)
{
    return i && n != "" ? sprintf("%.0f", n / (T_[i] * HV_[i])) : ""
}

function mode_table(f,   word, name, c, m, k, i, j, what, some)
{
    split("light recompute all", word, " ")
    name["light"] = "light"; name["recompute"] = "recompute"; name["all"] = "save all"
    find_modes()
    for (k = 1; k <= mode_cases; k++) some = some || has_modes[mode_case[k]]
    if (!some) print "No run of the modes is recorded." > f
    if (!some) { close(f); return }
    print "| case | mode | block | workspace, forward | backward | forward, ms " \
          "| backward, ms | both | run |" > f
    print "|:-----|:-----|---:|---:|---:|---:|---:|---:|:---|" > f
    for (k = 1; k <= mode_cases; k++) {
        c = what = mode_case[k]
        for (m = 1; m <= 3 && has_modes[c]; m++) {
            i = mode_row[c, word[m], "08_forward"]
            j = mode_row[c, word[m], "13_backward"]
            if (!i && !j) continue
            printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", what,
                   name[word[m]], mode_bytes(j, saved[j]), mode_bytes(i, work[i]),
                   mode_bytes(j, work[j]), mode_ms(i), mode_ms(j),
                   i && j ? sprintf("%.3f", (time[i] + time[j]) / 1e3) : "",
                   run_of(j ? j : i) > f
            what = ""
        }
    }
    runs_at_the_end(f)
    notes(f)
    close(f)
}
