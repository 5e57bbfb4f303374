# edges.awk -- forwards that keep nothing: a token less, a token more, and both gates.
#
# Book: chapter 18.  Checked by: make book.  Next: ranks.awk.
# A length that is no multiple of 16 belongs to its neighbour that is one.
function edge_base(i)
{
    if (T_[i] % 16 == 15) return T_[i] + 1
    return T_[i] % 16 == 1 ? T_[i] - 1 : T_[i]
}

function is_edge(i) { return ranks_[i] == 1 && edge_base(i) != T_[i] }

# A case without its gates and what it keeps, at the length that it stands beside.
function edge_name(i,   s)
{
    s = kase[i]
    sub(/, (live|strong) gates/, "", s)
    sub(/, nothing kept/, "", s)
    sub("T\302\240=\302\240[0-9]+", "T\302\240=\302\240" edge_base(i), s)
    return s
}

function edge_cell(name, gate, by,   i)
{
    if (!((name, gate, by) in edge_at)) return ""
    i = edge_at[name, gate, by]
    return sprintf("%.3f%s", time[i] / 1e3, mark(i))
}

function edge_table(f,   j, i, k, n, by, name, names, seen, T)
{
    for (j = 1; j <= rows; j++) {
        i = sorted[j]
        if (peer[i] != "" || is_layer[i] || stage[i] != "08_forward" ||
            ranks_[i] != 1 || kase[i] !~ /, nothing kept/) continue
        name = edge_name(i)
        by = T_[i] - edge_base(i)
        k = name SUBSEP gate_[i] SUBSEP by
        if (k in edge_at && time[edge_at[k]] <= time[i]) continue
        edge_at[k] = i
        if (by && !(name in seen)) names[++n] = name
        if (by) seen[name] = 1
    }
    for (j = 1; j <= n; j++) {
        if (j == 1) {
            T = "T\302\240"
            print "| forward, nothing kept, ms | live, " T "-\302\2401 | T | " T \
                  "+\302\2401 | strong, " T "-\302\2401 | T | " T "+\302\2401 |" > f
            print "|:------------|----:|---:|----:|----:|---:|----:|" > f
        }
        printf "| %s |", names[j] > f
        for (k = 0; k < 6; k++)
            printf " %s |", edge_cell(names[j], k < 3 ? "live" : "strong",
                                      k % 3 - 1) > f
        print "" > f
    }
    if (n) notes(f)
    close(f)
}
