# ranks.awk -- whole layers over ranks: the best of each number of GPUs, and the forms.
#
# Book: chapter 20.  Checked by: make book.  Next: judge.awk.
function plan_of(i,   s, shares)
{
    s = segments_[i] > ranks_[i] ? segments_[i] / ranks_[i] " segments" : "one segment"
    if (ranks_[i] > 1) s = s " a rank"
    if (parts[i] > 1) s = s ", heads in " parts[i]
    if (reuse_[i]) s = s ", M kept"
    if (cuts[i] != "") {
        shares = cuts[i]
        gsub(/,/, "\302\240:\302\240", shares)
        s = s ", shares " shares
    }
    return s
}

# Ours, alone: the fastest plan of one GPU for the same case and stage; none where one
# segment was not timed there, for cut in many it may be far from the fastest.
function alone(i,   j, t, uncut)
{
    for (j = 1; j <= rows; j++) {
        if (peer[j] != "" || kase[j] != kase[i] || stage[j] != stage[i] ||
            direction(j) != direction(i) || ranks_[j] != 1) continue
        if (!t || time[j] < t) t = time[j]
        uncut = uncut || segments_[j] == 1
    }
    return uncut ? t : 0
}

function is_best(i,   j)
{
    for (j = 1; j <= rows; j++)
        if (peer[j] == "" && is_layer[j] && kase[j] == kase[i] &&
            stage[j] == stage[i] && direction(j) == direction(i) &&
            ranks_[j] == ranks_[i] && time[j] < time[i])
            return 0
    return 1
}

function times_alone(i,   t)
{
    t = alone(i)
    return (t && ranks_[i] > 1) ? sprintf("%.2f", t / time[i]) : ""
}

# The plan, with its form where there is an exchange; front, sum, exchange, main, which
# a family's layers are not asked for.
function layer_cells(i,   s)
{
    s = plan_of(i)
    if (ranks_[i] > 1) s = form[i] ", " s
    if (!main_[i])
        return sprintf("%s | %.3f | | | | | %s", s, time[i] / 1e3, times_alone(i))
    return sprintf("%s | %.3f | %.3f | %.3f | %.3f | %.3f | %s", s, time[i] / 1e3,
                   front[i] / 1e3, sum[i] / 1e3, exchange[i] / 1e3, main_[i] / 1e3,
                   times_alone(i))
}

# By pass, then by GPUs, ours first.
function layers_of(what, f,   s, to, R, theirs, j, i, n)
{
    n = split("08_forward 13_backward forward_backward 16_family 16_family", s, " ")
    split("forward backward both forward backward", to, " ")
    for (j = 1; j <= n; j++)
        for (R = 1; R <= most; R++)
            for (theirs = 0; theirs <= 1; theirs++)
                for (i = 1; i <= rows; i++) {
                    if (!is_layer[i] || kase[i] != what || stage[i] != s[j] ||
                        direction(i) != to[j] || ranks_[i] != R ||
                        (peer[i] != "") != theirs) continue
                    if (theirs)
                        print "| " direction(i) " | " R " | " whose(i) " | | " \
                              sprintf("%.3f", time[i] / 1e3) " | | | | | |" > f
                    else if (is_best(i))
                        print "| " direction(i) " | " R " | " whose(i) " | " \
                              layer_cells(i) " |" > f
                }
}

# The machines and commits of a case's layers, each once.
function places(what,   i, s, at, seen)
{
    for (i = 1; i <= rows; i++) {
        at = machine_[i] ", commit `" commit_[i] "`"
        if (!is_layer[i] || kase[i] != what || at in seen) continue
        seen[at] = 1
        s = s (s == "" ? "" : "; ") at
    }
    return s
}

function rank_tables(f,   j, i, what, told)
{
    for (j = 1; j <= rows; j++) {
        i = sorted[j]
        if (is_layer[i] && ranks_[i] > most) most = ranks_[i]
    }
    for (j = 1; j <= rows; j++) {
        i = sorted[j]
        what = kase[i]
        if (!is_layer[i] || what in told || most < 2) continue
        told[what] = 1
        printf "\n%s; %s. Milliseconds.\n\n", what, places(what) > f
        print "| pass | GPUs | whose | fastest plan | time | front | t_sum " \
              "| t_exchange | t_main | times one GPU |" > f
        print "|:----|--:|:--------|:-------------|---:|---:|---:|----:|---:|----:|" > f
        layers_of(what, f)
    }
    notes(f)
    if (gathers) {
        print "\n::: {.folded title=\"Controls: the all-gather alone, in the same runs\"}" > f
        print "| payload a rank, MiB | GPUs | µs | run |" > f
        print "|--:|--:|--:|:----|" > f
        for (j = 1; j <= gathers; j++) print gather[j] > f
        print ":::" > f
    }
    close(f)
}

# Every form beside the others: time, and the exchange's part of it. What the row above
# says of case, pass and GPUs is not said again.
function form_row(group, f,   k, i, n, name, p, head)
{
    n = split("all_gather chain chain_window pipeline scan", name, " ")
    split(group, p, SUBSEP)
    head = sprintf("%s | %s | %s", p[1], p[2], p[4])
    printf "| %s | %s |", head == head_above ? " | | " : head, p[5] > f
    head_above = head
    for (k = 1; k <= n; k++) {
        if (!((group, name[k]) in form_at)) { printf " |" > f; continue }
        i = form_at[group, name[k]]
        printf " %.3f%s |", time[i] / 1e3,
            main_[i] ? sprintf("\302\240(%.3f)", exchange[i] / 1e3) : "" > f
    }
    print "" > f
}

function form_tables(f,   s, R, x, j, i, g, begun, seen)
{
    split("08_forward 13_backward 16_family", s, " ")
    for (x = 1; x <= 3; x++)
        for (R = 2; R <= most; R++)
            for (j = 1; j <= rows; j++) {
                i = sorted[j]
                if (!is_layer[i] || ranks_[i] != R || stage[i] != s[x] || peer[i] != "")
                    continue
                g = kase[i] SUBSEP direction(i) SUBSEP variant[i] SUBSEP R SUBSEP plan_of(i)
                form_at[g, form[i]] = i
                if (!(g in seen)) groups[++ngroups] = g
                seen[g] = 1
            }
    for (j = 1; j <= ngroups; j++) {
        if (j == 1) {
            print "| case | pass | GPUs | plan | all-gather | chain " \
                  "| chain over windows | pipeline | scan |" > f
            print "|:-----------|:----|--:|:----------|-----:|-----:|-----:|-----:" \
                  "|-----:|" > f
        }
        form_row(groups[j], f)
    }
    close(f)
}

# Forward on two GPUs by the first one's share of the tokens: share, form, microseconds.
# The case with the most shares that were recorded; equal ones are 50.
function cut_rows(f,   j, i, n, best, percent)
{
    for (j = 1; j <= rows; j++)
        if (cuts[j] != "" && ranks_[j] == 2 && stage[j] == "08_forward" &&
            ++n[kase[j]] > n[best])
            best = kase[j]
    printf "" > f
    for (j = 1; j <= rows && best != ""; j++) {
        i = sorted[j]
        if (kase[i] != best || ranks_[i] != 2 || stage[i] != "08_forward" ||
            peer[i] != "" || reuse_[i] || parts[i] > 1 || segments_[i] > 2) continue
        percent = cuts[i] == "" ? 50 : cuts[i] + 0
        print percent, form[i], time[i] > f
    }
    close(f)
}
