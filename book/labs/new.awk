# new.awk -- copy a reference with one region taken out: what the book shows, a lab asks.
#
# Book: labs/STAFF.md.  Next: grade.sh.
# awk -f new.awk 07_merge.lab ../../ref/07_merge.c > work/07_merge.c
FNR == NR {
    key = $1; sub(/^[^ ]+ +/, "")
    if (key == "todo") todo[++n] = $0; else set[key] = $0
    next
}
FNR == 1 {
    print "/* Lab " set["lab"] ": " set["title"] "."
    print " *"
    print " * Book: " set["book"] ".  Fill in the gap marked TODO, then run"
    print " *     make grade LAB=" set["lab"]
    print " * The judge compares with the reference; do not call it: ref_* will not link. */"
    head = 1
}
head && /\*\// { head = 0; next }
head { next }
{
    gsub(/(^|[^a-z_])ref_/, "&\001"); gsub(/ref_\001/, "lab_")
    if (set["kind"] != "check" && $0 ~ /^int lab_|^void lab_|^const struct kcp_mapops lab_/) $0 = "static " $0
}
/^[ \t]*\/\/> / && $2 == set["region"] {
    match($0, /^[ \t]*/); pad = substr($0, 1, RLENGTH)
    for (i = 1; i <= n; i++) print pad (i == 1 ? "/* TODO: " : " * ") todo[i] (i == n ? " */" : "")
    gap = 1; next
}
/^[ \t]*\/\/< / && $2 == set["region"] { gap = 0; next }
/^[ \t]*\/\/[<>] / { next }
gap { next }
{ print }
END {
    if (set["kind"] == "check") exit
    fn = set["fn"]; sub(/^ref_/, "lab_", fn)
    print "\nstatic int run(void *args)\n{\n    return " fn "(args);\n}"
    print "KCP_VARIANT(lab_" set["lab"] ") = { \"" set["stage"] "\", \"lab\", \"yours\", KCP_F64, KCP_HOST,"
    print "                             \"any shape\", run, NULL };"
}
