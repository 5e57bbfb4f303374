# judge.awk -- what the judge measured on a GPU: the worst error of each variant.
#
# Book: chapter 19.  Checked by: tests/cli/tables.sh.  Next: predictions.awk.
# NAME-judge.txt: a line "# machine, commit", then kcp-check's output.
FILENAME ~ /judge\.txt$/ && /^# / { judged_on = substr($0, 3) }

FILENAME ~ /judge\.txt$/ && $1 ~ /^(ok|FAIL|MARGINAL)$/ && / worst / {
    j = judge_stage SUBSEP $2
    if (!(j in verdict)) judged[++judges] = j
    verdict[j] = $1; storage[j] = $3; judge_on[j] = judged_on
    worst = $0; sub(/.* worst /, "", worst); split(worst, w, " ")
    tensor[j] = w[1]; error[j] = w[2]; allowed[j] = w[4]
    sub(/^ *[A-Za-z]+ +[^ ]+ +[^ ]+ +/, ""); sub(/ +worst .*/, "")
    cases[j] = $0
}

FILENAME ~ /judge\.txt$/ && /^[0-9][0-9]_[a-z0-9_]+$/ { judge_stage = $1 }

function judge_table(f,   n, j, p, i, k, where, seen)
{
    for (i = 2; i <= judges; i++)
        for (k = i; k > 1 && judged[k - 1] > judged[k]; k--) {
            j = judged[k]; judged[k] = judged[k - 1]; judged[k - 1] = j
        }
    for (n = 1; n <= judges; n++) {
        j = judge_on[judged[n]]
        if (!(j in seen)) where = where (where == "" ? "" : "; ") j
        seen[j] = 1
    }
    for (n = 1; n <= judges; n++) {
        j = judged[n]
        split(j, p, SUBSEP)
        if (n == 1) {
            printf "Judged on %s: of all cases the worst error, and what is " \
                   "allowed.\n\n", where > f
            print "| stage | variant | storage | cases | worst | error | allowed |" > f
            print "|:-----|:-----|:--|:----|:--|---:|---:|" > f
        }
        printf "| %s | `%s` | %s | %s | %s | %s | %s |\n", p[1], p[2], storage[j],
               cases[j], tensor[j], error[j], allowed[j] > f
    }
    close(f)
}
