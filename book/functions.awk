# functions.awk -- prints file, name and line of each function that C files define.
#
# Usage: awk -f functions.awk ref/*.c.
# A definition starts with a word in column 0, and its opening brace is in column 0.
FNR == 1 { head = "" }
/^[A-Za-z_].*\(/ && !/;[ \t]*$/ && !/^(typedef|extern|KCP_|#)/ { head = $0; line = FNR }
/^\{/ && head != "" {
    sub(/\(.*/, "", head); sub(/.*[ *]/, "", head)
    print FILENAME "\t" head "\t" line
    head = ""
}
/;[ \t]*$/ && FNR != line { head = "" }
