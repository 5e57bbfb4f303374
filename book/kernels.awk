# kernels.awk -- prints how many lines and whole kernels of cuda/ the book shows.
#
# Usage: cat *.lines | awk -f kernels.awk - cuda/...
# A line of standard input has a snippet's file, first line and last line. A taught
# kernel is a __global__ function in the folder of any chapter but 18.
FILENAME == "-" {
    for (i = $2; i <= $3; i++) seen[$1, i] = 1
    next
}
{ lines++ }
(FILENAME, FNR) in seen { shown++ }
FNR == 1 { on = body = 0 }
/__global__/ && FILENAME ~ /^cuda\/[01][0-9]_/ && FILENAME !~ /18_hopper/ {
    on = 1
    body = 0
    whole = 1
}
on && !((FILENAME, FNR) in seen) { whole = 0 }
/^\{/ { body = 1 }
on && /^}/ { kernels++; if (whole) printed++; on = 0 }
on && !body && /;[ \t]*$/ { on = 0 }                            # a declaration
END {
    printf "the book shows %d of %d lines of cuda/ (%.0f %%)", shown, lines,
        lines ? 100 * shown / lines : 0
    printf " and %d of %d taught kernels whole (%.0f %%)\n", printed, kernels,
        kernels ? 100 * printed / kernels : 0
    if (printed * 3 < kernels) print "book: less than a third of the taught kernels are shown whole"
}
