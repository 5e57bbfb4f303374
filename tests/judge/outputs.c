/* outputs.c -- compares the outputs of one build with the outputs of another build.
 * Book: CONTRIBUTING.md, "Mutation testing".
 *
 * The judge compares variants with references of the same build, so a mistake in code
 * that variants and references share goes unnoticed. Therefore one build writes the
 * outputs of fifty cases per stage to a file, and another build compares its outputs
 * with the file, slice by slice, with the tolerances of check.c. */
#include "emit.h"
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 50, FEW = 10, MOVED = 10 };

struct outputs {
    FILE *f;
    int compare;
    double most;                   /* largest ratio err / limit of all slices */
    int bits;                      /* 1: some bit differs */
    char where[200];
};

/* In the file a `struct head` precedes each pass of a case, and the number of elements
 * precedes each output. `sizes` are the natural sizes by which errors are divided. */
struct head {
    char stage[24], variant[40];
    int id, pass, status, R;
    struct natural_sizes sizes;
};

static void moved(struct outputs *w, double by, const char *where)
{
    w->bits = 1;
    if (!(by > w->most) && !isnan(by)) return;
    w->most = isnan(by) ? INFINITY : by;
    snprintf(w->where, sizeof w->where, "%s", where);
}

/* Compares a rank's output with the numbers `before`, read from the file. */
static void compare(struct outputs *w, const struct trial *t, const struct rank_args *s,
                    const struct buffer *o, const struct head *h, const double *got,
                    double *before)
{
    struct worst worst = { .err = 0 };
    struct slice x = slice_of(t, s, o, t->expected, got, before, NULL);
    char where[200];
    x.sizes = h->sizes;
    if (!memcmp(got, before, 8 * (size_t)o->n)) return;
    check_slice(&x, &worst);
    snprintf(where, sizeof where, "%s %s case %d rank %d %s", t->stage->name,
             t->variant->name, s->id, s->call.r, worst.field);
    moved(w, worst.nan ? INFINITY : worst.err / fmax(worst.tol, 1e-300), where);
}

/* Writes n bytes, or reads n bytes to `before` if w->compare. Returns 0 on failure. */
static int transfer(struct outputs *w, const void *data, void *before, size_t n)
{
    return w->compare ? fread(before, 1, n, w->f) == n : fwrite(data, 1, n, w->f) == n;
}

/* Writes or compares a rank's outputs. Returns 0 if a transfer or a size is wrong. */
static int each_rank(struct outputs *w, const struct trial *t,
                     const struct rank_args *s, const struct head *h)
{
    int good = 1;
    for (int i = 0; i < s->n && good; i++) {
        const struct buffer *o = &s->buffer[i];
        const size_t bytes = 8 * (size_t)o->n;
        int64_t n = o->n;
        if (!o->want) continue;
        double *got = numbers_of(o, o->image), *before = alloc_or_exit(bytes + 8);
        good = transfer(w, &o->n, &n, sizeof n) && n == o->n &&
               transfer(w, got, before, bytes);
        if (!good) moved(w, INFINITY, "an output's size differs, or the file ended");
        else if (w->compare) compare(w, t, s, o, h, got, before);
        free(got);
        free(before);
    }
    return good;
}

/* Writes or compares the outputs of one pass of one case. Returns 0 if writing failed,
 * the file is too short, or its case, status or output length differs. */
static int each_pass(struct outputs *w, const struct kcp_stage *s,
                     const struct kcp_variant *v, const struct kcase *k,
                     enum kcp_pass pass)
{
    struct trial t = { .stage = s, .variant = v, .mem = &host_memory };
    struct head h, before;
    char why[160] = "", where[200];
    memset(&h, 0, sizeof h);
    snprintf(h.stage, sizeof h.stage, "%s", s->name);
    snprintf(h.variant, sizeof h.variant, "%s", v->name);
    h.id = k->id;
    h.pass = pass;
    h.status = trial_case(&t, k, pass, v->storage, why, sizeof why);
    h.R = t.R;
    if (t.expected) h.sizes = t.expected->sizes;
    before = h;
    int good = transfer(w, &h, &before, sizeof h) &&
               !memcmp(&before, &h, offsetof(struct head, sizes));
    snprintf(where, sizeof where, "%s %s case %d: status %d", s->name, v->name, k->id,
             h.status);
    if (!good) moved(w, INFINITY, where);
    for (int r = 0; good && !h.status && r < h.R; r++)
        good = each_rank(w, &t, &t.rank[r], &before);
    trial_free(&t);
    return good;
}

static int each_case(struct outputs *w, const struct kcp_stage *s,
                     const struct kcp_variant *v, const struct kcase *k)
{
    return each_pass(w, s, v, k, KCP_FORWARD) &&
           (!has_backward(s) || each_pass(w, s, v, k, KCP_BACKWARD));
}

/* Draws cases of a stage from successive seeds until the stage has enough cases. */
static int draw(const struct kcp_stage *s, const struct options *o, struct kcase *out)
{
    const int most = o->quick ? FEW : CASES;
    int n = 0;
    for (int more = 0; n < most && more < most; more++) {
        int m = 0;
        const uint64_t seed = o->seed + (uint64_t)more;
        struct kcase *list = cases_make(s, 0, 0, seed, o->ranks, &m);
        for (int i = 0; list && i < m && n < most; i++) {
            out[n] = list[i];
            out[n].id = n;
            n++;
        }
        free(list);
    }
    return n;
}

static int each_stage(struct outputs *w, const struct kcp_stage *s,
                      const struct options *o)
{
    const struct kcp_variant ref = reference_of(s);
    const struct kcp_variant *v[256];
    struct kcase list[CASES];
    const int nv = kcp_variants(s->name, NULL, v, 256), n = draw(s, o, list);
    for (int i = 0; i < n; i++)
        for (int j = -1; j < nv; j++) {
            const struct kcp_variant *one = j < 0 ? &ref : v[j];
            if (one->where != KCP_HOST || is_mutant(one)) continue;
            if (!each_case(w, s, one, &list[i]) || (w->compare && w->most > MOVED))
                return 0;
        }
    return 1;
}

static int outputs_all(struct outputs *w, const struct options *o)
{
    int going = 1;
    for (int i = 0; going && i < kcp_nstages; i++)
        if (!o->stage || stage_find(o->stage) == &kcp_stages[i])
            going = each_stage(w, &kcp_stages[i], o);
    return going;
}

static int unopened(const char *path)
{
    fprintf(stderr, "kcp-check: %s: cannot open file of --keep or --against\n", path);
    return 2;
}

int outputs_keep(const char *path, const struct options *o)
{
    struct outputs w = { .f = fopen(path, "wb") };
    if (!w.f) return unopened(path);
    const int whole = outputs_all(&w, o);
    if (!fclose(w.f) && whole) return 0;
    fprintf(stderr, "kcp-check: %s: cannot write the whole file\n", path);
    return 2;
}

int outputs_against(const char *path, const struct options *o)
{
    struct outputs w = { .f = fopen(path, "rb"), .compare = 1 };
    if (!w.f) return unopened(path);
    outputs_all(&w, o);
    fclose(w.f);
    if (!w.bits) {
        printf("no bit changed\n");
        return 0;
    }
    printf("moved by %.1e limits: %s\n", w.most, w.where);
    return w.most > MOVED ? 1 : 3;
}
