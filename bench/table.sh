#!/bin/sh
# table.sh -- a short table from files that kcp-bench and the peers wrote.
#
# usage: sh bench/table.sh FILE.json...
# Whole forwards and backwards, ours and others', with the time of the first peer of the
# same file and stage over the row's: above 1, the row is faster than that peer.
awk '
    function num(k,  s) { if (!match($0, "\"" k "\":[-0-9.e+]+")) return 0
                          s = substr($0, RSTART, RLENGTH); sub(/.*:/, "", s)
                          return s + 0 }
    function str(k,  s) { if (!match($0, "\"" k "\":\"[^\"]*\"")) return ""
                          s = substr($0, RSTART, RLENGTH); sub(/^"[^"]*":"/, "", s)
                          sub(/"$/, "", s); return s }
    /"T":/ {
        where = sprintf("%s %s, T = %d, H = %d%s", toupper(str("model")), str("gate"),
                        num("T"), num("H"),
                        num("ranks") > 1 ? ", " num("ranks") " GPUs" : "")
        if (num("sequences") > 1) where = where ", " num("sequences") " sequences"
        if (str("save") == "none") where = where ", nothing kept"
        if (num("segments") > 1) where = where ", " num("segments") " segments"
    }
    /"variant":/ && /"stage":"(08|13|16|forward_)/ {
        n++; c[n] = where; s[n] = str("stage"); v[n] = str("variant")
        if (s[n] ~ /^16/) s[n] = num("pass") ? "16_backward" : "16_forward"
        if (str("form") != "") v[n] = v[n] " " str("form")
        if (num("head_parts") > 1) v[n] = v[n] ", heads in " num("head_parts")
        us[n] = num("us"); lo[n] = num("us_p10"); hi[n] = num("us_p90")
        key[n] = FILENAME FS s[n]
        if (str("peer") != "" && !(key[n] in base)) base[key[n]] = us[n]
    }
    END {
        line = "%-42s %-17s %-34s %9s %9s %9s %9s\n"
        printf line, "case", "what", "whose", "ms", "p10", "p90", "peer / it"
        for (i = 1; i <= n; i++)
            printf line, c[i], s[i], v[i], sprintf("%.3f", us[i] / 1e3), \
                   sprintf("%.3f", lo[i] / 1e3), sprintf("%.3f", hi[i] / 1e3), \
                   key[i] in base ? sprintf("%.2f", base[key[i]] / us[i]) : "-"
    }' "$@"
