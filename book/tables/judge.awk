# judge.awk -- what the judge measured on a GPU: the worst error of each variant.
#
# Book: chapter 19.  Checked by: make book.  Next: predictions.awk.
get("kind") == "verdict" {
    j = get("stage") SUBSEP get("variant") SUBSEP sprintf("%d", num("ranks") + 0)
    fresh = standing(get("stage"), get("variant"))
    if (j in verdict && judge_fresh[j] > fresh) next
    if (!(j in verdict)) judged[++judges] = j
    judge_fresh[j] = fresh
    verdict[j] = get("verdict"); storage[j] = get("storage")
    judge_on[j] = machine_of() ", commit " get("commit")
    tensor[j] = get("worst"); error[j] = get("error"); allowed[j] = get("allowed")
    cases[j] = get("cases")
}

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
            print "| stage | variant | GPUs | storage | cases | worst | error " \
                  "| allowed |" > f
            print "|:-----|:-----|--:|:--|:----|:--|---:|---:|" > f
        }
        printf "| %s | `%s` | %d | %s | %s | %s | %s | %s |\n", p[1], p[2], p[3],
               storage[j], cases[j], tensor[j], error[j], allowed[j] > f
    }
    close(f)
}
