# statements.awk -- what a reader must decode: a ternary in a ternary, commas in place of
# statements, an assignment that is returned.
#
# Book: none.  Checked by: house.sh, on planted ones.  Next: house.sh.
# Reads lines of code without comments and strings, FILE:LINE: TEXT; prints what it finds.
# A level is a bracket that is open: of a call, an index, a block, or a list of values.
function say(what) { print at ": " $0 "  (" what ")" }

# The statement alone: no if (..), for (..), else, do, case x:, label:.
function body(t) {
    while (sub(/^[ \t]*((else )?(if|for|while|switch) *\(\)|else|do)[ \t]*/, "", t)) continue
    sub(/^[ \t]*(case [^:]*|default|[A-Za-z_]+) *:[ \t]*/, "", t)
    sub(/^[ \t]+/, "", t)
    return t
}
function assigns(t) {
    return t ~ /^[(*]*[A-Za-z_][A-Za-z_0-9.>-]*(\(\)|\[\]|[A-Za-z_0-9.>-])* *(([-+*\/%&|^]|<<|>>)?=([^=]|$)|\+\+|--|$)/ ||
           t ~ /^(\+\+|--)/
}
# A call that stands first is a statement; a declaration has a type before its name.
function comma(   t) {
    t = body(text[d])
    if (macro && d == depth && t !~ /=/) return        # a list, for whoever uses it
    if (kind[d] == "block" && t ~ /^return([^A-Za-z_0-9]|$)/) say("a comma in a return")
    else if (kind[d] == "block" && t ~ /[^A-Za-z_]|^$/ && assigns(t) && t !~ /^[A-Za-z_]+$/)
        say("a comma in place of a statement")
    else if (kind[d] == "head") say("a comma in a condition")
    else if (kind[d] == "group" && assigns(t) && t ~ /[=+-]/) say("a comma in parentheses")
}
function ternary(   k) {
    if (open[d]) say("a ternary in a ternary")
    else for (k = d; k > 0 && (kind[k] == "group" || kind[k] == "call"); k--)
        if (open[k - 1]) { say("a ternary in a ternary"); break }
    open[d] = 1
}
function enter(what) { d++; kind[d] = what; text[d] = ""; open[d] = 0 }
function opens(c,   t) {
    t = text[d]
    if (c == "[") return "index"
    if (c == "{") {
        if (kind[d] != "block" || t ~ /=[^=;]*$/ || t ~ /(^|[^a-z_])enum([^a-z_]|$)/ ||
            body(t) ~ /^return/) return "values"
        return "block"
    }
    if (t ~ /(^|[^A-Za-z_0-9])(if|while|switch) *$/) return "head"
    if (t ~ /(^|[^A-Za-z_0-9])(for) *$/) return "for"
    if (t ~ /(^|[^A-Za-z_0-9])return *$/ || t !~ /[A-Za-z_0-9)\]>] *$/) return "group"
    return "call"
}
function read(s,   c, was) {
    while (match(s, /[][(){}?;,]/)) {
        text[d] = text[d] substr(s, 1, RSTART - 1)
        c = substr(s, RSTART, 1)
        s = substr(s, RSTART + 1)
        if (c == "?") ternary()
        else if (c == ",") { comma(); open[d] = 0; text[d] = text[d] "," }
        else if (c == ";") {
            if (kind[d] == "block" && body(text[d]) ~ /^return .*[^=!<>]=([^=]|$)/)
                say("an assignment that is returned")
            text[d] = ""; open[d] = 0
        } else if (index("([{", c)) enter(opens(c))
        else if (d > 0) {
            was = kind[d--]
            if (was == "block") { text[d] = ""; open[d] = 0 }
            else text[d] = text[d] (c == "]" ? "[]" : c == ")" ? "()" : "{}")
        }
    }
    text[d] = text[d] s " "
}
{
    match($0, /^[^:]*:[0-9]+/)
    at = substr($0, 1, RLENGTH)
    $0 = substr($0, RLENGTH + 3)
    file = at
    sub(/:.*/, "", file)
    if (file != last) { d = 0; kind[0] = "block"; text[0] = ""; open[0] = 0; macro = 0 }
    last = file
    s = $0
    # A macro's words are read apart from what stands around it.
    if (s ~ /^[ \t]*#/) {
        macro = 1
        if (!sub(/^[ \t]*#[ \t]*define[ \t]+[A-Za-z_0-9]+(\([^)]*\))?/, "", s)) s = ""
        outer = d; enter("block"); depth = d
    }
    ends = macro && s !~ /\\[ \t]*$/
    sub(/\\[ \t]*$/, "", s)
    # Arguments of templates are no commas of ours.
    gsub(/<[A-Za-z_0-9 ,:*+\/?]*>/, "", s)
    read(s)
    if (ends) { macro = 0; d = outer }
}
