/* published.c -- mistakes of other projects that the projects' own tests accepted.
 * Book: chapter 20, "What a test of context parallelism must contain".
 * Each mutant imitates a mistake that has a number in public. The check judges every
 * mutant on two cases: one that must show the mistake, and one of the kind that the
 * project's tests had, in which the mutant must pass. Four of the mutants are in the
 * files of stages 08 and 13. The mutants here call the reference with wrong arguments
 * or change the reference's outputs. */
#include "tests/judge/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MUTANT(ident, stage, name, shapes, run, why)                                  \
    KCP_VARIANT(ident) = { stage, "mutant_" name, why, KCP_F64, KCP_HOST, shapes,     \
                           run, NULL }

/* The boundaries of a packed batch are multiples of R, rounded down. They are right if
 * all lengths are multiples of R, as in a batch of one sequence. */
static int truncated_cu(void *args)
{
    struct kcp_forward a = *(struct kcp_forward *)args;
    const struct kcp_plan *p = a.plan;
    struct kcp_plan *wrong = NULL;
    if (p->scattered || p->L || a.saved) return KCP_NA;
    int64_t *cu = malloc(sizeof *cu * ((size_t)p->N + 1));
    if (!cu) return KCP_NO_MEMORY;
    for (int n = 0; n <= p->N; n++)
        cu[n] = n < p->N ? p->cu_seqlens[n] / p->R * p->R : p->T;
    int status = kcp_plan_make(&wrong, p->N, cu, p->R, p->cuts, 0, p->C, a.Wc, NULL);
    free(cu);
    if (status) return status;
    const struct kcp_context *c = &wrong->ctx[a.r];
    a.plan = wrong;
    a.NS = c->NS; a.NC = c->NC; a.cu = c->cu; a.cn = c->cn; a.sc = c->sc;
    status = stage_find("08")->ref(&a);
    kcp_plan_free(wrong);
    return status;
}
MUTANT(m08_truncated_cu, "08_forward", "truncated_cu", "contiguous ranges, no block",
       truncated_cu, "ISEEKYAN/Megatron-LM #111: boundaries of a packed batch are "
       "cu_seqlens / R * R, so tokens move to the neighbouring sequence");

static int zeros(void *args)
{
    const struct kcp_forward *a = args;
    const int64_t row = (int64_t)a->HV * a->K * a->V;
    memset(a->o, 0, sizeof(double) * a->T * a->HV * a->V);
    for (int n = 0; n < a->plan->N && a->ht; n++)
        if (a->plan->ht_rank[n] == a->r)
            memset((double *)a->ht + n * row, 0, sizeof(double) * row);
    return KCP_OK;
}
MUTANT(m08_zeros, "08_forward", "zeros", "any", zeros,
       "TransformerEngine #3536: all outputs are 0, on every number of ranks");

/* Rounds o to float if the batch has several sequences, like a kernel whose algorithm
 * depends on the batch. */
static int by_batch(void *args)
{
    const struct kcp_forward *a = args;
    double *o = a->o;
    const int status = stage_find("08")->ref(args);
    for (int64_t e = 0; e < a->T * a->HV * a->V && a->plan->N > 1; e++)
        o[e] = (float)o[e];
    return status;
}
MUTANT(m08_by_batch, "08_forward", "by_batch", "double only", by_batch,
       "vLLM #49827: other sequences in the batch change the rounding of a sequence");

/* Adds 0 times exp2(-G) to a gradient. In fp32 the factor is inf if G < -128. */
static int overflow(void *args)
{
    const struct kcp_wy_backward *a = args;
    const double *G = a->G;
    double *dg = a->dg;
    const int status = stage_find("10")->ref(args);
    for (int64_t e = 0; e < a->T * a->HV * a->KG; e++)
        dg[e] += 0.0f * exp2f((float)-G[e]);
    return status;
}
MUTANT(m10_overflow, "10_wy_backward", "overflow", "any", overflow,
       "FLA #1007: a gradient is 0 times inf, i.e. NaN, if gates are saturated");

/* The gradient dv of a rank's last chunk is not written if other ranks' kernels run
 * concurrently, because two blocks took the same work from the queue. */
static int no_tail(void *args)
{
    const struct kcp_backward *a = args;
    const int64_t row = (int64_t)a->HV * a->V;
    const int64_t first = a->T > a->C ? (a->T - 1) / a->C * a->C : a->T;
    const size_t bytes = sizeof(double) * (size_t)((a->T - first) * row);
    double *tail = (double *)a->dv + first * row, *before = malloc(bytes + 1);
    if (!before) return KCP_NO_MEMORY;
    memcpy(before, tail, bytes);
    const int status = stage_find("13")->ref(args);
    if (a->plan->R > 1) memcpy(tail, before, bytes);
    free(before);
    return status;
}
MUTANT(m13_no_tail, "13_backward", "no_tail", "any", no_tail,
       "cuDNN-FE #1032: with concurrent kernels, the last chunk's gradient is not "
       "written");

/* ---- each mutant fails in the case `shows` and passes in the case `usual` */
#define ONE_LENGTH "H=1 HV=2 K=16 V=12 C=16 l2norm beta=sigmoid "
#define PACKED "lengths=37,5,70,21 R=3 chain"
extern const struct kcp_variant m08_no_cu, m08_dropped, m13_head_0, m13_no_exchange;
static const struct {
    const struct kcp_variant *mutant;
    const char *shows, *usual;
} table[] = {
    { &m13_head_0,                                    /* FLA #1115 */
      "live kda H=2 K=16 V=12 C=16 lengths=100 R=2 chain gate=softplus",
      "live kda H=1 K=16 V=12 C=16 lengths=100 R=2 chain gate=softplus" },
    { &m08_truncated_cu, "live gdn " ONE_LENGTH PACKED,
      "live gdn " ONE_LENGTH "lengths=132 R=3 chain" },
    { &m08_no_cu,                                     /* LlamaFactory #10787 */
      "live gdn " ONE_LENGTH PACKED, "live gdn " ONE_LENGTH "lengths=132 R=3 chain" },
    { &m08_dropped,                                   /* FLA #1004 */
      "live gdn " ONE_LENGTH "lengths=132 R=3 chain",
      "live gdn " ONE_LENGTH "lengths=132 R=1 chain" },
    { &m13_no_exchange,                               /* FLA #1004 */
      "live gdn " ONE_LENGTH "lengths=132 R=3 chain",
      "live gdn " ONE_LENGTH "lengths=132 R=1 chain" },
    { &m10_overflow, "saturated kda H=1 K=16 V=12 C=64 lengths=100",
      "live kda H=1 K=16 V=12 C=64 lengths=100" },
    { &m13_no_tail, "live kda " ONE_LENGTH "lengths=132 R=3 chain",
      "live kda " ONE_LENGTH "lengths=132 R=1 chain" },
    { &m08_by_batch, "live gdn " ONE_LENGTH PACKED,
      "live gdn " ONE_LENGTH "lengths=132 R=3 chain" },
    { &m08_zeros, "live gdn " ONE_LENGTH PACKED, NULL },
};

static void judged(struct kcp_report *rep, int i, const char *words, int must_fail)
{
    const struct kcp_variant *v = table[i].mutant;
    const struct kcp_stage *s = stage_find(v->stage);
    struct verdict t = { .outcome = SKIP };
    struct kcase k;
    char why[160] = "";
    const int bad = case_parse(words, &k, why, sizeof why);
    if (!bad) judge_case(s, v, &k, KCP_F64, &t);
    EXPECT(rep, !bad && (must_fail ? t.outcome == FAIL && is_wrong(&t.worst)
                                   : t.outcome == PASS),
           "%s %s, %s: %s %s, expected %s", s->name, v->name, words,
           outcome_name[t.outcome], bad ? why : t.why,
           must_fail ? "FAIL by values" : "PASS");
}

/* Counts the numbers of o that are not 0, for the mutant of #3536 on R ranks. */
static int64_t not_zero(struct kcp_report *rep, const char *words)
{
    struct trial t = { .stage = stage_find("08"), .mem = &host_memory,
                       .variant = &m08_zeros };
    struct kcase k;
    char why[160] = "";
    int64_t n = 0;
    int status = case_parse(words, &k, why, sizeof why);
    if (!status) status = trial_case(&t, &k, KCP_FORWARD, KCP_F64, why, sizeof why);
    EXPECT(rep, !status, "%s: status %d, %s", words, status, why);
    for (int r = 0; r < t.R && !status; r++)
        for (int b = 0; b < t.rank[r].n; b++) {
            const struct buffer *o = &t.rank[r].buffer[b];
            if (strcmp(o->field->name, "o")) continue;
            double *got = numbers_of(o, o->image);
            for (int64_t e = 0; e < o->n && got; e++) n += got[e] != 0;
            free(got);
        }
    trial_free(&t);
    return n;
}

static int published(struct kcp_report *rep)
{
    const int repeats = case_repeats;
    case_repeats = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        judged(rep, (int)i, table[i].shows, 1);
        if (table[i].usual) judged(rep, (int)i, table[i].usual, 0);
    }
    /* #3536 compared a run on several ranks with a run of the same code on one rank. */
    EXPECT(rep, not_zero(rep, "live gdn " ONE_LENGTH "lengths=132 R=1 chain") ==
                not_zero(rep, "live gdn " ONE_LENGTH "lengths=132 R=3 chain"),
           "mutant_zeros differs between 1 and 3 ranks");
    case_repeats = repeats;
    return KCP_OK;
}
KCP_CHECK(check_20_published) = { "20_clusters", "published",
    "each published mistake fails in one case and passes in a case of the kind that "
    "its project tested", published };
