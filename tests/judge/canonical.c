/* canonical.c -- kernels on canonical segments: not a bit may depend on R or the form.
 *
 * Book: chapters 06, 08, 13, 15, 16.  Checked by: itself, it can fail; on a GPU, whose
 * ranks are threads here.  Next: alone.c.
 * The references are held to it by 08_forward.c, 13_backward.c, 15_scan.c, 16_family.c.
 */
#include "trial.h"

#include <math.h>
#include <string.h>

/* One run: its trial and the plan that it follows. */
struct planned { struct trial t; struct kcp_plan *p; };

static void free_planned(struct planned *x)
{
    trial_free(&x->t);
    kcp_plan_free(x->p);
    x->p = NULL;
}

static int run_planned(struct planned *x, const struct kcase *k, enum kcp_pass pass,
               const struct expected *e, char *why, size_t n)
{
    x->p = case_plan(k, k->call.R);
    const int status = x->p ? trial_fill(&x->t, k, x->p, pass, &e->in, &e->want)
                            : KCP_NO_MEMORY;
    return status ? status : trial_run(&x->t, why, n);
}

int64_t buffer_other_bytes(const struct buffer *o, const struct buffer *to,
                           int64_t first)
{
    const int64_t rows = o->dim[0], n = o->n;
    const size_t row = rows ? o->bytes / (size_t)rows : 0;
    const char *got = o->image + FENCE, *want = to->image + FENCE;
    int64_t bytes = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (isnan(o->want[i * (n / rows)])) continue;
        const char *a = got + i * row, *b = want + (first + i) * row;
        for (size_t j = 0; j < row; j++) bytes += a[j] != b[j];
    }
    return bytes;
}

static void compare(struct kcp_report *rep, const struct planned *x,
                    const struct planned *one, const char *what)
{
    for (int r = 0; r < x->t.R; r++)
        for (int i = 0; i < x->t.rank[r].n; i++) {
            const struct buffer *o = &x->t.rank[r].buffer[i], *first = NULL;
            for (int j = 0; j < one->t.rank[0].n; j++)
                if (one->t.rank[0].buffer[j].field == o->field)
                    first = &one->t.rank[0].buffer[j];
            if (!o->want || !first) continue;
            const int64_t bytes = buffer_other_bytes(o, first, o->first);
            EXPECT(rep, !bytes, "%s: rank %d of %d, %s: %s: %lld bytes are not those "
                   "of one rank", what, r, x->t.R,
                   kcp_form_names[x->t.rank[r].call.form],
                   o->field->name, (long long)bytes);
        }
}

/* One variant, one pass, one case: R and form against the only rank's. */
static int every_R(struct kcp_report *rep, const struct kcp_variant *v,
                   const struct kcp_stage *s, struct kcase k, enum kcp_pass pass)
{
    static const int R[] = { 2, 3, 4, 8 };
    const struct memory *mem = v->where == KCP_HOST ? &host_memory : gpu_of_threads();
    struct planned one = { { .stage = s, .variant = v, .mem = mem }, NULL }, x = one;
    char why[160] = "";
    struct kcp_plan *p = case_plan(&k, 1);
    const struct expected *e = p ? expected_of(s, &k, pass, v->storage, p) : NULL;
    int status = e ? run_planned(&one, &k, pass, e, why, sizeof why) : KCP_BAD;
    for (int form = KCP_ALL_GATHER; form <= KCP_PIPELINE && !status; form++)
        for (int j = 0; j < 4 && !status; j++) {
            k.call.R = R[j];
            k.call.form = form;
            for (int r = 0; r <= R[j]; r++) k.cuts[r] = r * k.call.T / R[j];
            status = run_planned(&x, &k, pass, e, why, sizeof why);
            if (!status) compare(rep, &x, &one, v->name);
            free_planned(&x);
        }
    EXPECT(rep, !status || status == KCP_NA, "%s, R = %d: status %d %s", v->name,
           k.call.R, status, why);
    free_planned(&one);
    kcp_plan_free(p);
    return status == KCP_NO_MEMORY ? status : KCP_OK;
}

static const char *const layers[] = {
    "kda live H=1 HV=2 K=64 V=64 lengths=150,0,300 L=64 l2norm beta=sigmoid h0 dht",
    "gdn strong H=2 K=128 V=128 lengths=330 L=128 l2norm save=all h0 dht",
    "kda live H=2 K=128 V=128 lengths=330 L=128 l2norm save=light h0 dht",
    "kda live H=1 K=64 V=64 lengths=200,0,130 L=64 l2norm h0 dht blocks=3",
    "gdn live H=1 HV=2 K=64 V=48 lengths=330 L=64 l2norm h0 dht", NULL };
static const char *const scans[] = {
    "kda live H=1 HV=2 K=64 V=64 C=16 lengths=150,0,200 L=48 h0 dht walk=blelloch"
    " masks=3",
    "kda strong H=2 K=64 V=64 C=64 lengths=300 L=64 h0 dht walk=sequential masks=2",
    "kda live H=1 HV=3 K=20 V=12 C=16 lengths=200 L=32 h0 dht masks=1", NULL };
static const char *const families[] = {
    "dplr live H=2 K=64 V=64 lengths=150,0,200 L=64 h0 dht",
    "gdn2 strong H=1 HV=2 K=64 V=64 lengths=300 L=64 h0 dht",
    "gla live H=2 K=64 V=64 lengths=300 L=64 h0 dht", NULL };

static const struct { const char *stage, *const *words; } table[] = {
    { "08", layers }, { "13", layers }, { "15", scans }, { "16", families } };

int canonical_variant(struct kcp_report *rep, const struct kcp_variant *v)
{
    const struct kcp_stage *s = stage_find(v->stage);
    const char *const *words = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (stage_find(table[i].stage) == s) words = table[i].words;
    if (!words || (v->where == KCP_DEVICE && !gpu_of_threads())) return KCP_NA;
    for (; *words; words++) {
        struct kcase k;
        char why[160];
        if (case_parse(*words, &k, why, sizeof why)) return KCP_BAD;
        for (int pass = 0; pass <= has_backward(s); pass++) {
            const int err = every_R(rep, v, s, k, (enum kcp_pass)pass);
            if (err) return err;
        }
    }
    return KCP_OK;
}

static int canonical(struct kcp_report *rep, const char *stage)
{
    const struct kcp_variant *v[256];
    const int n = kcp_variants(stage_find(stage)->name, NULL, v, 256);
    int err = KCP_OK;
    if (!gpu_of_threads()) {
        printf("  (no GPU that threads share: canonical bits not compared)\n");
        return KCP_NA;
    }
    for (int i = 0; i < n && !err; i++)
        if (v[i]->where == KCP_DEVICE) err = canonical_variant(rep, v[i]);
    return err;
}

static int of_08(struct kcp_report *rep) { return canonical(rep, "08"); }
static int of_13(struct kcp_report *rep) { return canonical(rep, "13"); }
static int of_15(struct kcp_report *rep) { return canonical(rep, "15"); }
static int of_16(struct kcp_report *rep) { return canonical(rep, "16"); }

#define WHAT "kernels on canonical segments: the same bits for R = 1, 2, 3, 4, 8, " \
             "3 forms"
KCP_CHECK(check_08_gpu_canonical) = { "08_forward", "gpu_canonical", WHAT, of_08 };
KCP_CHECK(check_13_gpu_canonical) = { "13_backward", "gpu_canonical", WHAT, of_13 };
KCP_CHECK(check_15_gpu_canonical) = { "15_scan", "gpu_canonical", WHAT, of_15 };
KCP_CHECK(check_16_gpu_canonical) = { "16_family", "gpu_canonical", WHAT, of_16 };
