# readme.awk -- the README's tables: the fastest of ours beside other systems.
#
# Book: none.  Checked by: bench/readme.sh, which puts them there.  Next: all.awk.
# Theirs of the same file, or of the same run over as many ranks. Their forward keeps
# nothing: it stands beside both of ours.
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

function readme_one(f,   j, k, i, s, begun, done)
{
    split("08_forward 13_backward", s, " ")
    for (j = 1; j <= rows; j++) {
        if (!whole(stage[sorted[j]]) || kase[sorted[j]] in done || is_edge(sorted[j]))
            continue
        done[kase[sorted[j]]] = 1
        for (k = 1; k <= 2; k++) {
            i = best_of(kase[sorted[j]], s[k], 1)
            if (!i || !alone(i)) continue
            if (!begun++) {
                print "| one GPU | pass | ours | ms | of its floor | others, ms |" > f
                print "|:--|:--|:--|--:|--:|:--|" > f
            }
            machine_noted(i)
            printf "| %s | %s | %s | %.3f | %s | %s |\n", kase[i], direction(i),
                   whose(i), time[i] / 1e3, share(i), peers_beside(i) > f
        }
    }
}

function readme_ranks(f,   j, k, R, i, s, begun, done)
{
    split("08_forward 13_backward", s, " ")
    for (j = 1; j <= rows; j++) {
        if (!is_layer[sorted[j]] || kase[sorted[j]] in done) continue
        done[kase[sorted[j]]] = 1
        for (k = 1; k <= 2; k++)
            for (R = 2; R <= most; R++) {
                i = best_of(kase[sorted[j]], s[k], R)
                if (!i) continue
                if (!begun++) {
                    print "\n| over ranks | pass | GPUs | fastest plan | ms | front " \
                          "| t_sum | t_exchange | t_main | times one GPU " \
                          "| others, ms |" > f
                    print "|:--|:--|--:|:--|--:|--:|--:|--:|--:|--:|:--|" > f
                }
                machine_noted(i)
                print "| " kase[i] " | " direction(i) " | " R " | " layer_cells(i) \
                      " | " peers_beside(i) " |" > f
            }
    }
}

function readme_tables(f,   j)
{
    readme_one(f)
    readme_ranks(f)
    if (runs_ == "") print "Nothing has been recorded yet." > f
    else {
        notes(f)
        printf "\nMedians; recorded on %s.", runs_ > f
        for (j = 1; j <= nsystems; j++)
            printf "%s%s", j == 1 ? " Others: " : ", ", systems[j] > f
        print nsystems ? "." : "" > f
    }
    close(f)
}
