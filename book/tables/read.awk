# read.awk -- records of GPU runs, read and chosen; the tables are made by its siblings.
#
# Book: chapters 01 to 20.  Checked by: tests/cli/tables.sh.  Next: stages.awk.
# usage: awk -v out=DIR -v digests=FILE -f read.awk -f ... bench/results/*
# A file is a head line (the case, the machine, the controls), then a line a row, as
# kcp-bench and record.sh write them; NAME-judge.txt holds verdicts. The same row may
# be recorded often: one of the sources as they stand goes before one of older sources,
# then the later file before the earlier. `digests` says what stands: stage, variant,
# digest.
BEGIN {
    while ((getline line < digests) > 0) {
        split(line, f, " ")
        now[f[1], f[2]] = f[3]
    }
}

function num(key,   s)
{
    s = $0
    if (!match(s, "\"" key "\":[-0-9.e+]+")) return ""
    s = substr(s, RSTART, RLENGTH)
    sub(/.*:/, "", s)
    return s + 0
}

function str(key,   s)
{
    s = $0
    if (!match(s, "\"" key "\":\"[^\"]*\"")) return ""
    s = substr(s, RSTART, RLENGTH)
    sub(/^"[^"]*":"/, "", s)
    sub(/"$/, "", s)
    return s
}

# A case in words; its blanks do not break a line.
function in_words(   s)
{
    s = sprintf("%s, %s gates, T = %d, H = %d", toupper(str("model")), str("gate"),
                num("T"), num("H"))
    if (num("HV") > num("H")) s = s sprintf(", HV = %d", num("HV"))
    if (num("K") != 128 || num("V") != 128)
        s = s sprintf(", K = %d, V = %d", num("K"), num("V"))
    if (num("C") != 64) s = s sprintf(", C = %d", num("C"))
    if (num("sequences") > 1) s = s ", " num("sequences") " sequences"
    if (str("walk") != "") s = s ", by " str("walk")
    if (str("save") == "all") s = s ", all kept"
    if (str("save") == "none") s = s ", nothing kept"
    gsub(/ = /, "\302\240=\302\240", s)
    return s
}

# Cases in the order of the book: KDA first, long last, live before strong.
function case_order(   m)
{
    m = index("kda gdn", str("model"))
    return sprintf("%d %09d %05d %05d %d %s %d %s", m ? m : 9, num("T"), num("H"),
                   num("K"), 10 + index("livestrongsaturated", str("gate")),
                   str("model"), num("sequences"), str("save") str("walk"))
}

/"T":/ {
    file = FILENAME
    sub(/.*\//, "", file)
    what = in_words(); order_of[what] = case_order()
    machine = str("machine"); commit = str("commit")
    copy = num("copy"); product = num("product"); T = num("T"); H = num("H")
    HV = num("HV"); model = str("model"); gate = str("gate")
    ranks = num("ranks") > 1 ? num("ranks") : 1
    head_segments = num("segments") > num("sequences") ? num("segments") : 1
    reuse = num("reuse_M") || file ~ /reuse/
    if (ranks > 1 && num("gather_us"))
        gather[++gathers] = sprintf("%.1f MiB a rank over %d GPUs: %.0f µs (`%s`)",
                                    num("gather_bytes") / 1048576, ranks,
                                    num("gather_us"), file)
}

/"variant":/ {
    us = num("us")
    if (us <= 0) next
    s = str("stage"); v = str("variant"); p = str("peer"); base = v
    sub(/_f32$/, "", base)
    fresh = (p == "") ? str("digest") == now[s, base] : file_fresh[file, s] + 0
    if (p == "" && fresh) file_fresh[file, s] = 1
    layer = ranks > 1 || num("front") != ""
    segments = p == "" ? head_segments : 1
    key = what SUBSEP s SUBSEP v SUBSEP num("pass") SUBSEP layer SUBSEP ranks SUBSEP \
          segments SUBSEP str("form") SUBSEP num("head_parts") SUBSEP reuse
    if (key in slot && is_fresh[slot[key]] > fresh) next
    if (!(key in slot)) slot[key] = ++rows
    i = slot[key]
    is_fresh[i] = fresh; kase[i] = what; stage[i] = s; variant[i] = v; peer[i] = p
    pass[i] = num("pass"); time[i] = us; low[i] = num("us_p10"); high[i] = num("us_p90")
    bytes[i] = num("bytes"); flops[i] = num("flops"); form[i] = str("form")
    parts[i] = num("head_parts"); is_layer[i] = layer; ranks_[i] = ranks
    segments_[i] = segments; front[i] = num("front"); sum[i] = num("sum")
    exchange[i] = num("exchange"); main_[i] = num("main"); reuse_[i] = reuse
    work[i] = num("work"); saved[i] = num("saved"); from[i] = file; copy_[i] = copy
    machine_[i] = machine; commit_[i] = commit
    product_[i] = product; T_[i] = T; HV_[i] = HV; model_[i] = model; gate_[i] = gate
    if (s == "07_merge" && segments == 1) bytes[i] = flops[i] = 0   # no M is read
    rank[i] = order_of[what] sprintf(" %06d %s %d %s", segments, s, p != "", v)
}

# sorted[1..rows]: by case, segments, stage, ours before theirs.
function sort_rows(   i, j, k)
{
    for (i = 1; i <= rows; i++) {
        for (j = i; j > 1 && rank[sorted[j - 1]] > rank[i]; j--)
            sorted[j] = sorted[j - 1]
        sorted[j] = i
    }
}

# The least bytes and operations, at the rates measured in the same run.
function floor_us(i,   b, f)
{
    b = bytes[i] / copy_[i]; f = product_[i] ? flops[i] / product_[i] : 0
    return 1e6 * (b > f ? b : f)
}

function whose(i,   s)
{
    s = "`" variant[i] "`"
    if (peer[i] != "") {
        if (index("; " others ";", "; " peer[i] ";") == 0)
            others = others (others == "" ? "" : "; ") peer[i]
        return s
    }
    if (!is_fresh[i]) { s = s "†"; daggers = 1 }
    return s
}

# Per cent of the floor; above 100, its arrays never left the chip's cache.
function share(i,   p)
{
    p = 100 * floor_us(i) / time[i]
    if (p > 100.5) cached = 1
    return sprintf(p < 1 ? "%.1f %%" : "%.0f %%", p)
}

function notes(f)
{
    if (daggers) print "\n† of sources that have changed since, or are gone." > f
    if (cached) print "\nMore than 100 %: the arrays stayed in the chip's cache." > f
    if (others != "") print "\nOthers: " others "." > f
    daggers = cached = 0
    others = ""
}

# Where the rows of a table come from: machine, commit and file, each once.
function recorded_in(n, member,   j, i, s, m, seen)
{
    for (j = 1; j <= n; j++) {
        i = member[j]
        if (from[i] in seen) continue
        seen[from[i]] = 1
        s = s (s == "" ? "" : "; ") (machine_[i] == m ? "" : machine_[i] ", ") \
            "commit `" commit_[i] "`, `" from[i] "`"
        m = machine_[i]
    }
    return s
}
