# predictions.awk -- what was predicted before a run, and what the run gave.
#
# Book: chapter 18.  Checked by: make book.  Next: readme.awk.
# book/data/predictions.tsv: whole passes; predictions-maps.tsv: parts of a layer over
# ranks. Floors at the rates of `rates`, the line that opens the file.
function fastest(model, gate, T, H, s,   i, best)
{
    for (i = 1; i <= rows; i++)
        if (peer[i] == "" && ranks_[i] == 1 && model_[i] == model && gate_[i] == gate &&
            T_[i] == T && HV_[i] == H && stage[i] == s && kase[i] !~ /all kept/ &&
            (!best || time[i] < time[best])) best = i
    return best
}

function prediction_table(tsv, f,   line, c, i, floor_, b, o, rate, n)
{
    while ((getline line < tsv) > 0) {
        if (line ~ /^# rates/) split(line, rate, " ")
        if (line ~ /^#/) continue
        split(line, c, "\t")
        if (!n++) {
            print "| case | floor, ms | predicted, ms | measured, ms | by |" > f
            print "|:---------|---:|---:|---:|:---|" > f
            continue
        }
        b = c[6] * c[3] * c[4] / rate[3]; o = c[7] * c[3] * c[4] / rate[4]
        floor_ = 1e3 * (b > o ? b : o)
        i = fastest(c[1], c[2], c[3], c[4], c[5])
        printf "| %s %s, T = %d, %d heads | %.2f | %s | %s | %s |\n", toupper(c[1]),
               c[5] ~ /backward/ ? "backward" : "forward", c[3], c[4], floor_, c[8],
               i ? sprintf("%.3f", time[i] / 1e3) : "not recorded",
               i ? whose(i) : "" > f
    }
    notes(f)
    close(f)
}

# The fastest layer of ours over four ranks, of the case that chapter 20 opens with.
function fastest_layer(s, T, H,   i, best)
{
    for (i = 1; i <= rows; i++)
        if (is_layer[i] && peer[i] == "" && ranks_[i] == 4 && stage[i] == s &&
            model_[i] == "kda" && gate_[i] == "live" && T_[i] == T && HV_[i] == H &&
            (!best || time[i] < time[best])) best = i
    return best
}

# A map applied to the states of one rank, of as many heads as were timed.
function one_map(   i, best)
{
    for (i = 1; i <= rows; i++)
        if (peer[i] == "" && stage[i] == "07_merge" && ranks_[i] == 1 && !is_layer[i] &&
            segments_[i] == 1 && (!best || time[i] < time[best])) best = i
    return best ? sprintf("%.3f, %d heads", time[best] / 1e3, HV_[best]) : "not recorded"
}

function part_table(tsv, f,   line, c, key, i, t, n)
{
    while ((getline line < tsv) > 0) {
        if (line ~ /^#/) continue
        split(line, c, "\t")
        if (!n++) {
            print "| step | bytes/th | operations/th | floor, ms | predicted, ms " \
                  "| measured, ms |" > f
            print "|:---------|---:|---:|---:|---:|---:|" > f
            continue
        }
        t = ""
        if (c[6] == "07_merge") t = one_map()
        else if (split(c[6], key, " ") == 2) {
            i = fastest_layer(key[1], 131072, 32)
            t = key[2] == "gather" ? gather_us[i] : 0
            if (i && key[2] ~ /sum|both/) t += sum[i]
            if (i && key[2] ~ /exchange|both/) t += exchange[i]
            t = i && t ? sprintf("%.3f", t / 1e3) : "not recorded"
        }
        printf "| %s | %s | %s | %s | %s | %s |\n", c[1], c[2], c[3], c[4], c[5], t > f
    }
    close(f)
}
