# readme.awk -- the README's tables: the fastest of ours beside other systems.
#
# Book: none.  Checked by: bench/readme.sh, which puts them there.  Next: all.awk.
# A row a case: forward with nothing kept, forward, backward. Theirs of the same case of
# a run, or of the same run over as many ranks. Their forward keeps nothing: it stands
# beside both of ours. What was timed with nothing kept alone is in the book.
function peers_beside(i,   j, s, what, beside)
{
    what = kase[i]
    sub(/, nothing kept/, "", what)
    for (j = 1; j <= rows; j++) {
        if (peer[j] == "" || stage[j] != stage[i]) continue
        if (from[j] != from[i] && (kase[j] != what || ranks_[j] != ranks_[i] ||
            machine_[j] commit_[j] != machine_[i] commit_[i])) continue
        if (variant[j] ~ /share_alone|heads2/ || beside[variant[j]]++) continue
        s = s (s == "" ? "" : ", ") "`" variant[j] "` " sprintf("%.3f", time[j] / 1e3)
        if (!(peer[j] in named)) systems[++nsystems] = peer[j]
        named[peer[j]] = 1
    }
    return s
}

function best_of(what, s, R,   i, best)
{
    for (i = 1; i <= rows; i++)
        if (peer[i] == "" && kase[i] == what && stage[i] == s && ranks_[i] == R &&
            (R == 1 || is_layer[i]) && (!best || time[i] < time[best])) best = i
    return best
}

function machine_noted(i)
{
    if (!((machine_[i], commit_[i]) in noted))
        runs_ = runs_ (runs_ == "" ? "" : "; ") machine_[i] ", commit `" commit_[i] "`"
    noted[machine_[i], commit_[i]] = 1
}


# Of one pass: time, and in brackets the share of its floor or the times of one GPU.
function pass_cell(what, s, R,   i, x)
{
    i = best_of(what, s, R)
    if (!i || (R == 1 && !alone(i))) return ""
    machine_noted(i)
    x = R > 1 ? times_alone(i) : share(i)
    return sprintf("%.3f%s", time[i] / 1e3, mark(i)) (x == "" ? "" : " (" x ")")
}

# Where nobody else ran beside the newest of ours: what they took in an earlier run.
function peers_elsewhere(what, s, R,   j, t, best, name)
{
    for (j = 1; j <= rows; j++) {
        if (peer[j] == "" || stage[j] != s) continue
        if (kase[j] != what || ranks_[j] != R) continue
        if (variant[j] ~ /share_alone|heads2/) continue
        if (!(variant[j] in best) || time[j] < time[best[variant[j]]])
            best[variant[j]] = j
        if (!(peer[j] in named)) systems[++nsystems] = peer[j]
        named[peer[j]] = 1
    }
    for (j = 1; j <= rows; j++) {
        name = variant[j]
        if (!(name in best) || best[name] != j) continue
        t = t (t == "" ? "" : ", ") "`" name "` " sprintf("%.3f*", time[j] / 1e3)
        elsewhere = 1
    }
    return t
}

function others_cell(what, s, R,   i, t)
{
    i = best_of(what, s, R)
    t = i ? peers_beside(i) : ""
    return i && t == "" ? peers_elsewhere(what, s, R) : t
}

# Small cases stand in the book alone: GDN of fewer than 32 value heads.
function small_case(what,   n)
{
    n = what
    if (what !~ /^GDN/ || n !~ /H[^0-9A-Z]+[0-9]/) return 0
    if (n ~ /HV[^0-9]/) sub(/.*HV[^0-9]+/, "", n)
    else sub(/.*H[^0-9A-Z]+/, "", n)
    return n + 0 < 32
}

function readme_row(what, R, f)
{
    printf "| %s |%s %s | %s | %s | %s | %s |\n", what,
           (R > 1 ? " " R " |" : ""),
           pass_cell(what ", nothing kept", "08_forward", R),
           pass_cell(what, "08_forward", R), pass_cell(what, "13_backward", R),
           others_cell(what, "08_forward", R), others_cell(what, "13_backward", R) > f
}

# Strong gates stand in the book alone, unless another system was timed on them.
function is_ours_alone(what,   j)
{
    for (j = 1; j <= rows; j++)
        if (peer[j] != "" && kase[j] == what) return 0
    return 1
}

# Cases in the order of the book, each once; over ranks every number of GPUs, and live
# gates alone: twenty rows in all, the rest stands in the book.
function readme_rows(many, f,   j, what, R, begun, done)
{
    for (j = 1; j <= rows; j++) {
        what = kase[sorted[j]]
        if (small_case(what)) continue
        if (what ~ /strong gates/ && (many || is_ours_alone(what))) continue
        if (what in done || is_edge(sorted[j]) || what ~ /(nothing|all|little) kept/ ||
            (many ? !is_layer[sorted[j]] : !whole(stage[sorted[j]]))) continue
        done[what] = 1
        for (R = many ? 2 : 1; R <= (many ? most : 1); R++) {
            if (!best_of(what, "08_forward", R)) continue
            if (R == 1 && !alone(best_of(what, "08_forward", R))) continue
            if (!begun++) readme_head(many, f)
            readme_row(what, R, f)
        }
    }
}

function readme_head(many, f,   begun)
{
    if (many)
        print "\n| over ranks, ms (times one GPU) | GPUs | forward, nothing kept " \
              "| forward | backward | others, forward | others, backward |" > f
    else
        print "| one GPU, ms (of its floor) | forward, nothing kept | forward " \
              "| backward | others, forward | others, backward |" > f
    begun = many ? "|:--|--:|" : "|:--|"
    print begun "--:|--:|--:|:--|:--|" > f
}

function readme_tables(f,   j)
{
    readme_rows(0, f)
    readme_rows(1, f)
    if (runs_ == "") print "Nothing has been recorded yet." > f
    else {
        notes(f)
        printf "\nMedians; recorded on %s.", runs_ > f
        for (j = 1; j <= nsystems; j++)
            printf "%s%s", j == 1 ? " Others: " : ", ", systems[j] > f
        print nsystems ? "." : "" > f
        if (elsewhere)
            print "\\* in a run of its own day, beside an earlier version of ours." > f
    }
    close(f)
}
