# walks.awk -- chapter 15: walk, scan and chunks side by side, in time and in room.
#
# Book: chapter 15.  Checked by: make book.  Next: read.awk, for all others.
# Of several tile lengths or versions of a form the fastest counts, kernels as they
# stand first. The rows are those of the case `scan`.
get("kind") == "time" && get("case") == "scan" && num("us") > 0 {
    us = num("us"); s = get("stage"); v = get("variant")
    form_ = "chunks"
    if (s == "15_scan") {
        form_ = "auto"
        if (get("walk") == "sequential") form_ = "walk"
        if (get("walk") == "scan") form_ = "scan"
    }
    fresh = standing(s, v)
    k = sprintf("%04d %04d %08d %d", get("K"), get("HV"), get("T"),
                num("pass") || s ~ /back/)
    if (!(file in scan_files))
        scan_from = scan_from (scan_from == "" ? "" : "; ") machine_of() \
                    ", commit `" get("commit") "`, `" file "`"
    scan_files[file] = 1
    if (form_ == "scan") note_version(k sprintf(" %05d", get("C")), v, us, fresh)
    if (!(k in seen_case)) scan_cases[++nscan] = k
    seen_case[k] = 1
    if ((k, form_) in best_us && (best_fresh[k, form_] > fresh ||
        best_fresh[k, form_] == fresh && best_us[k, form_] <= us)) next
    best_us[k, form_] = us; best_fresh[k, form_] = fresh
    best_C[k, form_] = num("C")
    best_room[k, form_] = num("work") + num("saved")
}

function note_version(tile, v, us, fresh)
{
    if (!(tile in versions)) tiles[++ntiles] = tile
    if (!((tile, v) in took)) versions[tile] = versions[tile] v " "
    took[tile, v] = us; took_fresh[tile, v] = fresh
}

function in_order(list, n,   i, k, s)
{
    for (i = 2; i <= n; i++)
        for (k = i; k > 1 && list[k - 1] > list[k]; k--) {
            s = list[k]; list[k] = list[k - 1]; list[k - 1] = s
        }
}

function ms(us, fresh)
{
    if (us == "") return ""
    if (fresh == UNCOMPARED) uncompared = 1
    if (fresh == STALE) daggers = 1
    return sprintf("%.3f%s", us / 1e3, fresh == STALE ? "†" : "")
}

function form_cell(k, form_) { return ms(best_us[k, form_], best_fresh[k, form_]) }

function room_cell(k, form_)
{
    if (!((k, form_) in best_room)) return ""
    return sprintf("%.1f", best_room[k, form_] / 1048576)
}

function winner(k,   n, name, i, best)
{
    n = split("walk scan chunks", name, " ")
    for (i = 1; i <= n; i++)
        if (best_us[k, name[i]] &&
            (!best || best_us[k, name[i]] < best_us[k, name[best]])) best = i
    return name[best]
}

# The chapter's table; and the same milliseconds for its figure, 0 where none was timed.
function walk_table(f,   i, k, c, begun, plain)
{
    plain = f
    sub(/md$/, "tsv", plain)
    in_order(scan_cases, nscan)
    for (i = 1; i <= nscan; i++) {
        k = scan_cases[i]
        split(k, c, " ")
        if (!((k, "walk") in best_us) || !((k, "scan") in best_us) &&
            !((k, "chunks") in best_us)) continue
        if (!begun++) {
            printf "Recorded on %s. Milliseconds; the scan's with the tile $C$ that " \
                   "was fastest; room is work and saved states that a call is given " \
                   "beside inputs and outputs, in MiB.\n\n", scan_from > f
            print "| $K$ | heads | $T$ | pass | walk | scan | its $C$ | auto " \
                  "| chunks | walk, MiB | scan, MiB | chunks, MiB | fastest |" > f
            print "|--:|--:|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|:--|" > f
        }
        printf "| %d | %d | %d | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n",
               c[1], c[2], c[3], c[4] ? "backward" : "forward", form_cell(k, "walk"),
               form_cell(k, "scan"), best_C[k, "scan"], form_cell(k, "auto"),
               form_cell(k, "chunks"), room_cell(k, "walk"), room_cell(k, "scan"),
               room_cell(k, "chunks"), winner(k) > f
        printf "%d\t%d\t%d\t%d\t%.4f\t%.4f\t%.4f\n", c[1], c[2], c[3], c[4],
               best_us[k, "walk"] / 1e3, best_us[k, "scan"] / 1e3,
               best_us[k, "chunks"] / 1e3 > plain
    }
    notes(f)
    close(f)
    close(plain)
}

# Versions of the scan beside each other, where more than one was timed.
function version_table(f,   i, j, n, v, c, begun)
{
    in_order(tiles, ntiles)
    for (i = 1; i <= ntiles; i++) {
        n = split(versions[tiles[i]], v, " ")
        split(tiles[i], c, " ")
        for (j = 1; j <= n && n > 1; j++) {
            if (!begun++) {
                printf "Recorded on %s. Milliseconds of the scan.\n\n", scan_from > f
                print "| variant | $K$ | heads | $T$ | $C$ | pass | ms |" > f
                print "|:-----|--:|--:|--:|--:|:--|--:|" > f
            }
            printf "| `%s` | %d | %d | %d | %d | %s | %s |\n", v[j], c[1], c[2], c[3],
                   c[5], c[4] ? "backward" : "forward",
                   ms(took[tiles[i], v[j]], took_fresh[tiles[i], v[j]]) > f
        }
    }
    notes(f)
    close(f)
}
