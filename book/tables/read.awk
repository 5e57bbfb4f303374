# read.awk -- records of GPU runs, read and chosen; the tables are made by its siblings.
#
# Book: chapters 01 to 20.  Checked by: make book.  Next: stages.awk.
# usage: awk -F '\t' -v out=DIR -v digests=FILE -f read.awk -f ... bench/results/*.tsv
# A file opens with the names of its columns; `kind` says what a row is. The same row
# may be recorded often: one of the kernels as they stand goes before one that cannot be
# compared, then one of other kernels; of alike the later. `digests` is what digest.py
# prints; its row `comm` is of what moves maps between GPUs.
BEGIN {
    while ((getline line < digests) > 0) {
        split(line, f, "\t")
        if (f[1] == "stage") continue
        now[f[1], f[2]] = f[4]; also[f[1], f[2]] = " " f[5] " "
        compiler[f[1], f[2]] = f[3]
        if (f[3] ~ /^[0-9]/) built = f[3]
    }
    STALE = 0; UNCOMPARED = 1; FRESH = 2
}

FNR == 1 {
    split("", column)
    for (c = 1; c <= NF; c++) column[$c] = c
    file = FILENAME
    sub(/.*\//, "", file)
    next
}

# A column of the row. A kernel that was renamed has its present name.
function get(name,   value, key)
{
    value = name in column ? $(column[name]) : ""
    if (name != "variant") return value
    key = "alias" SUBSEP get("stage") " " value
    return key in now ? now[key] : value
}
function num(name) { return get(name) + 0 }

# A record stands when the code that it timed is the code of now: the same compilers
# made both, and the digests agree; of ranks that of their exchange too.
function compared(digest, by, s, v)
{
    if (digest == "" || now[s, v] == "-" || by != compiler[s, v]) return UNCOMPARED
    if (digest == now[s, v] || index(also[s, v], " " digest " ")) return FRESH
    return STALE
}

function standing(s, v,   kernels, exchange_)
{
    kernels = built == "" ? UNCOMPARED : STALE                   # it is gone
    if ((s, v) in now) kernels = compared(get("digest"), get("nvcc"), s, v)
    if (get("row") != "" && ("path", get("path")) in now &&
        compared(get("row"), "-", "path", get("path")) == STALE) return STALE
    if (get("comm") == "") return kernels
    exchange_ = compared(get("comm"), get("cc"), "comm", "-")
    return kernels < exchange_ ? kernels : exchange_
}

function machine_of() { return get("machine") ", " get("driver") ", " get("date") }

# 4x8192,1024 as a reader has it: 4 x 8192, 1024; a blank before x does not break.
function lengths_in_words(   s)
{
    s = get("lengths")
    gsub(/x/, "\302\240\303\227\302\240", s)
    gsub(/,/, ", ", s)
    return s
}

# What a block of the mode keeps, in words; "": the default.
function kept_in_words(   mode)
{
    mode = get("save")
    if (mode == "all") return ", all kept"
    if (mode == "light") return ", little kept"
    return mode == "none" ? ", nothing kept" : ""
}

# A case in words; its blanks do not break a line.
function in_words(   s)
{
    s = sprintf("%s, %s gates, T = %d, H = %d", toupper(get("model")), get("gate"),
                get("T"), get("H"))
    if (num("HV") > num("H")) s = s sprintf(", HV = %d", get("HV"))
    if (num("K") != 128 || num("V") != 128)
        s = s sprintf(", K = %d, V = %d", get("K"), get("V"))
    if (num("C") != 64) s = s sprintf(", C = %d", get("C"))
    if (get("lengths") != "") s = s ", lengths " lengths_in_words()
    else if (num("sequences") > 1) s = s ", " get("sequences") " sequences"
    if (get("walk") != "") s = s ", by " get("walk")
    if (get("form") ~ /_bf16$/) s = s ", bf16 on the wire"
    s = s kept_in_words()
    gsub(/ = /, "\302\240=\302\240", s)
    return s
}

# Cases in the order of the book: KDA first, long last, live before strong.
function case_order(   m)
{
    m = index("kda gdn", get("model"))
    return sprintf("%d %09d %05d %05d %05d %d %s %d %s", m ? m : 9, get("T"),
                   get("H"), num("HV"), get("K"),
                   10 + index("livestrongsaturated", get("gate")), get("model"),
                   get("sequences"), get("lengths") get("save") get("walk"))
}

# The all-gather alone, measured once a case.
function note_gather(set, ranks)
{
    if (ranks < 2 || num("gather_us") == 0 || set in gathered) return
    gathered[set] = 1
    gather[++gathers] = sprintf("| %.1f | %d | %.0f | `%s` |",
                                num("gather_bytes") / 1048576, ranks,
                                get("gather_us"), get("case"))
}

function keep(i, what, s, v, p, standing_)
{
    is_fresh[i] = standing_; kase[i] = what; stage[i] = s; variant[i] = v; peer[i] = p
    pass[i] = num("pass"); time[i] = num("us"); low[i] = num("us_p10")
    high[i] = num("us_p90"); bytes[i] = num("bytes"); flops[i] = num("flops")
    form[i] = get("form"); sub(/_bf16$/, "", form[i]); cuts[i] = get("cuts")
    parts[i] = num("head_parts"); front[i] = num("front")
    sum[i] = num("sum"); exchange[i] = num("exchange"); main_[i] = num("main")
    work[i] = get("work"); saved[i] = num("saved"); copy_[i] = num("copy")
    product_[i] = num("product"); T_[i] = num("T"); HV_[i] = num("HV")
    gather_us[i] = num("gather_us")
    model_[i] = get("model"); gate_[i] = get("gate"); path_[i] = get("path")
    machine_[i] = machine_of(); commit_[i] = get("commit"); file_[i] = file
    case_[i] = get("case")
    save_[i] = get("save"); kept_in[i] = kept_in_words()
}

get("kind") == "time" && get("case") != "scan" && num("us") > 0 {
    what = in_words(); order_of[what] = case_order()
    set = file SUBSEP get("case")
    s = get("stage"); v = get("variant"); p = get("peer")
    ranks = num("ranks") > 1 ? num("ranks") : 1
    note_gather(set, ranks)
    standing_ = p == "" ? standing(s, v) : set_standing[set, s] + 0
    if (p == "" && standing_ > set_standing[set, s] + 0)
        set_standing[set, s] = standing_
    layer = ranks > 1 || get("front") != ""
    segments = 1
    if (p == "" && num("segments") > num("sequences")) segments = num("segments")
    key = what SUBSEP s SUBSEP v SUBSEP num("pass") SUBSEP layer SUBSEP ranks SUBSEP \
          segments SUBSEP get("form") SUBSEP num("head_parts") SUBSEP \
          num("reuse_M") SUBSEP get("cuts")
    if (key in slot && is_fresh[slot[key]] > standing_) next
    if (!(key in slot)) slot[key] = ++rows
    i = slot[key]
    keep(i, what, s, v, p, standing_)
    is_layer[i] = layer; ranks_[i] = ranks; segments_[i] = segments
    reuse_[i] = num("reuse_M"); from[i] = set
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

# A dagger behind what other kernels took.
function mark(i)
{
    if (is_fresh[i] == UNCOMPARED) uncompared = 1
    if (is_fresh[i] != STALE) return ""
    daggers = 1
    return "†"
}

function whose(i,   s)
{
    s = "`" variant[i] "`"
    if (peer[i] != "") {
        if (index("; " others ";", "; " peer[i] ";") == 0)
            others = others (others == "" ? "" : "; ") peer[i]
        return s
    }
    return s mark(i)
}

# Per cent of the floor; above 100, its arrays never left the chip's cache.
function share(i,   p)
{
    p = 100 * floor_us(i) / time[i]
    if (p > 100.5) cached = 1
    return sprintf(p < 1 ? "%.1f\302\240%%" : "%.0f\302\240%%", p)
}

function notes(f)
{
    if (daggers) print "\n† of kernels that have changed since, or are gone." > f
    if (uncompared)
        print "\nNot compared with the kernels as they stand: that takes the nvcc of " \
              "the record." > f
    if (cached)
        print "\nMore than 100 %: the call did not read all that is counted, or it lay " \
              "in the chip's cache." > f
    if (others != "") print "\nOthers: " others "." > f
    daggers = cached = uncompared = 0
    others = ""
}

# Where the rows of a table come from: machine, commit, file and cases, each once.
function recorded_in(n, member,   j, i, s, m, seen)
{
    for (j = 1; j <= n; j++) {
        i = member[j]
        if (from[i] in seen) continue
        seen[from[i]] = 1
        if (file_[i] == m) { s = s ", `" case_[i] "`"; continue }
        s = s (s == "" ? "" : "; ") machine_[i] ", commit `" commit_[i] "`, `" \
            file_[i] "`: `" case_[i] "`"
        m = file_[i]
    }
    return s
}
