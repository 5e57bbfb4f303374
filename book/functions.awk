# functions.awk -- the functions that C files define: file, name, line.
#
# Book: none.  Usage: awk -f functions.awk ref/*.c.  Next: book.mk.
# A definition starts in column 0 with a word, and its brace stands in column 0.
FNR == 1 { head = "" }
/^[A-Za-z_].*\(/ && !/;[ \t]*$/ && !/^(typedef|extern|KCP_|#)/ { head = $0; line = FNR }
/^\{/ && head != "" {
    sub(/\(.*/, "", head); sub(/.*[ *]/, "", head)
    print FILENAME "\t" head "\t" line
    head = ""
}
/;[ \t]*$/ && FNR != line { head = "" }
