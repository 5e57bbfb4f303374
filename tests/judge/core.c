/* core.c -- judges each stage: mutants first, then variants, then checks.
 * Book: CONTRIBUTING.md, "How the judge works". */
#include "paths.h"
#include "isolation.h"
#include "trial.h"
#include "base/clock.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Order in which the cases of a stage run with a mutant. A few cases reject most
 * mutants, so cases that rejected earlier mutants run first. The other cases follow,
 * sorted by size. */
static struct { const struct kcp_stage *stage; int n, *at; } order;

static double work_of(const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    return (double)c->T * c->HV * c->K * c->V;
}

static void order_cases(const struct kcp_stage *s, const struct kcase *list, int n)
{
    if (order.stage == s && order.n == n) return;
    free(order.at);
    order.at = alloc_or_exit(sizeof *order.at * (size_t)n);
    order.stage = s;
    order.n = n;
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at && work_of(&list[order.at[at - 1]]) > work_of(&list[i]); at--)
            order.at[at] = order.at[at - 1];
        order.at[at] = i;
    }
}

static void move_to_front(int i)
{
    const int at = order.at[i];
    memmove(order.at + 1, order.at, sizeof *order.at * (size_t)i);
    order.at[0] = at;
}

/* Returns the index of the first case in which the mutant's error exceeds the limit, or
 * -1 if no case does or an earlier case fails in another way, e.g. by a crash. */
static int rejected_by(struct isolated *x, int n, enum kcp_storage judged,
                       struct verdict *t)
{
    for (int i = 0; i < n; i++) {
        const int at = order.at[i];
        if (isolated_case(x, at, judged, t)) return -1;
        if (t->outcome == FAIL && is_wrong(&t->worst)) {
            move_to_front(i);
            return at;
        }
        if (t->outcome == FAIL) return -1;       /* failed, but not by values */
    }
    return -1;
}

/* Returns 0 if cases with R ranks cannot show the mutant's mistake. With --ranks R, or
 * with R processes, all cases have R ranks. A mutant that passes all these cases is not
 * decidable if, in the list without --ranks, only cases with another number of ranks
 * reject the mutant. */
static int is_decidable(const struct kcp_stage *s, const struct kcp_variant *v,
                        const struct options *o, enum kcp_storage judged)
{
    struct options any = *o;
    struct verdict t;
    char why[160];
    int n, rejects = 0, rejects_with_R = 0;
    if (!s->ranks || !o->ranks || o->given) return 1;
    any.ranks = 0;
    struct kcase *list = cases_of(s, v, &any, NULL, &n);
    struct isolated x = { .stage = s, .variant = v, .list = list };
    const int off = isolation_off;
    isolation_off |= ranks_mine() >= 0;              /* no fork under a launcher */
    ranks_as_threads(1);
    for (int i = 0; list && i < n && !rejects_with_R; i++) {
        const int has_R = list[i].call.R == o->ranks;
        if (rejects && !has_R) continue;
        if (isolated_case(&x, i, judged, &t)) continue;
        if (t.outcome != FAIL || !is_wrong(&t.worst)) continue;
        rejects = 1;
        rejects_with_R = has_R;
    }
    isolated_end(&x, why, sizeof why);
    ranks_as_threads(0);
    isolation_off = off;
    free(list);
    return rejects_with_R || !rejects;
}

static void judge_mutant(struct isolated *x, int n, const struct options *o,
                         struct kcp_report *rep)
{
    const struct kcp_stage *s = x->stage;
    const struct kcp_variant *v = x->variant;
    int last = KCP_BF16;
    struct verdict t;
    char line[160] = "";
    if (strstr(v->shapes, "double only")) last = KCP_F64;
    if (strstr(v->shapes, "float only")) last = KCP_F32;
    for (int judged = KCP_F64; judged <= last; judged++) {
        const int at = rejected_by(x, n, judged, &t);
        if (at < 0 && !is_decidable(s, v, o, judged)) {
            rep->skip++;
            if (!rep->quiet)
                printf("  skip    %-30s  not decidable with R = %d\n", v->name,
                       o->ranks);
            return;
        }
        if (at < 0) {
            rep->survived++;
            report_fail(rep, "%s %s SURVIVES at the %s tolerance%s%s: %s", s->name,
                        v->name, storage_name[judged], t.why[0] ? ", " : "", t.why,
                        v->why);
            rep->fail--;
            return;
        }
        const size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, "  %s: %s off by %.1e (case %d)",
                 storage_name[judged], t.worst.field, t.worst.err, x->list[at].id);
    }
    rep->caught++;
    if (!rep->quiet) printf("  caught  %-30s%s\n", v->name, line);
}

struct tally {
    int ok, marginal, fail, na, skip, no_forward, no_backward, at;
    struct verdict worst, alive;
};

static void count(struct tally *y, const struct verdict *t, int at)
{
    y->ok += t->outcome == PASS;
    y->marginal += t->outcome == MARGINAL;
    y->na += t->outcome == NA;
    y->skip += t->outcome == SKIP;
    y->fail += t->outcome == FAIL;
    y->no_forward += t->no_forward;
    y->no_backward += t->no_backward;
    if (t->worst.tol > 0 && (!(y->worst.worst.tol > 0) ||
        t->worst.err / t->worst.tol > y->worst.worst.err / y->worst.worst.tol)) {
        y->worst = *t;
        y->at = at;
    }
    if (!(y->alive.alive > t->alive) && !isnan(t->alive)) y->alive.alive = t->alive;
    y->alive.traffic.bytes += t->traffic.bytes;
    y->alive.traffic.messages += t->traffic.messages;
}

static void show_tally(const struct kcp_variant *v, const struct tally *y,
                       const struct kcase *list, const char *why)
{
    const char *word = y->skip ? "skip" : "n/a";
    if (y->ok + y->marginal) word = "ok";
    if (y->fail) word = "FAIL";
    printf("  %-8s%-22s %-4s %3d ok", word, v->name, storage_name[v->storage], y->ok);
    if (y->marginal) printf(", %d marginal", y->marginal);
    if (y->fail) printf(", %d FAILED", y->fail);
    if (y->na) printf(", %d n/a", y->na);
    if (y->skip) printf(", %d skipped: %s", y->skip, why);
    if (y->worst.worst.tol > 0)
        printf("  worst %s %.1e of %.1e (case %d)", y->worst.worst.field,
               y->worst.worst.err, y->worst.worst.tol, list[y->at].id);
    if (y->alive.alive == y->alive.alive && y->alive.alive > 0)
        printf("  alive %.0e", y->alive.alive);
    if (y->alive.traffic.messages)
        printf("  %lld messages, %.2f MB", (long long)y->alive.traffic.messages,
               y->alive.traffic.bytes / 1e6);
    if (y->no_forward) printf("  forward n/a in %d", y->no_forward);
    if (y->no_backward) printf("  backward n/a in %d", y->no_backward);
    if (y->na) printf("  takes %d of %d cases: %s", y->ok + y->marginal + y->fail,
                      y->ok + y->marginal + y->fail + y->na, v->shapes);
    printf("\n");
}

/* Returns the cases of --case or, without --case, the variant's list (caller frees). */
static struct kcase *list_of(const struct kcp_stage *s, const struct kcp_variant *v,
                             const struct options *o, int *n)
{
    if (!o->given) return cases_of(s, v, o, paths_device(), n);
    struct kcase *list = alloc_or_exit((size_t)o->ngiven * sizeof *list);
    *n = o->ngiven;
    return memcpy(list, o->given, (size_t)*n * sizeof *list);
}

/* Returns how many of the two passes were n/a although the case's other pass ran. A
 * pass that the variant's record excludes does not count. */
static int count_passes_na(const struct kcp_variant *v, const struct tally *y)
{
    return (y->no_forward && strncmp(v->shapes, "backward;", 9)) +
           (y->no_backward && strncmp(v->shapes, "forward;", 8));
}

/* Judges a list of n cases. Afterwards the variant's process must end with status 0. */
static void judge_cases(struct isolated *x, int n, struct kcp_report *rep)
{
    const struct kcp_stage *s = x->stage;
    const struct kcp_variant *v = x->variant;
    struct tally y = { .alive.alive = NAN };
    struct verdict t = { .why = "" };
    char why[160];
    if ((v->where == KCP_HOST || paths_device()) && ranks_mine() < 0 && n > 1)
        expected_ahead(s, x->list, n, v->storage);
    for (int i = 0; i < n; i++) {
        const double begin = seconds_now();
        if (isolated_case(x, i, v->storage, &t)) t.outcome = FAIL;
        x->took = seconds_now() - begin;
        apply_record(v, x->object != NULL, &t);
        count(&y, &t, i);
        if (t.outcome == PASS || t.outcome == MARGINAL)
            paths_were_judged(s, v, &x->list[i]);
        if (t.outcome == FAIL && y.fail <= 3) show_failure(x, i, &t, rep);
        if (t.outcome == SKIP || (rep->stop && y.fail)) break;
    }
    if (isolated_end(x, why, sizeof why)) {
        y.fail++;
        report_fail(rep, "%s %s: %s", s->name, v->name, why);
    }
    rep->lost += x->lost;
    const int good = !y.fail && y.ok + y.marginal;
    rep->pass += good && y.ok;
    rep->marginal += good && !y.ok;
    rep->skip += !y.fail && !good && y.skip;
    rep->na += !y.fail && !good && !y.skip && y.na;
    const int halves = good ? count_passes_na(v, &y) : 0;
    rep->na += halves;
    if (y.fail > 3) report_fail(rep, "%s %s: %d more cases", s->name, v->name,
                                y.fail - 3);
    if (!rep->quiet || y.fail || halves || (good && y.na && x->object))
        show_tally(v, &y, x->list, t.why);
}

static void judge_variant(const struct kcp_stage *s, const struct kcp_variant *v,
                          const struct options *o, struct kcp_report *rep)
{
    static struct kcp_stage held;                 /* s with o->reference */
    int n;
    if (o->reference && !strcmp(o->reference->stage, s->name)) {
        held = *s;
        held.ref = o->reference->run;
        s = &held;
    }
    struct kcase *list = list_of(s, v, o, &n);
    if (!list) {
        report_fail(rep, "%s %s: out of memory", s->name, v->name);
        return;
    }
    struct isolated x = { .stage = s, .variant = v, .object = o->object, .list = list };
    if (is_mutant(v)) {
        char why[160];
        order_cases(s, list, n);
        judge_mutant(&x, n, o, rep);
        isolated_end(&x, why, sizeof why);
    } else judge_cases(&x, n, rep);
    free(list);
}

static void count_check(const struct kcp_check *c, int status, struct kcp_report *own,
                       struct kcp_report *rep)
{
    if (status == KCP_NA) rep->skip++;
    else if (status) report_fail(own, "%s %s: status %d", c->stage, c->name, status);
    else if (!own->expectations)
        report_fail(own, "%s %s: no EXPECT was reached", c->stage, c->name);
    const char *word = status ? "skip" : "ok";
    if (own->fail) word = "FAIL";
    if (!rep->quiet || own->fail)
        printf("  %-8s%-22s %d expectations: %s\n", word, c->name, own->expectations,
               c->what);
    rep->expectations += own->expectations;
    rep->fail += own->fail != 0;
    rep->pass += !own->fail && !status;
    if (own->fail && !rep->first[0]) memcpy(rep->first, own->first, sizeof rep->first);
}

void judge_object(const struct kcp_variant *v, const struct options *o,
                  struct kcp_report *rep)
{
    static const char *const what[] = {
        "NaN in one sequence changes no bit of other sequences",
        "canonical segments give equal bits on 1 to 8 ranks" };
    const struct kcp_stage *s = stage_find(v->stage);
    const int fixed = o->given || o->reference || ranks_mine() >= 0;
    judge_variant(s, v, o, rep);
    for (int i = 0; i < 2 && !fixed; i++) {
        struct isolated x = { .stage = s, .variant = v, .object = o->object,
                              .lost = rep->lost };
        struct kcp_report own = { .quiet = rep->quiet };
        const struct kcp_check c = { s->name, i ? "canonical" : "alone", what[i],
                                     NULL };
        const int status = isolated_bits(&x, i, &own);
        if (status != KCP_NA) count_check(&c, status, &own, rep);  /* n/a: no check */
    }
}

/* If a stage runs on several ranks, judges its reference like a variant, against the
 * token recurrence. */
static void judge_reference(const struct kcp_stage *s, const struct options *o,
                            struct kcp_report *rep)
{
    const struct kcp_variant ref = reference_of(s);
    if (s->ranks && (!o->variant || !strcmp(o->variant, "ref")))
        judge_variant(s, &ref, o, rep);
}

static int has_to_stop(const struct options *o, const struct kcp_report *rep)
{
    return o->stop && (rep->fail || rep->survived);
}

/* Runs the checks of stage s or, if s is NULL, the checks that belong to no stage. */
static void run_checks(const char *stage, const struct kcp_stage *s,
                       const struct options *o, struct kcp_report *rep)
{
    const struct kcp_check *c[MOST_CHECKS];
    const int n = kcp_checks(stage, c, MOST_CHECKS);
    const char *shown = "";
    for (int j = 0; j < n && !has_to_stop(o, rep); j++) {
        if (stage_find(c[j]->stage) != s || !check_is_here(o, c[j])) continue;
        if (!check_is_selected(o, c[j])) continue;
        if (!s && strcmp(c[j]->stage, shown)) printf("%s\n", c[j]->stage);
        shown = c[j]->stage;
        struct kcp_report own = { .quiet = rep->quiet };
        count_check(c[j], isolated_check(c[j], &own), &own, rep);
    }
    fflush(stdout);
}

int judge_all(const struct options *o, struct kcp_report *rep)
{
    for (int i = 0; i < kcp_nstages; i++) {
        const struct kcp_stage *s = &kcp_stages[i];
        const struct kcp_variant *v[256];
        if (o->stage && stage_find(o->stage) != s) continue;
        const int nv = kcp_variants(s->name, o->variant, v, 256);
        const int apart = ranks_mine() >= 0;         /* under a launcher */
        if (apart && !s->ranks) continue;
        printf("%s\n", s->name);
        for (int j = 0; j < nv && !has_to_stop(o, rep); j++) {
            const int device = v[j]->where == KCP_DEVICE;
            const int ours = device ? o->only_device || !apart : !o->only_device;
            if (ours && !(o->quick && is_mutant(v[j]))) judge_variant(s, v[j], o, rep);
        }
        if (has_to_stop(o, rep)) return report_close(rep, o->strict);
        if (!o->only_device) judge_reference(s, o, rep);
        if (!apart && (nv || (!o->variant && !o->given))) paths_close(s, o, rep);
        run_checks(s->name, s, o, rep);
    }
    run_checks(o->stage, NULL, o, rep);           /* e.g. checks of the judge */
    return report_close(rep, o->strict);
}
