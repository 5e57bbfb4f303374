/* alone.c -- one sequence is all NaN: no bit of the others changes.
 *
 * Book: chapters 08, 13, 16.  Checked by: itself: a twin that spills must be seen.
 * Next: ../08_forward/graph.c.
 *
 * Rows after the end of a chunk belong to the next sequence. A kernel that multiplies
 * them by 0 is right for all finite numbers; 0 times NaN is NaN.
 */
#include "trial.h"

#include <math.h>
#include <string.h>

/* The inputs with all rows of sequence `bad` NaN. */
static void fill_nan(struct tensor_set *to, const struct tensor_set *from,
                  const struct kcp_stage *s,
                  const struct kcase *k, int bad)
{
    tensor_set_copy(to, from);
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        const struct tensor *t = field_in(f) ? tensor_find(to, f->name) : NULL;
        if (!t || !t->n || f->store == KCP_I32 || f->store == KCP_I64) continue;
        const int64_t row = t->n / t->dim[0], first = row_a(f, "T") ? k->cu[bad] : bad;
        const int64_t end = row_a(f, "T") ? k->cu[bad + 1] : bad + 1;
        if (!row_a(f, "T") && !row_a(f, "N")) continue;
        for (int64_t e = first * row; e < end * row; e++) ((double *)t->p)[e] = NAN;
    }
}

static int sequence_of(const struct kcase *k, int64_t token)
{
    int s = 0;
    while (token >= k->cu[s + 1]) s++;
    return s;
}

/* Bytes of an output that differ: [0] of the other sequences, [1] of the bad one. Rows
 * of states that the rank does not own are not compared. */
static void count_bytes(const struct buffer *now, const struct buffer *then,
                        const struct kcase *k, int bad, int64_t bytes[2])
{
    const int64_t rows = now->dim[0];
    const size_t row = rows ? now->bytes / (size_t)rows : 0;
    const int tokens = row_a(now->field, "T");
    if (!now->want || (!tokens && !row_a(now->field, "N"))) return;
    for (int64_t i = 0; i < rows; i++) {
        if (isnan(now->want[i * (now->n / rows)])) continue;
        const char *a = now->image + FENCE + i * row;
        const char *b = then->image + FENCE + i * row;
        const int s = tokens ? sequence_of(k, now->first + i) : (int)i;
        for (size_t j = 0; j < row; j++) bytes[s == bad] += a[j] != b[j];
    }
}

/* Each sequence in turn is NaN; bytes as in count_bytes. */
static int run_each(const struct kcp_variant *v, const struct kcp_stage *s,
                      const struct memory *mem, const struct kcase *k,
                      enum kcp_pass pass, int64_t bytes[2], char *why, size_t n)
{
    struct trial clean = { .stage = s, .variant = v, .mem = mem }, x = clean;
    struct kcp_plan *p = case_plan(k, k->call.R);
    const struct expected *e = p ? expected_of(s, k, pass, v->storage, p) : NULL;
    struct tensor_set in = { 0 };
    int status = e ? trial_fill(&clean, k, p, pass, &e->in, &e->want) : KCP_BAD;
    if (!status) status = trial_run(&clean, why, n);
    for (int bad = 0; bad < k->call.N && !status; bad++) {
        if (k->cu[bad] == k->cu[bad + 1]) continue;
        fill_nan(&in, &e->in, s, k, bad);
        status = trial_fill(&x, k, p, pass, &in, &e->want);
        if (!status) status = trial_run(&x, why, n);
        for (int r = 0; r < x.R && !status; r++)
            for (int i = 0; i < x.rank[r].n; i++)
                count_bytes(&x.rank[r].buffer[i], &clean.rank[r].buffer[i], k, bad,
                            bytes);
        trial_free(&x);
    }
    tensor_set_free(&in);
    trial_free(&clean);
    kcp_plan_free(p);
    return status;
}

/* In both passes the bytes of the bad sequence change, and no others. */
static int judge_words(struct kcp_report *rep, const struct kcp_variant *v,
                const struct kcp_stage *s, const struct memory *mem, const char *words)
{
    struct kcase k;
    char why[160] = "";
    if (case_parse(words, &k, why, sizeof why)) return KCP_BAD;
    for (int pass = 0; pass <= has_backward(s); pass++) {
        int64_t bytes[2] = { 0 };
        const int status = run_each(v, s, mem, &k, (enum kcp_pass)pass, bytes, why,
                                      sizeof why);
        if (status == KCP_NO_MEMORY) return status;
        if (status == KCP_NA) continue;
        EXPECT(rep, !status, "%s: status %d %s", v->name, status, why);
        EXPECT(rep, !bytes[0], "%s, %s: a sequence of NaN changes %lld bytes of the "
               "others", v->name, words, (long long)bytes[0]);
        EXPECT(rep, bytes[1] > 0, "%s: it does not change its own", v->name);
    }
    return KCP_OK;
}

static const char *const layers[] = {
    "kda live H=1 HV=2 K=64 V=64 C=64 lengths=150,33,0,300 R=2 l2norm beta=sigmoid h0 "
    "dht gate=softplus",
    "gdn live H=1 HV=2 K=128 V=128 C=64 lengths=70,130 l2norm beta=sigmoid h0 dht "
    "gate=softplus", NULL };
static const char *const chunks[] = {
    "kda live H=1 HV=2 K=64 V=64 C=64 lengths=150,33,0,100 beta=sigmoid",
    "gdn live H=1 HV=2 K=128 V=128 C=64 lengths=70,130 beta=sigmoid", NULL };
static const char *const convolutions[] = {
    "live lengths=5,40,0,70,1 R=3 h0", "live lengths=5,40 D=6 Wc=2 shift",
    "live lengths=2,40,0,70,1 R=3 h0 x0 dxt", NULL };
static const char *const families[] = {
    "dplr live H=1 HV=2 K=64 V=64 C=64 lengths=100,33,70 R=2 h0 dht",
    "gdn2 live H=1 HV=2 K=64 V=64 C=64 lengths=100,33,70 h0 dht",
    "gla live H=2 K=64 V=64 C=64 lengths=100,33,70 h0 dht", NULL };
static const struct { const char *stage, *const *words; } table[] = {
    { "03", chunks },
    { "08", layers },
    { "13", layers },
    { "14", convolutions },
    { "16", families },
};

int alone_variant(struct kcp_report *rep, const struct kcp_variant *v)
{
    const struct kcp_stage *s = stage_find(v->stage);
    const struct memory *mem = v->where == KCP_DEVICE ? gpu_of_threads() : &host_memory;
    const char *const *words = NULL;
    int err = KCP_OK;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (stage_find(table[i].stage) == s) words = table[i].words;
    if (!words || !mem) return KCP_NA;
    for (; *words && !err; words++) err = judge_words(rep, v, s, mem, *words);
    return err;
}

/* All variants but mutants, on the host and on a GPU that threads share. */
static int judge_stage(struct kcp_report *rep, const char *stage)
{
    const struct kcp_variant *v[256];
    const int n = kcp_variants(stage_find(stage)->name, NULL, v, 256);
    int err = KCP_OK;
    for (int i = 0; i < n; i++) {
        if (!is_mutant(v[i])) err = alone_variant(rep, v[i]);
        if (err && err != KCP_NA) return err;
    }
    return KCP_OK;
}

/* The twin, but 0 times the row after a stretch is added to its last token. */
static int (*twin_run)(void *);
static int spills(void *args)
{
    struct kcp_forward *f = args;
    const int status = twin_run(args), *cu = f->cu, row = f->HV * f->V;
    for (int s = 0; s < f->NS && !status; s++)
        for (int e = 0; e < row && cu[s + 1] > cu[s] && cu[s + 1] < f->T; e++)
            ((double *)f->o)[(cu[s + 1] - 1) * row + e] +=
                0 * ((const double *)f->v)[cu[s + 1] * row + e];
    return status;
}

static int of_08(struct kcp_report *rep)
{
    const struct kcp_stage *s = stage_find("08");
    const struct kcp_variant *twin;
    struct kcase k;
    char why[160] = "";
    int64_t bytes[2] = { 0 };
    if (!kcp_variants("08", "twin", &twin, 1) ||
        case_parse(layers[0], &k, why, sizeof why))
        return KCP_BAD;
    struct kcp_variant wrong = *twin;
    twin_run = twin->run;
    wrong.run = spills;
    const int status = run_each(&wrong, s, &host_memory, &k, KCP_FORWARD, bytes, why,
                                  sizeof why);
    EXPECT(rep, !status && bytes[0], "status %d %s: a forward that reads the next "
           "sequence passes", status, why);
    return judge_stage(rep, "08");
}

static int of_03(struct kcp_report *rep) { return judge_stage(rep, "03"); }
static int of_13(struct kcp_report *rep) { return judge_stage(rep, "13"); }
static int of_14(struct kcp_report *rep) { return judge_stage(rep, "14"); }
static int of_16(struct kcp_report *rep) { return judge_stage(rep, "16"); }

#define WHAT "one sequence is NaN: not a bit of the others changes, on the host and " \
             "by every kernel"
KCP_CHECK(check_03_alone) = { "03_wy", "alone", WHAT, of_03 };
KCP_CHECK(check_08_alone) = { "08_forward", "alone", WHAT, of_08 };
KCP_CHECK(check_13_alone) = { "13_backward", "alone", WHAT, of_13 };
KCP_CHECK(check_14_alone) = { "14_conv", "alone", WHAT, of_14 };
KCP_CHECK(check_16_alone) = { "16_family", "alone", WHAT, of_16 };
