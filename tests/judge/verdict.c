/* verdict.c -- computes a verdict: the worst error, its position, and a map of errors.
 * Book: CONTRIBUTING.md, "How the judge works". */
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

double *numbers_of(const struct buffer *o, const char *image)
{
    double *x = alloc_or_exit(8 * (size_t)o->n + 8);
    decode(x, image + FENCE, o->n, o->type);
    return x;
}

/* Writes one character per chunk of an output: '.' if the error is within the
 * tolerance, digit n if the error is at least 10^(n-1) tolerances, and 'N' for NaN.
 * Returns the end of the text. */
static char *map_chunks(const struct buffer *o, int64_t C, double tol, char *p,
                        const char *end)
{
    const int64_t row = o->n / (o->dim[0] ? o->dim[0] : 1);
    double *x = numbers_of(o, o->image);
    for (int64_t c = 0; c * C < o->dim[0] && end - p > 40; c++) {
        double off = 0, own = 1e-300;
        for (int64_t j = c * C * row; j < (c + 1) * C * row && j < o->n; j++) {
            off += pow(x[j] - o->want[j], 2);
            own += pow(o->want[j], 2);
        }
        const double over = log10(sqrt(off / own) / tol);
        char digit = (char)('1' + (int)fmin(8, over));
        if (over <= 0) digit = '.';
        *p++ = isnan(over) ? 'N' : digit;
    }
    free(x);
    return p + snprintf(p, (size_t)(end - p), "\n");
}

/* Writes a map of the errors of `field`: one line per rank, one character per chunk. */
static void draw_map(const struct trial *t, const char *field, double tol, char *map,
                     size_t size)
{
    char *p = map, *end = map + size;
    *p = 0;
    for (int r = 0; r < t->R && end - p > 80; r++) {
        const struct rank_args *s = &t->rank[r];
        for (int i = 0; i < s->n; i++) {
            const struct buffer *o = &s->buffer[i];
            if (strcmp(o->field->name, field) || !o->want || o->field->shape[0] != 'T')
                continue;
            if (p == map)
                p += snprintf(p, (size_t)(end - p), "        per chunk: . is within "
                              "the limit, n is over 10^(n-1) limits, N is NaN\n");
            p += snprintf(p, (size_t)(end - p),
                          t->stage->ranks ? "    rank %d  " : "    chunks  ", r);
            p = map_chunks(o, s->call.C, tol, p, end);
        }
    }
}

struct slice slice_of(const struct trial *t, const struct rank_args *s,
                      const struct buffer *o, const struct expected *x,
                      const double *got, const double *want, const struct tensor *all)
{
    struct slice y = { .stage = stage_of_field(t->stage, o->field), .field = o->field,
                       .call = &s->call, .got = got, .want = want, .nd = o->nd,
                       .rank = s->call.r, .first = o->first, .all = want,
                       .all_rows = o->dim[0], .sizes = x->sizes, .alike = x->k.alike,
                       .judged = x->judged };
    y.of_forward = y.stage != t->stage;
    memcpy(y.dim, o->dim, sizeof y.dim);
    if (all) {
        y.all = all->p;
        y.all_rows = all->dim[0];
    }
    return y;
}

static void judge_rank(const struct trial *t, const struct rank_args *s,
                       enum kcp_storage judged, int is_plain, struct worst *w)
{
    for (int i = 0; i < s->n; i++) {
        const struct buffer *o = &s->buffer[i];
        if (!o->want) continue;
        double *got = numbers_of(o, o->image);
        struct slice x = slice_of(t, s, o, t->expected, got, o->want,
                                  tensor_find(&t->expected->want, o->field->name));
        x.is_plain = is_plain;
        x.moved = judged == KCP_F64 ? NULL : expected_moved;
        check_slice(&x, w);
        free(got);
    }
}

/* Finds the worst error of all ranks, relative to its limit, first with plain limits.
 * If this error is between the plain and the largest raised limit, repeats with raised
 * limits. Plain limits come first because raised limits are slow to compute. */
static void judge_ranks(const struct trial *t, enum kcp_storage judged, struct worst *w)
{
    for (int is_plain = 1; is_plain >= 0; is_plain--) {
        *w = (struct worst){ .err = 0 };
        for (int r = 0; r < t->R; r++)
            judge_rank(t, &t->rank[r], judged, is_plain, w);
        const double most = limit_rises_by(judged, &t->rank[0].call);
        if (w->nan || w->err <= w->tol || w->err > most * w->tol) return;
    }
}

/* Compares the outputs of two runs of the same trial byte by byte. */
static int same_bits(const struct trial *a, const struct trial *b, char *why, size_t n)
{
    for (int r = 0; r < a->R; r++)
        for (int i = 0; i < a->rank[r].n; i++)
            if (memcmp(a->rank[r].buffer[i].image, b->rank[r].buffer[i].image,
                       a->rank[r].buffer[i].bytes + 2 * FENCE)) {
                const struct kcp_field *f = a->rank[r].buffer[i].field;
                snprintf(why, n, "rank %d: %s%s differs when run again", r,
                         forward_prefix(f), f->name);
                return 0;
            }
    return 1;
}

static int run_again(struct trial *t, char *why, size_t n)
{
    for (int r = 0; r < t->R; r++) rank_args_reset(&t->rank[r]);
    return trial_run(t, why, n);
}

int case_repeats = 1;
static const int64_t LARGE_STATES = 1 << 22;

/* The current list of cases, and the number of its cases that ran in each pass. `seed`
 * is a case's seed minus the case's id, and is equal for all cases of a list. */
static struct list_run {
    const struct kcp_stage *stage;
    int (*run)(void *);
    enum kcp_storage storage;
    uint64_t seed;
    int ran[2];
} list_run;

void repeats_begin(void) { list_run = (struct list_run){ 0 }; }

/* Returns 1 for the first case of the list that the variant supports in this pass. */
static int is_first(const struct trial *t, const struct kcase *k)
{
    const struct list_run now = { t->stage, t->variant->run, t->variant->storage,
                                  k->seed - (unsigned)k->id, { 0 } };
    const int pass = t->pass == KCP_BACKWARD;
    const int same = list_run.stage == now.stage && list_run.run == now.run &&
                     list_run.storage == now.storage && list_run.seed == now.seed;
    if (!same) list_run = now;
    return !list_run.ran[pass]++;
}

/* Returns how often to repeat a case. With --repeats N, the first three cases of each
 * list and one case per path (lists.c) are repeated N times. If N is 1 (the default),
 * the first case that a variant supports in each pass is repeated fifty times, or four
 * times if its states are large (only with --case), because fifty runs of a reference
 * take a minute. Repeats detect errors that are rare or depend on a workspace. */
static int repeats_of(const struct trial *t, const struct kcase *k)
{
    const int first = is_first(t, k) || k->id == 0;
    const struct kcp_call *c = &k->call;
    const int64_t states = (int64_t)c->N * c->HV * c->K * c->V;
    if (first && case_repeats == 1) return states > LARGE_STATES ? 4 : 50;
    return first || k->id % 1000 < 3 || k->again ? case_repeats : 0;
}

static void pass_run(const struct kcp_stage *s, const struct kcp_variant *v,
                     const struct kcase *k, enum kcp_storage judged, enum kcp_pass pass,
                     struct verdict *out)
{
    const struct memory *mem = trial_memory(v->where);
    struct trial t = { .stage = s, .variant = v, .mem = mem }, again = t;
    *out = (struct verdict){ .outcome = mem ? PASS : SKIP, .alive = NAN,
                           .backward = pass == KCP_BACKWARD };
    snprintf(out->why, sizeof out->why, "%s", mem ? "" : "no device");
    if (!mem) return;
    snprintf(out->why, sizeof out->why, "%s %s, case %d", s->name, v->name, k->id);
    ranks_doing(out->why);
    out->why[0] = 0;
    int status = trial_case(&t, k, pass, judged, out->why, sizeof out->why);
    if (!status && v->run == s->ref &&
        !traffic_is_right(&t, out->why, sizeof out->why))
        status = KCP_BAD;
    if (t.expected) out->alive = t.expected->alive;
    if (status) {
        out->outcome = status == KCP_NA ? NA : FAIL;
        out->refused = status == KCP_NA && !out->why[0];
        if (out->refused) snprintf(out->why, sizeof out->why, "takes %s", v->shapes);
        else if (!out->why[0])
            snprintf(out->why, sizeof out->why, "returned status %d", status);
        trial_free(&t);
        if (s->ranks) ranks_agree(out);
        return;
    }
    struct worst *w = &out->worst;
    judge_ranks(&t, judged, w);
    for (int r = 0; r < t.R; r++) {
        out->traffic.bytes += t.rank[r].traffic.bytes;
        out->traffic.messages += t.rank[r].traffic.messages;
    }
    if (w->nan || !(w->err <= w->tol)) {
        out->outcome = FAIL;
        draw_map(&t, w->field, w->tol, out->map, sizeof out->map);
    } else if (w->err > 0.9 * w->tol) out->outcome = MARGINAL;
    if (s->ranks) ranks_agree(out);
    const int times = is_mutant(v) ? 0 : repeats_of(&t, k);
    for (int i = 0; i < times && out->outcome != FAIL; i++) {        /* repeated runs */
        out->again = 1;
        if (!bare_workspaces)
            again.stale = (i + k->id) % 2 ? LEFT_OTHER_SIZE : LEFT_BY_LAST;
        status = i ? run_again(&again, out->why, sizeof out->why)
                   : trial_case(&again, k, pass, judged, out->why,
                                sizeof out->why);
        if (status || !same_bits(&t, &again, out->why, sizeof out->why))
            out->outcome = FAIL;
        const struct kcp_traffic first = out->traffic;
        out->traffic = (struct kcp_traffic){ 0 };
        if (s->ranks) ranks_agree(out);
        out->traffic = first;
    }
    out->again &= out->outcome == FAIL;
    trial_free(&again);
    trial_free(&t);
}

/* Merges verdict b of a case's backward pass into verdict a of the forward pass. The
 * result is FAIL if a pass fails, and n/a if both passes are n/a. */
static void merge(struct verdict *a, const struct verdict *b)
{
    const int no_forward = a->outcome == NA && b->outcome != NA;
    a->no_backward = b->outcome == NA && a->outcome != NA;
    if (a->outcome == FAIL || b->outcome == NA) return;
    if (b->outcome == FAIL || a->outcome == NA) {
        *a = *b;
        a->no_forward = no_forward;
        return;
    }
    if (b->outcome == MARGINAL) a->outcome = MARGINAL;
    if (b->worst.tol > 0 && b->worst.err / b->worst.tol > a->worst.err / a->worst.tol)
        a->worst = b->worst;
    a->traffic.bytes += b->traffic.bytes;
    a->traffic.messages += b->traffic.messages;
}

int judge_case(const struct kcp_stage *s, const struct kcp_variant *v,
              const struct kcase *k, enum kcp_storage judged, struct verdict *out)
{
    pass_run(s, v, k, judged, KCP_FORWARD, out);
    if (has_backward(s) && out->outcome != FAIL && out->outcome != SKIP) {
        struct verdict back;
        pass_run(s, v, k, judged, KCP_BACKWARD, &back);
        merge(out, &back);
    }
    return KCP_OK;
}
