/* failure.c -- prints a failure, and a command that repeats the failure.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * A variant that depends on earlier calls may pass if the failed case runs alone. So
 * the judge repeats the failed case in new processes, after 0, 1, 3 and 7 earlier
 * cases, until the case fails again. */
#include "isolation.h"
#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BEFORE = 7, MOST_WORDS = 4096 };      /* earlier cases; bytes of --case */

static int begins_with(const char *s, const char *word)
{
    return !strncmp(s, word, strlen(word));
}

void apply_record(const struct kcp_variant *v, int is_object, struct verdict *t)
{
    const int is_half = (t->no_forward && !begins_with(v->shapes, "backward;")) ||
                        (t->no_backward && !begins_with(v->shapes, "forward;"));
    const char *n_a = NULL;
    if (t->outcome == NA && t->refused && begins_with(v->shapes, "any")) n_a = "n/a";
    else if (is_half && !is_object && t->outcome != FAIL)
        n_a = t->no_forward ? "only forward returned n/a"
                            : "only backward returned n/a";
    if (!n_a) return;
    t->outcome = FAIL;
    t->worst.tol = 0;
    snprintf(t->why, sizeof t->why, "%s, but the kernel's record says '%.80s'", n_a,
             v->shapes);
}

/* Runs cases i - n to i in a new process. Returns 1 if case i fails. */
static int fails_after(struct isolated *x, int i, int n)
{
    struct isolated own = { .stage = x->stage, .variant = x->variant, .lost = x->lost,
                            .object = x->object, .list = x->list };
    struct verdict t = { .outcome = PASS };
    char why[160];
    repeats_begin();
    for (int j = i - n; j <= i; j++)
        if (isolated_case(&own, j, x->variant->storage, &t)) t.outcome = FAIL;
    apply_record(x->variant, x->object != NULL, &t);
    const double ends = seconds_now();
    if (isolated_end(&own, why, sizeof why)) own.lost += seconds_now() - ends;
    x->lost = own.lost;
    return t.outcome == FAIL;
}

/* Returns how many of the cases before i must run so that case i fails. If case i does
 * not fail again, sets *seen to 0. Does not repeat a case that took more than half of
 * the time limit. */
static int cases_before(struct isolated *x, int i, const struct verdict *t, int *seen)
{
    const int before = i - x->first_case;
    const int most = before < MOST_BEFORE ? before : MOST_BEFORE;
    int n = 0;
    char why[160];
    *seen = 1;
    if (isolation_off || ranks_mine() >= 0) return most && t->again;
    if (!most || (isolation_limit && 2 * x->took > isolation_limit)) return 0;
    isolated_end(x, why, sizeof why);
    while (isolated_seconds_left(x) > 0) {
        const int fails = fails_after(x, i, n);
        if (fails && isolated_seconds_left(x) > 0) return n;
        if (n == most) break;
        n = 2 * n + 1 < most ? 2 * n + 1 : most;
    }
    *seen = 0;
    return most;
}

/* Writes cases `from` to i as text for --case. If the text does not fit, omits the
 * first cases. Returns how many cases before case i were written. */
static int words_of(const struct isolated *x, int from, int i, char words[MOST_WORDS])
{
    char one[1024];
    words[0] = 0;
    for (int j = i; j >= from; j--) {
        const size_t used = strlen(words);
        case_print(&x->list[j], one, sizeof one);
        const size_t more = strlen(one) + (used ? 2 : 0);
        if (used + more >= MOST_WORDS) return i - j - 1;
        memmove(words + more, words, used + 1);
        memcpy(words, one, strlen(one));
        if (used) memcpy(words + more - 2, "; ", 2);
    }
    return i - from;
}

static void show_command(struct isolated *x, int i, const struct verdict *t)
{
    char words[MOST_WORDS], name[4200], after[80] = " alone";
    int seen = 1, n = cases_before(x, i, t, &seen);
    n = words_of(x, i - n, i, words);
    if (n == 1) snprintf(after, sizeof after, " after case %d", x->list[i - 1].id);
    else if (n) snprintf(after, sizeof after, " after %d other cases", n);
    shell_word(x->object ? x->object : x->variant->name, name, sizeof name);
    printf("        case %d%s", x->list[i].id, after);
    if (!seen) printf(" (this case did not fail when it was run again)");
    if (ranks_started())
        printf(", under a launcher with %d ranks (%s)", ranks_started(),
               ranks_launcher());
    printf(": %s --stage %.2s --variant %s --case '%s'%s\n%s", judge_program,
           x->stage->name, name, words, judge_options, t->map);
}

void worst_text(const struct worst *w, int has_rank, char *text, size_t n)
{
    char rank[24] = "", got[32], want[48];
    if (has_rank) snprintf(rank, sizeof rank, " rank %d", w->rank);
    const int digits = fabs(w->got - w->want) < 1e-8 * fabs(w->want) ? 17 : 9;
    snprintf(got, sizeof got, "is %.*g", digits, w->got);
    snprintf(want, sizeof want, "should be %.*g", digits, w->want);
    if (is_unwritten(w->got)) snprintf(got, sizeof got, "was never written");
    if (is_unwritten(w->want)) snprintf(want, sizeof want, "must stay unwritten");
    snprintf(text, n, "%s%s head %d: error %.2e > %.1e; worst at %s%s: it %s, %s; "
             "first wrong at %s", w->field, rank, w->head, w->err, w->tol, w->field,
             w->where, got, want, w->first);
}

void show_failure(struct isolated *x, int i, const struct verdict *t,
                  struct kcp_report *rep)
{
    const struct kcp_stage *s = x->stage;
    const struct kcp_variant *v = x->variant;
    const struct worst *w = &t->worst;
    char text[400];
    const char *before = t->backward ? "backward, " : "";
    if (w->of_forward) before = "forward: ";
    worst_text(w, s->ranks, text, sizeof text);
    if (is_wrong(w)) report_fail(rep, "%s %s: %s%s", s->name, v->name, before, text);
    else report_fail(rep, "%s %s: %s", s->name, v->name, t->why);
    show_command(x, i, t);
}
