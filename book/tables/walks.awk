# walks.awk -- chapter 15: walk, scan and chunks side by side, in time and in room.
#
# Book: chapter 15.  Checked by: tests/cli/tables.sh.  Next: read.awk, for all other files.
# NAME-scan.json holds many small cases of kcp-bench, one behind the other. Of several
# tile lengths or versions of a form the fastest counts, sources as they stand first.
FILENAME ~ /-scan\.json$/ {
    if (/"T":/) scan_head()
    else if (/"variant":/) scan_row()
    next
}

function scan_head()
{
    file = FILENAME
    sub(/.*\//, "", file)
    at_T = num("T"); at_H = num("HV"); at_K = num("K"); at_C = num("C")
    at_walk = str("walk")
    if (!(file in scan_files))
        scan_from = scan_from (scan_from == "" ? "" : "; ") str("machine") \
                    ", commit `" str("commit") "`, `" file "`"
    scan_files[file] = 1
}

function scan_row(   us, s, v, fresh, k, form_)
{
    us = num("us"); s = str("stage"); v = str("variant")
    form_ = s != "15_scan" ? "chunks" : at_walk == "" ? "auto" \
          : at_walk == "sequential" ? "walk" : "scan"
    if (us <= 0) return
    fresh = str("digest") == now[s, v]
    k = sprintf("%04d %04d %08d %d", at_K, at_H, at_T, num("pass") || s ~ /back/)
    if (form_ == "scan") {
        tile = k sprintf(" %05d", at_C)
        if (!(tile in versions)) tiles[++ntiles] = tile
        if (!((tile, v) in took)) versions[tile] = versions[tile] v " "
        took[tile, v] = us; took_fresh[tile, v] = fresh
    }
    if (!(k in seen_case)) scan_cases[++nscan] = k
    seen_case[k] = 1
    if ((k, form_) in best_us && (best_fresh[k, form_] > fresh ||
        best_fresh[k, form_] == fresh && best_us[k, form_] <= us)) return
    best_us[k, form_] = us; best_fresh[k, form_] = fresh; best_C[k, form_] = at_C
    best_room[k, form_] = num("work") + num("saved")
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
    if (!fresh) daggers = 1
    return sprintf("%.3f%s", us / 1e3, fresh ? "" : "†")
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

function walk_table(f,   i, k, c, begun)
{
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
    }
    notes(f)
    close(f)
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
