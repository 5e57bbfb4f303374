/* bits.c -- checks that no output bit depends on other sequences or the rank count.
 * Book: chapters 06, 08, 13, 15, 16.
 *
 * The check `alone` fills one sequence with NaN and requires that no bit of the other
 * sequences' outputs changes. The rows after a partial chunk belong to the next
 * sequence. A kernel that loads these rows and multiplies them by 0 is correct only if
 * they are finite, because 0 times NaN is NaN. Then `alone` fills only one input of the
 * sequence, each in turn, and requires NaN in an output, because fmaxf(g, -200) would
 * hide a NaN in g. The check `canonical` cuts segments at fixed token numbers and
 * requires equal bits on 1, 2, 3, 4, 7 and 8 ranks, in the forms (exchange algorithms)
 * that compose maps in token order. tests/13 to 16 run `canonical` on references. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Compares output o with another run's output `to`, whose row `first` matches row 0 of
 * o. Adds the number of bytes that differ in sequence `bad` to bytes[1], and in other
 * sequences to bytes[0]; if k is NULL, in all sequences to bytes[0]. Skips states that
 * other ranks own (NaN in o->want). */
static void count_bytes(const struct buffer *o, const struct buffer *to, int64_t first,
                        const struct kcase *k, int bad, int64_t bytes[2])
{
    const int64_t rows = o->dim[0], width = rows ? o->n / rows : 0;
    const size_t row = rows ? o->bytes / (size_t)rows : 0;
    int s = 0;
    for (int64_t i = 0; i < rows; i++) {
        const char *a = o->image + FENCE + i * row;
        const char *b = to->image + FENCE + (first + i) * row;
        if (isnan(o->want[i * width])) continue;
        if (k && has_row_per(o->field, "N")) s = (int)i;
        while (k && has_row_per(o->field, "T") && o->first + i >= k->cu[s + 1]) s++;
        for (size_t j = 0; j < row; j++) bytes[k && s == bad] += a[j] != b[j];
    }
}

int64_t buffer_other_bytes(const struct buffer *o, const struct buffer *to,
                           int64_t first)
{
    int64_t bytes[2] = { 0 };
    count_bytes(o, to, first, NULL, 0, bytes);
    return bytes[0];
}

/* ---- one sequence is NaN */

/* Copies the inputs and fills sequence `bad` with NaN: in the input `only`, or in all
 * inputs if `only` is NULL. Returns the number of inputs filled. */
static int fill_nan(struct tensor_set *to, const struct tensor_set *from,
                    const struct kcp_stage *s, const struct kcase *k, int bad,
                    const struct kcp_field *only)
{
    int filled = 0;
    tensor_set_copy(to, from);
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        const struct tensor *t = field_in(f) ? tensor_find(to, f->name) : NULL;
        const int tokens = has_row_per(f, "T");
        if (!t || !t->n || f->store == KCP_I32 || f->store == KCP_I64) continue;
        if (only && f != only) continue;
        if (!tokens && !has_row_per(f, "N")) continue;
        const int64_t row = t->n / t->dim[0], from_row = tokens ? k->cu[bad] : bad;
        const int64_t end = tokens ? k->cu[bad + 1] : bad + 1;
        for (int64_t e = from_row * row; e < end * row; e++) ((double *)t->p)[e] = NAN;
        filled++;
    }
    return filled;
}

static int has_nan_output(const struct trial *x)
{
    int found = 0;
    for (int r = 0; r < x->R; r++)
        for (int i = 0; i < x->rank[r].n && !found; i++) {
            const struct buffer *o = &x->rank[r].buffer[i];
            double *y = o->want ? numbers_of(o, o->image) : NULL;
            for (int64_t j = 0; y && j < o->n && !found; j++)
                found = isnan(y[j]) && !isnan(o->want[j]);
            free(y);
        }
    return found;
}

/* Fills the first sequence's rows with NaN, in one input at a time. If no output is
 * NaN, sets *hidden to the input's name. */
static int run_each_input(struct trial x, const struct trial *clean,
                          const struct kcase *k, const char **hidden, char *why,
                          size_t n)
{
    struct tensor_set in = { 0 };
    const struct expected *e = clean->expected;
    int status = KCP_OK;
    for (int i = 0; i < x.stage->nfields && !status; i++) {
        const struct kcp_field *f = &x.stage->fields[i];
        if (f->io != KCP_IN || !fill_nan(&in, &e->in, x.stage, k, 0, f)) continue;
        status = trial_with(&x, k, clean->pass, &in, &e->want, why, n);
        if (!status && !has_nan_output(&x)) *hidden = f->name;
        trial_free(&x);
    }
    tensor_set_free(&in);
    return status;
}

/* Fills one sequence at a time with NaN. Adds the number of output bytes that change to
 * bytes[1] for the NaN sequence and to bytes[0] for other sequences. In forward, calls
 * run_each_input at the end. */
static int run_alone(const struct kcp_variant *v, const struct kcp_stage *s,
                     const struct memory *mem, const struct kcase *k,
                     enum kcp_pass pass, int64_t bytes[2], const char **hidden,
                     char *why, size_t n)
{
    struct trial clean = { .stage = s, .variant = v, .mem = mem }, x = clean;
    struct tensor_set in = { 0 };
    int status = trial_case(&clean, k, pass, v->storage, why, n);
    const struct expected *e = clean.expected;
    for (int bad = 0; bad < k->call.N && !status; bad++) {
        if (k->cu[bad] == k->cu[bad + 1]) continue;
        fill_nan(&in, &e->in, s, k, bad, NULL);
        status = trial_with(&x, k, pass, &in, &e->want, why, n);
        for (int r = 0; r < x.R && !status; r++)
            for (int i = 0; i < x.rank[r].n; i++) {
                const struct buffer *o = &x.rank[r].buffer[i];
                if (o->want && (has_row_per(o->field, "T") ||
                                has_row_per(o->field, "N")))
                    count_bytes(o, &clean.rank[r].buffer[i], 0, k, bad, bytes);
            }
        trial_free(&x);
    }
    if (!status && pass == KCP_FORWARD)
        status = run_each_input(x, &clean, k, hidden, why, n);
    tensor_set_free(&in);
    trial_free(&clean);
    return status;
}

static int alone_pass(struct kcp_report *rep, const struct kcp_variant *v,
                      const struct kcp_stage *s, const struct memory *mem,
                      struct kcase k, enum kcp_pass pass)
{
    int64_t bytes[2] = { 0 };
    const char *hidden = NULL;
    char why[160] = "";
    const int status = run_alone(v, s, mem, &k, pass, bytes, &hidden, why, sizeof why);
    if (status == KCP_NO_MEMORY || status == KCP_NA) return status;
    EXPECT(rep, !status, "%s: status %d %s", v->name, status, why);
    EXPECT(rep, !bytes[0], "%s, R = %d: NaN in one sequence changes %lld output "
                           "bytes of other sequences", v->name, k.call.R,
           (long long)bytes[0]);
    EXPECT(rep, bytes[1] > 0, "%s: no output of the NaN sequence changes", v->name);
    EXPECT(rep, !hidden, "%s, R = %d: no output is NaN, although input %s of a "
           "sequence is NaN", v->name, k.call.R, hidden);
    return KCP_OK;
}

/* ---- two runs on equal inputs */

/* Requires that runs x and `to` have equal output bits. Run `to` has one rank or as
 * many ranks as x. If the runs are on a GPU and differ in option `save`, skips outputs
 * of the forward that stage 13 runs first, because `save` may select another kernel. */
static void compare(struct kcp_report *rep, const struct trial *x,
                    const struct trial *to, const char *words)
{
    const int other_block = x->variant->where == KCP_DEVICE &&
                            x->k->call.save != to->k->call.save;
    for (int r = 0; r < x->R; r++)
        for (int i = 0; i < x->rank[r].n; i++) {
            const struct rank_args *s = &to->rank[to->R == 1 ? 0 : r];
            const struct buffer *o = &x->rank[r].buffer[i], *p = NULL;
            for (int j = 0; j < s->n; j++)
                if (s->buffer[j].field == o->field) p = &s->buffer[j];
            if (!o->want || !p) continue;
            if (other_block && stage_of_field(x->stage, o->field) != x->stage) continue;
            const int64_t bytes = buffer_other_bytes(o, p, o->first - p->first);
            EXPECT(rep, !bytes, "%s, %s: rank %d of %d, form %s: %lld bytes of %s "
                   "differ from those of %s on %d ranks", x->variant->name, words, r,
                   x->R, kcp_form_names[x->rank[r].call.form], (long long)bytes,
                   o->field->name, to->variant->name, to->R);
        }
}

/* Runs trial x on case k with the inputs of trial `to`, and compares the outputs. */
static int run_like(struct kcp_report *rep, struct trial x, const struct trial *to,
                    const struct kcase *k, const char *words)
{
    char why[160] = "";
    const struct expected *e = to->expected;
    const int status = trial_with(&x, k, to->pass, &e->in, &e->want, why, sizeof why);
    if (!status) compare(rep, &x, to, words);
    EXPECT(rep, !status || status == KCP_NA || status == KCP_NO_MEMORY,
           "%s, R = %d: status %d %s", x.variant->name, k->call.R, status, why);
    trial_free(&x);
    return status;
}

/* Compares outputs on one rank with outputs on 2, 3, 4 and 8 ranks and on 7 ranks (one
 * of them empty), in each form that composes maps in token order. */
static int canonical_pass(struct kcp_report *rep, const struct kcp_variant *v,
                          const struct kcp_stage *s, const struct memory *mem,
                          struct kcase k, enum kcp_pass pass)
{
    static const int R[] = { 2, 3, 4, 8, 7 };
    enum { COUNTS = sizeof R / sizeof *R };
    struct trial one = { .stage = s, .variant = v, .mem = mem }, x = one;
    char why[160] = "";
    int status = trial_case(&one, &k, pass, v->storage, why, sizeof why);
    EXPECT(rep, !status || status == KCP_NA, "%s: status %d %s", v->name, status, why);
    for (int i = 0; i < COUNTS * KCP_FORMS && !status; i++) {
        struct kcase many = k;
        many.call.R = R[i % COUNTS];
        many.call.form = i / COUNTS;
        many.uneven = many.call.R == 7;
        if (!kcp_form_in_order(many.call.form)) continue;
        for (int r = 0; r <= many.call.R; r++)
            many.cuts[r] = (r - (many.uneven && r > 3)) * k.call.T /
                           (many.call.R - many.uneven);
        status = run_like(rep, x, &one, &many, "canonical segments");
    }
    trial_free(&one);
    return status == KCP_NO_MEMORY ? status : KCP_OK;
}

int canonical_reference(struct kcp_report *rep, const char *stage, const char *words)
{
    const struct kcp_stage *s = stage_find(stage);
    const struct kcp_variant ref = reference_of(s);
    struct kcase k;
    char why[160];
    int status = KCP_OK;
    if (case_parse(words, &k, why, sizeof why)) return KCP_BAD;
    for (int pass = 0; pass <= has_backward(s) && !status; pass++)
        status = canonical_pass(rep, &ref, s, &host_memory, k, (enum kcp_pass)pass);
    return status;
}

int bits_agree(struct kcp_report *rep, const struct kcp_variant *v, const char *words,
               const struct kcp_variant *other, const char *more)
{
    const struct kcp_stage *s = stage_find(v->stage);
    const struct memory *mem = v->where == KCP_DEVICE ? gpu_of_threads() : &host_memory;
    struct trial x = { .stage = s, .variant = other, .mem = mem };
    struct kcase k, changed;
    char why[160] = "", text[600];
    int status = KCP_OK;
    snprintf(text, sizeof text, "%s %s", words, more);
    if (case_parse(words, &k, why, sizeof why) ||
        case_parse(text, &changed, why, sizeof why)) return KCP_BAD;
    for (int pass = 0; pass <= has_backward(s) && !status; pass++) {
        struct trial one = { .stage = s, .variant = v, .mem = mem };
        status = trial_case(&one, &k, (enum kcp_pass)pass, v->storage, why,
                            sizeof why);
        EXPECT(rep, !status || status == KCP_NA, "%s, %s: status %d %s", v->name, words,
               status, why);
        if (!status) status = run_like(rep, x, &one, &changed, text);
        trial_free(&one);
    }
    return status == KCP_NO_MEMORY ? status : KCP_OK;
}

/* ---- a reference with many cuts */
int cuts_agree(struct kcp_report *rep, const char *stage, const char *words)
{
    static const char *const cuts[] = {
        "R=1", "R=2", "R=3", "R=4", "R=5", "R=12", "cuts=0,3,3,130,131,205,263,421",
        "cuts=0,0,0,64,400,421,421", "cuts=0,20,21,22,24,30,31,40,50,60,61,300,421" };
    const struct kcp_stage *s = stage_find(stage);
    const struct kcp_variant ref = reference_of(s);
    const int repeats = case_repeats;
    case_repeats = 0;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts * KCP_FORMS; i++) {
        struct kcase k;
        struct verdict t = { .outcome = SKIP };
        char text[600], why[160];
        snprintf(text, sizeof text, "%s %s %s", words, kcp_form_names[i % KCP_FORMS],
                 cuts[i / KCP_FORMS]);
        const int bad = case_parse(text, &k, why, sizeof why);
        if (!bad) judge_case(s, &ref, &k, KCP_F64, &t);
        EXPECT(rep, !bad && t.outcome == PASS && t.worst.err <= 1e-12,
               "%s %s: %s: %s %s, error %.2g > %.2g", stage, text,
               outcome_name[t.outcome], t.why, t.worst.field, t.worst.err,
               fmin(t.worst.tol, 1e-12));
    }
    case_repeats = repeats;
    return KCP_OK;
}

/* ---- cases of both checks, by stage */
#define LAYERS(stage) \
    { stage, 0, "kda live H=1 HV=2 K=64 V=64 C=64 lengths=150,33,0,300 R=2 l2norm " \
      "beta=sigmoid h0 dht gate=softplus" }, \
    { stage, 0, "gdn live H=1 HV=2 K=128 V=128 C=64 lengths=70,130 l2norm " \
      "beta=sigmoid h0 dht gate=softplus" }, \
    { stage, 0, "kda alternate H=1 HV=2 K=128 V=128 C=64 lengths=70,5,130 l2norm " \
      "beta=sigmoid h0 dht gate=bounded" }, \
    { stage, 0, "gdn live H=1 HV=2 K=128 V=128 C=64 lengths=70,5,130 l2norm " \
      "beta=sigmoid h0 dht gate=bounded" }, \
    { stage, 1, "kda live H=1 HV=2 K=64 V=64 lengths=150,0,300 L=64 l2norm " \
      "beta=sigmoid h0 dht" }, \
    { stage, 1, "gdn strong H=2 K=128 V=128 lengths=330 L=128 l2norm save=all h0 " \
      "dht" }, \
    { stage, 1, "kda live H=2 K=128 V=128 lengths=330 L=128 l2norm h0 " \
      "dht" }, \
    { stage, 1, "kda live H=1 K=64 V=64 lengths=200,0,130 L=64 l2norm h0 dht " \
      "blocks=3" }, \
    { stage, 1, "gdn live H=1 HV=2 K=64 V=48 lengths=330 L=64 l2norm h0 dht" }
static const struct { const char *stage; int is_canonical; const char *words; }
cases[] = {
    { "03", 0, "kda live H=1 HV=2 K=64 V=64 C=64 lengths=150,33,0,100 beta=sigmoid" },
    { "03", 0, "gdn live H=1 HV=2 K=128 V=128 C=64 lengths=70,130 beta=sigmoid" },
    LAYERS("08"), LAYERS("13"),
    { "14", 0, "live lengths=5,40,0,70,1 R=3 h0" },
    { "14", 0, "live lengths=5,40 D=6 Wc=2 shift" },
    { "14", 0, "live lengths=2,40,0,70,1 R=3 h0 x0 dxt" },
    { "15", 1, "kda live H=1 HV=2 K=64 V=64 C=16 lengths=150,0,200 L=48 h0 dht "
      "walk=blelloch masks=3" },
    { "15", 1, "kda strong H=2 K=64 V=64 C=64 lengths=300 L=64 h0 dht walk=sequential "
      "masks=2" },
    { "15", 1, "kda live H=1 HV=3 K=20 V=12 C=16 lengths=200 L=32 h0 dht masks=1" },
    { "16", 0, "dplr live H=1 HV=2 K=64 V=64 C=64 lengths=100,33,70 R=2 h0 dht" },
    { "16", 0, "gdn2 live H=1 HV=2 K=64 V=64 C=64 lengths=100,33,70 h0 dht" },
    { "16", 0, "gla live H=2 K=64 V=64 C=64 lengths=100,33,70 h0 dht" },
    { "16", 1, "dplr live H=2 K=64 V=64 lengths=150,0,200 L=64 h0 dht" },
    { "16", 1, "gdn2 strong H=1 HV=2 K=64 V=64 lengths=300 L=64 h0 dht" },
    { "16", 1, "gla live H=2 K=64 V=64 lengths=300 L=64 h0 dht" },
};

int bits_of_variant(struct kcp_report *rep, const struct kcp_variant *v,
                    int is_canonical)
{
    const struct kcp_stage *s = stage_find(v->stage);
    const struct memory *mem = v->where == KCP_DEVICE ? gpu_of_threads() : &host_memory;
    int status = KCP_NA;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && mem; i++) {
        struct kcase k;
        char why[160];
        if (stage_find(cases[i].stage) != s || cases[i].is_canonical != is_canonical)
            continue;
        if (case_parse(cases[i].words, &k, why, sizeof why)) return KCP_BAD;
        for (int pass = 0; pass <= has_backward(s); pass++) {
            status = (is_canonical ? canonical_pass : alone_pass)(rep, v, s, mem, k,
                                                                  (enum kcp_pass)pass);
            if (status && status != KCP_NA) return status;
        }
        status = KCP_OK;
    }
    return status;
}

/* If is_canonical is 1, runs the check `canonical` on the stage's kernels. Otherwise
 * runs the check `alone` on all variants of the stage except mutants. */
static int judge_stage(struct kcp_report *rep, const char *stage, int is_canonical)
{
    const struct kcp_variant *v[256];
    const int n = kcp_variants(stage_find(stage)->name, NULL, v, 256);
    if (is_canonical && !gpu_of_threads()) {
        printf("  (found no GPU that threads can share: not run)\n");
        return KCP_NA;
    }
    for (int i = 0; i < n; i++) {
        if (is_mutant(v[i]) || (is_canonical && v[i]->where != KCP_DEVICE)) continue;
        const int status = bits_of_variant(rep, v[i], is_canonical);
        if (status && status != KCP_NA) return status;
    }
    return KCP_OK;
}

static int alone_03(struct kcp_report *rep) { return judge_stage(rep, "03", 0); }
static int alone_08(struct kcp_report *rep) { return judge_stage(rep, "08", 0); }
static int alone_13(struct kcp_report *rep) { return judge_stage(rep, "13", 0); }
static int alone_14(struct kcp_report *rep) { return judge_stage(rep, "14", 0); }
static int alone_16(struct kcp_report *rep) { return judge_stage(rep, "16", 0); }
static int canonical_08(struct kcp_report *rep) { return judge_stage(rep, "08", 1); }
static int canonical_13(struct kcp_report *rep) { return judge_stage(rep, "13", 1); }
static int canonical_15(struct kcp_report *rep) { return judge_stage(rep, "15", 1); }
static int canonical_16(struct kcp_report *rep) { return judge_stage(rep, "16", 1); }

#define ALONE "NaN in a sequence changes no output bit of other sequences, and NaN " \
              "in an input reaches an output, in all variants except mutants"
#define CANONICAL "with canonical segments (cut at fixed tokens) a kernel gives " \
                  "equal bits on 1, 2, 3, 4, 7 and 8 ranks, in 3 forms"
KCP_CHECK(check_03_alone) = { "03_wy", "alone", ALONE, alone_03 };
KCP_CHECK(check_08_alone) = { "08_forward", "alone", ALONE, alone_08 };
KCP_CHECK(check_13_alone) = { "13_backward", "alone", ALONE, alone_13 };
KCP_CHECK(check_14_alone) = { "14_conv", "alone", ALONE, alone_14 };
KCP_CHECK(check_16_alone) = { "16_family", "alone", ALONE, alone_16 };
KCP_CHECK(gpu_08_canonical) = { "08_forward", "gpu_canonical", CANONICAL,
                                canonical_08 };
KCP_CHECK(gpu_13_canonical) = { "13_backward", "gpu_canonical", CANONICAL,
                                canonical_13 };
KCP_CHECK(gpu_15_canonical) = { "15_scan", "gpu_canonical", CANONICAL, canonical_15 };
KCP_CHECK(gpu_16_canonical) = { "16_family", "gpu_canonical", CANONICAL, canonical_16 };
