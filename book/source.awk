# source.awk -- converts C, CUDA or Python to HTML. Lines have anchors, tokens classes.
#
# Usage: awk -v title=ref/07_merge.c -v css=book/book.css -f source.awk ref/07_merge.c
BEGIN {
    mark = title ~ /\.py$/ ? "#" : "//"                        # starts a comment
    up = title; gsub(/[^\/]*\//, "../", up); sub(/[^\/]*$/, "", up); up = up "../"
    print "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    print "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
    print "<title>" title "</title>\n<style>"
    while ((getline l < css) > 0) print l
    print "</style></head>\n<body class=\"src\"><nav><a href=\"" up "index.html\">The affine map</a></nav>"
    print "<main><h1>" title "</h1>"
    n = split("if else for while do switch case default break continue return goto sizeof " \
              "static extern const inline struct union enum typedef volatile register template " \
              "__global__ __device__ __host__ __shared__ __launch_bounds__ __restrict__ asm", w, " ")
    for (i = 1; i <= n; i++) kw[w[i]] = 1
    n = split("void int char float double long short unsigned signed size_t int8_t int32_t " \
              "int64_t uint8_t uint16_t uint32_t uint64_t bool __nv_bfloat16 bf16 FILE", w, " ")
    for (i = 1; i <= n; i++) ty[w[i]] = 1
    print "<pre class=\"source\"><code>"
}
function esc(s) { gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s); return s }
function put(class, s) { out = out (class == "" ? esc(s) : "<span class=\"" class "\">" esc(s) "</span>") }
{
    s = $0; out = ""
    while (s != "") {
        if (comment) {
            i = index(s, "*/")
            if (i) { put("co", substr(s, 1, i + 1)); s = substr(s, i + 2); comment = 0 }
            else { put("co", s); s = "" }
        } else if (substr(s, 1, 2) == "/*") {
            i = index(substr(s, 3), "*/")
            if (i) { put("co", substr(s, 1, i + 3)); s = substr(s, i + 4) }
            else { put("co", s); s = ""; comment = 1 }
        } else if (substr(s, 1, length(mark)) == mark) { put("co", s); s = "" }
        else if (match(s, /^[ \t]*#[ \t]*[a-z]+/)) { put("pp", substr(s, 1, RLENGTH)); s = substr(s, RLENGTH + 1) }
        else if (match(s, /^"([^"\\]|\\.)*"/) || match(s, /^'([^'\\]|\\.)*'/)) { put("st", substr(s, 1, RLENGTH)); s = substr(s, RLENGTH + 1) }
        else if (match(s, /^[A-Za-z_][A-Za-z_0-9]*/)) { t = substr(s, 1, RLENGTH); class = t in ty ? "dt" : ""; put(t in kw ? "kw" : class, t); s = substr(s, RLENGTH + 1) }
        else if (match(s, /^[0-9][0-9A-Za-z_.]*/)) { put("dv", substr(s, 1, RLENGTH)); s = substr(s, RLENGTH + 1) }
        else { put("", substr(s, 1, 1)); s = substr(s, 2) }
    }
    printf "<span class=\"ln\" id=\"L%d\"><a href=\"#L%d\">%d</a>%s</span>", NR, NR, NR, out
}
END { print "</code></pre></main></body></html>" }
