#!/bin/sh
# table.sh -- a short table from files that kcp-bench and the peers wrote.
#
# Book: chapter 18.  Checked by: tests/cli/bench_cli.sh.  Next: record.sh.
# usage: sh bench/table.sh FILE.tsv...
# Whole forwards and backwards, ours and others', with the time of the first peer of the
# same file and stage over the row's: above 1, the row is faster than that peer.
awk -F '\t' '
    function get(name) { return name in column ? $(column[name]) : "" }
    FNR == 1 {
        split("", column)
        for (i = 1; i <= NF; i++) column[$i] = i
        next
    }
    function where(   s) {
        s = sprintf("%s %s, T = %d, H = %d%s", toupper(get("model")), get("gate"),
                    get("T"), get("H"),
                    get("ranks") > 1 ? ", " get("ranks") " GPUs" : "")
        if (get("lengths") != "") s = s ", lengths " get("lengths")
        else if (get("sequences") > 1) s = s ", " get("sequences") " sequences"
        if (get("save") == "none") s = s ", nothing kept"
        if (get("save") == "all") s = s ", all kept"
        if (get("save") == "light") s = s ", little kept"
        if (get("segments") > 1) s = s ", " get("segments") " segments"
        return s
    }
    get("stage") ~ /^(08|13|16|forward_)/ {
        n++; c[n] = where(); s[n] = get("stage"); v[n] = get("variant")
        if (s[n] ~ /^16/) s[n] = get("pass") + 0 ? "16_backward" : "16_forward"
        if (get("form") != "") v[n] = v[n] " " get("form")
        if (get("head_parts") > 1) v[n] = v[n] ", heads in " get("head_parts")
        us[n] = get("us"); lo[n] = get("us_p10"); hi[n] = get("us_p90")
        key[n] = FILENAME FS s[n]
        if (get("peer") != "" && !(key[n] in base)) base[key[n]] = us[n]
    }
    END {
        line = "%-42s %-17s %-34s %9s %9s %9s %9s\n"
        printf line, "case", "what", "whose", "ms", "p10", "p90", "peer / it"
        for (i = 1; i <= n; i++)
            printf line, c[i], s[i], v[i], sprintf("%.3f", us[i] / 1e3), \
                   sprintf("%.3f", lo[i] / 1e3), sprintf("%.3f", hi[i] / 1e3), \
                   key[i] in base ? sprintf("%.2f", base[key[i]] / us[i]) : "-"
    }' "$@"
