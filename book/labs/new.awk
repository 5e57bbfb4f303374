# new.awk -- copies a reference without one region, which the student writes.
# Book: staff.md.
# awk -f new.awk 07_merge.lab ../../ref/07_merge.c > work/07_merge.c
#   -v edit=FILE   fills the gap with the region, edited by the sed script in FILE
#   -v so=1        adds the record that kcp-check --reference loads from a shared object
FNR == NR {
    key = $1; sub(/^[^ ]+ */, "")
    if (key == "todo") todo[++n] = $0
    else if (key == "given") given[++m] = $0
    else set[key] = $0
    next
}
{ raw = $0 }
FNR == 1 {
    kernel = FILENAME ~ /\.cuh?$/; check = set["kind"] == "check"
    a = kernel ? "// " : " * "
    print (kernel ? a : "/* ") "Lab " set["lab"] ": " set["title"] "."
    print (kernel ? "//" : " *")
    print a "Book: " set["book"] ".  Fill in the gap marked TODO, then run"
    print a "    make grade LAB=" set["lab"]
    print a "The judge compares with the reference; what calls it is refused." \
        (kernel ? "" : " */")
    if (set["counters"]) print "// bound: ?"
    head = 1
}
head && kernel && /^\/\// { next }
head && !kernel && !/\*\// { next }
head { head = 0; if (!kernel) next }
set["counters"] && /^\/\/ Bound:/ { answers = 1 }         # the student names the bound
answers && /^\/\// && !/^\/\/[<>]/ { next }
{ answers = 0 }
/^KCP_VARIANT/ { record = 1 }
record { if (/};|\);$/) record = 0; next }
kernel && set["fn"] {
    sub(/#include "\.\.\//, "#include \"")
    gsub(set["fn"], "lab_" substr(set["fn"], 4))
}
!kernel {
    gsub(/(^|[^a-z_])ref_/, "&\001"); gsub(/ref_\001/, "lab_")
    if (!check && $0 ~ /^int lab_|^void lab_/)
        $0 = "static " $0
}
/^[ \t]*\/\/> / && $2 == set["region"] {
    match($0, /^[ \t]*/); pad = substr($0, 1, RLENGTH)
    for (i = 1; i <= m; i++) print pad given[i]
    for (i = 1; i <= n && !so; i++) {
        begins = i == 1 ? "/* " : " * "
        if (kernel) begins = "// "
        print pad begins (i == 1 ? "TODO: " : "") todo[i] (i == n && !kernel ? " */" : "")
    }
    fflush()
    gap = 1; next
}
/^[ \t]*\/\/< / && $2 == set["region"] { gap = 0; if (edit) close("sed -f " edit); next }
/^[ \t]*\/\/[<>] / { next }
gap { if (edit) print raw | ("sed -f " edit); next }
{ print }
function put_record(name, storage, run) {
    print "\nKCP_VARIANT(lab_" set["lab"] "_" name ") = {"
    print "    \"" set["stage"] "\", \"" name "\", \"yours\", " storage ","
    print "    " (kernel ? "KCP_DEVICE" : "KCP_HOST") ", \"what yours takes\", " run \
        ", NULL };"
}
END {
    if (check || set["record"] == "frame") exit
    fn = set["fn"]; sub(/^(ref|v[0-9])_/, "lab_", fn)
    if (kernel) {
        put_record("lab", "KCP_BF16", fn (set["only"] ? "" : "<bf16>"))
        if (set["only"]) exit
        put_record("lab_f32", "KCP_F32", fn "<float>")
        exit
    }
    print "\nstatic int run(void *args)\n{\n    return " fn "(args);\n}"
    if (!so) put_record("lab", "KCP_F64", "run")
    else {
        print "static const struct kcp_variant other = {"
        print "    \"" set["stage"] "\", \"" so "\","
        print "    \"another recurrence\", KCP_F64, KCP_HOST, \"any\", run, NULL };"
        print "const struct kcp_variant *const kcp_variant = &other;"
    }
}
