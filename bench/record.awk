# record.awk -- what a run left, as rows of one table: a kind each, columns by name.
#
# Book: chapter 18.  Checked by: tests/cli/bench_cli.sh.  Next: record.sh.
# Files come in this order: the record as it is (kept=1), digests.tsv, judge.txt, then
# kcp-bench's and the peers' cases and the other tables. A file's name says its kind.
BEGIN {
    FS = OFS = "\t"
    ncolumns = split("kind machine driver date commit nvcc case stage variant path " \
        "row storage digest comm cc model gate T H HV K V C sequences segments " \
        "ranks save walk reuse_M pass form head_parts us us_p10 us_p90 bytes flops work saved " \
        "front sum exchange main replay unsent replay_beside unsent_beside cuts lengths copy product gather_bytes gather_us peer verdict " \
        "cases worst error allowed alive memcheck racecheck initcheck synccheck " \
        "repeats what how n status seconds says chunks size fp32 tf32x3 tf32 bf16 " \
        "bf16_size registers smem cycles instructions warps issue fma tensor dram " \
        "dram_bytes wavefronts conflicts loads load_sectors stores store_sectors " \
        "local_sectors stalled", column_name, " ")
    for (i = 1; i <= ncolumns; i++) known[column_name[i]] = 1
    split(machine, m, ", ")
    for (i = 1; !(i in m) && i < 4; i++) bad("machine.txt: found no GPU, driver, date")
    if (m[1] == "" || m[2] == "" || m[3] !~ /^[0-9]+-[0-9]+-[0-9]+$/)
        bad("machine.txt: found '" machine "', expected GPU, driver, date")
    gpus = m[1] ~ /^[0-9]+ x / ? m[1] + 0 : 1
}

function bad(what)
{
    if (!wrong) print "record.sh: " what > "/dev/stderr"
    wrong = 1
    exit 2
}

FNR == 1 {
    name = FILENAME
    sub(/.*\//, "", name)
    base = name
    sub(/\.tsv$/, "", base)
    split("", head)
    if (name !~ /^(judge|repeats)\.txt$/) {
        for (i = 1; i <= NF; i++) head[i] = $i
        for (i = 1; i <= NF && base != "digests"; i++)
            if (!($i in known))
                bad(FILENAME ": found column '" $i "', expected none such")
        next
    }
}

function set(name, value)
{
    if (value == "") return
    cell[rows, name] = value
    used[name] = 1
}

# A new row of this run.
function begin(kind)
{
    rows++
    set("kind", kind); set("machine", m[1]); set("driver", m[2]); set("date", m[3])
    set("commit", commit)
}

function fields(   i) { for (i = 1; i <= NF; i++) set(head[i], $i) }

# Its kernels' digest and what compiled them; of ranks that of their exchange, of a path
# that of its row in the table.
function stand(s, v, ranks, taken)
{
    if (!((s, v) in digest) || digest[s, v] == "-")
        bad(s " " v ": found no digest, expected it in digests.tsv or a build of it")
    set("nvcc", compiler[s, v]); set("digest", digest[s, v])
    if (taken != "") set("row", digest["path", taken])
    if (ranks < 2) return
    if (!(("comm", "-") in digest) || digest["comm", "-"] == "-")
        bad("comm: found no digest, expected it in digests.tsv or a build as it ran")
    set("comm", digest["comm", "-"]); set("cc", compiler["comm", "-"])
}

base == "digests" { compiler[$1, $2] = $3; digest[$1, $2] = $4; next }

# Both are kcp-check's output: a stage's name, then its lines.
name ~ /^(judge|repeats)\.txt$/ {
    if ($0 ~ /^[0-9][0-9]_[a-z0-9_]+$/) judged = $0
    n = split($0, w, " ")
}

name == "judge.txt" {
    if (w[1] == "ok") ok[judged, w[2], ""] = 1
    if (w[1] == "ok" && w[2] == "path") ok[judged, w[4], w[3]] = 1
    at = index($0, " worst ")
    if (w[1] !~ /^(ok|FAIL|MARGINAL)$/ || !at) next
    begin("verdict")
    set("stage", judged); set("variant", w[2]); set("storage", w[3])
    set("verdict", w[1]); set("ranks", gpus)
    stand(judged, w[2], gpus)
    said = substr($0, 1, at - 1)
    sub(/^ *[A-Za-z]+ +[^ ]+ +[^ ]+ +/, "", said)
    sub(/ +$/, "", said)
    set("cases", said)
    split(substr($0, at + 7), w, " ")
    set("worst", w[1]); set("error", w[2]); set("allowed", w[4])
    if (match($0, /alive [0-9.e+-]+/)) set("alive", substr($0, RSTART + 6, RLENGTH - 6))
    next
}

# kcp-check --repeats N: a variant that passed gave the same bits N times more.
name == "repeats.txt" {
    if (w[1] == "repeats") times = w[2] + 0
    if (w[1] !~ /^(ok|MARGINAL)$/ || !index($0, " worst ")) next
    if (!times) bad(FILENAME ": found no line \"repeats N\" above " w[2])
    begin("repeat")
    set("stage", judged); set("variant", w[2]); set("storage", w[3])
    set("verdict", "same"); set("repeats", times)
    stand(judged, w[2], 1)
    next
}

FILENAME == kept { rows++; fields(); next }

# A row of a path's own case is called variant@path.
base == "sanitize" {
    begin("sanitizer")
    fields()
    split($2, w, "@")
    set("variant", w[1])
    set("path", w[2])
    stand($1, w[1], 1, w[2])
    next
}
base == "nccl" { begin("run"); fields(); next }
base == "notes" { begin("note"); fields(); next }
base == "torch" { begin("torch"); fields(); next }
base == "precision" { begin("precision"); fields(); next }
base == "ncu" { begin("counter"); fields(); stand($1, $2, 1); next }

{
    split("", now)
    for (i = 1; i <= NF; i++) now[head[i]] = $i
    s = now["stage"]; v = now["variant"]
    # Of one GPU the process that timed a row has judged it, or nobody has: a table
    # without that column is of a program that judged nothing.
    if (now["peer"] == "" && now["form"] == "" && !("verdict" in now))
        bad(FILENAME ": found no column \047verdict\047, expected one: rows of one" \
            " GPU need their own")
    if (now["peer"] == "" && !((s, v, now["path"]) in ok)) {
        if (now["path"] != "") v = v ", path " now["path"]
        print "record.sh: " s " " v ": no verdict ok in this run, left out" \
            > "/dev/stderr"
        next
    }
    # Over ranks --judge is asked for: where it was not, judge.txt speaks alone.
    said = now["form"] == "" || now["verdict"] != ""
    if (now["peer"] == "" && said && now["verdict"] !~ /^(ok|MARGINAL)$/) {
        print "record.sh: " s " " v ": found verdict \047" now["verdict"] \
            "\047 in its row, expected ok from the process that timed it: left out" \
            > "/dev/stderr"
        next
    }
    begin("time")
    set("case", base)
    fields()
    if (now["peer"] == "") stand(s, v, now["ranks"] + 0, now["path"])
    timed++
}

END {
    if (wrong) exit 2
    for (i = 1; i <= ncolumns; i++)
        if (column_name[i] in used || column_name[i] == "path")
            out[++nout] = column_name[i]
    for (i = 1; i <= nout; i++) printf "%s%s", out[i], i < nout ? OFS : "\n"
    for (r = 1; r <= rows; r++)
        for (i = 1; i <= nout; i++)
            printf "%s%s", cell[r, out[i]], i < nout ? OFS : "\n"
    print "record.sh: " timed + 0 " rows timed, " rows + 0 " in all" > "/dev/stderr"
}
