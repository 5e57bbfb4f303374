# stages.awk -- what was recorded of each stage on one GPU, and of whole layers.
#
# Book: chapters 01 to 18.  Checked by: make book.  Next: edges.awk.
function whole(s) { return s ~ /^(08_forward|13_backward|forward_backward)$/ }

function direction(i)
{
    if (stage[i] == "forward_backward") return "both"
    return pass[i] || stage[i] ~ /backward/ ? "backward" : "forward"
}

function heading(i, f,   j, n, member, s)
{
    for (j = 1; j <= rows; j++)
        if (kase[sorted[j]] == kase[i] && segments_of(sorted[j]) == segments_of(i) &&
            is_layer[sorted[j]] == is_layer[i] && stage[sorted[j]] == stage[i])
            member[++n] = sorted[j]
    s = kase[i]
    if (segments_of(i) > 1) s = s ", " segments_of(i) " segments"
    printf "\n**%s.** Recorded on %s; there a copy moved %.2f TB/s and a bf16 " \
           "product did %.0f TFLOP/s.\n\n", s, recorded_in(n, member), copy_[i] / 1e12,
           product_[i] / 1e12 > f
}

# Other systems have no segments: they stand beside ours of the same file.
function segments_of(i,   j)
{
    if (peer[i] == "") return segments_[i]
    for (j = 1; j <= rows; j++)
        if (peer[j] == "" && from[j] == from[i]) return segments_[j]
    return 1
}

# One stage: every variant, what it moves and how near its floor it comes.
function stage_row(i, f)
{
    printf "| %s | %s | %.1f | %.1f\302\240to\302\240%.1f |", whose(i),
           direction(i), time[i], low[i], high[i] > f
    if (peer[i] != "" || !bytes[i]) print " | | |" > f
    else
        printf " %.0f | %s | %s |\n", bytes[i] / time[i] / 1e3,
               flops[i] ? sprintf("%.1f", flops[i] / time[i] / 1e6) : "", share(i) > f
}

function stage_tables(   j, i, f, group, last, old, small, open, theirs)
{
    for (j = 1; j <= rows; j++) {
        i = sorted[j]
        if (is_layer[i] || whole(stage[i])) continue
        f = out "/" stage[i] ".md"
        group = kase[i] SUBSEP segments_of(i)
        if (last[stage[i]] != group) {
            heading(i, f)
            print "| variant | pass | µs | 10 to 90 % | GB/s | TFLOP/s " \
                  "| of its floor |" > f
            print "|:-----|:---|---:|----:|---:|---:|---:|" > f
            last[stage[i]] = group
        }
        stage_row(i, f)
        old[f] = old[f] || daggers; small[f] = small[f] || cached
        open[f] = open[f] || uncompared
        if (others != "") theirs[f] = others
        daggers = cached = uncompared = 0; others = ""
    }
    for (f in old) {
        daggers = old[f]; cached = small[f]; uncompared = open[f]; others = theirs[f]
        notes(f)
    }
}

# The fastest of other systems in the same file and stage.
function fastest_peer(i,   j, t)
{
    for (j = 1; j <= rows; j++)
        if (peer[j] != "" && from[j] == from[i] && stage[j] == stage[i] &&
            ranks_[j] == ranks_[i] && (!t || time[j] < t)) t = time[j]
    return t
}

# GiB of room that the call was lent, and of the block kept for backward.
function memory(i)
{
    if (work[i] == "") return ""
    return sprintf("%.2f, %.2f", work[i] / 1073741824, saved[i] / 1073741824)
}

# A letter for the run that a row is of; runs_at_the_end says what it stands for.
function run_of(i,   m)
{
    m = machine_[i] ", commit `" commit_[i] "`, `" file_[i] "`"
    if (!(m in letter)) {
        letter[m] = sprintf("%c", 97 + runs)
        run_[++runs] = m
        least_copy[m] = least_product[m] = 1e99
    }
    if (copy_[i] < least_copy[m]) least_copy[m] = copy_[i]
    if (copy_[i] > most_copy[m]) most_copy[m] = copy_[i]
    if (product_[i] < least_product[m]) least_product[m] = product_[i]
    if (product_[i] > most_product[m]) most_product[m] = product_[i]
    return letter[m]
}

# Two numbers, or one where they print alike.
function from_to(format, least, most,   a, b)
{
    a = sprintf(format, least); b = sprintf(format, most)
    return a == b ? a : a " to " b
}

function runs_at_the_end(f,   j, m)
{
    if (!runs) return
    print "\nThe runs, each with the rate of a copy and of a product in bf16:\n" > f
    for (j = 1; j <= runs; j++) {
        m = run_[j]
        printf "- *%s*: %s; %s TB/s, %s TFLOP/s\n", letter[m], m,
               from_to("%.2f", least_copy[m] / 1e12, most_copy[m] / 1e12),
               from_to("%.0f", least_product[m] / 1e12, most_product[m] / 1e12) > f
    }
    split("", letter); split("", most_copy); split("", most_product)
    runs = 0
}

function whole_row(i, f, what,   t)
{
    t = peer[i] == "" ? fastest_peer(i) : 0
    printf "| %s | %s | %s | %.3f | %.3f\302\240to\302\240%.3f | %s | %s | %s | %s |\n",
           what, direction(i), whose(i), time[i] / 1e3, low[i] / 1e3, high[i] / 1e3,
           bytes[i] ? share(i) : "", t ? sprintf("%.2f", t / time[i]) : "", memory(i),
           run_of(i) > f
}

# Both passes of a model that chapter 16 shows, by another system.
function of_family(i,   j)
{
    for (j = 1; j <= rows; j++)
        if (from[j] == from[i] && stage[j] == "08_forward") return 0
    return stage[i] == "forward_backward"
}

# Whole layers: 08.md, 13.md, and all of them in 17.md. A case is named once.
function whole_tables(f, only,   j, i, what, last)
{
    for (j = 1; j <= rows; j++) {
        i = sorted[j]
        if (is_layer[i] || !whole(stage[i]) || only && stage[i] != only) continue
        if (of_family(i) || is_edge(i)) continue
        if (last == "") {
            print "| case | pass | whose | ms | 10 to 90 % | of its floor " \
                  "| fastest peer / it | workspace, kept: GiB | run |" > f
            print "|:-------|:---|:------|---:|-----:|---:|---:|---:|:---|" > f
        }
        what = kase[i]
        if (segments_of(i) > 1) what = what ", " segments_of(i) " segments"
        whole_row(i, f, what == last ? "" : what)
        last = what
    }
    runs_at_the_end(f)
    notes(f)
    close(f)
}

# Points of the roofline: every variant where it is fastest; first the roof itself.
function roofline(   i, key, at, top, flat)
{
    for (i = 1; i <= rows; i++) {
        if (copy_[i] > top) top = copy_[i]
        if (product_[i] > flat) flat = product_[i]
        if (is_layer[i] || peer[i] != "" || !flops[i] || !bytes[i]) continue
        key = stage[i] SUBSEP variant[i] SUBSEP pass[i]
        if (!(key in at) || flops[i] / time[i] > flops[at[key]] / time[at[key]])
            at[key] = i
    }
    if (rows) printf "roof %.4g %.4g\n", top / 1e12, flat / 1e12 > (out "/roofline.tsv")
    for (key in at) {
        i = at[key]
        printf "%s/%s%s %.4g %.4g\n", substr(stage[i], 1, 2), variant[i],
               pass[i] ? "'" : "", flops[i] / bytes[i], flops[i] / time[i] / 1e6 \
               | ("sort >> " out "/roofline.tsv")
    }
    close(out "/roofline.tsv")
    close("sort >> " out "/roofline.tsv")
}
