/* self_lists.c -- tests that the judge's cases reject mistakes that once passed.
 *
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * Each mistake was once in a kernel that passed the judge. A plant, a variant with one
 * mistake, is rejected like a mutant: by a value whose error exceeds the limit. Two
 * plants return an error, and are rejected by this status. */
#include "checked.h"
#include "paths.h"
#include "trial.h"

#include <stdlib.h>
#include <string.h>

/* ---- copies of arguments, and access to a pointer by its field's name */
static const struct kcp_stage *stage;          /* stage of the current plant */

static char *copy_of(const void *args)
{
    char *copy = alloc_or_exit(stage->args);
    memcpy(copy, args, stage->args);
    return copy;
}

static void **pointer(char *args, const char *name)
{
    for (int i = 0; i < stage->nfields; i++)
        if (!strcmp(stage->fields[i].name, name))
            return (void **)(void *)(args + stage->fields[i].at);
    return NULL;
}

static int run_copy(char *copy)
{
    const int status = stage->ref(copy);
    free(copy);
    return status;
}

/* ---- maps that are composed wrongly; and wrong M in the maps that forward saves */
static int compose_wrong(int HV, int K, int V, const void *b, const void *a,
                         int backward, int a_first, void *out,
                         struct CUstream_st *stream)
{
    double *x = out;
    const int status = ref_mapops.compose(HV, K, V, b, a, backward, a_first, out,
                                          stream);
    for (int64_t i = 0; i < (int64_t)HV * K * (V + K); i++)
        if (i % (V + K) < V) x[i] = ((const double *)b)[i];     /* without M_b h_a */
    return status;
}

static int composed(void *args)
{
    char *copy = copy_of(args);
    struct kcp_mapops ops = ref_mapops;
    ops.compose = compose_wrong;
    ((struct kcp_call *)(void *)copy)->ops = &ops;
    return run_copy(copy);
}

static int kept_halved(void *args)
{
    struct kcp_backward *a = args;
    const struct kcp_saved *s = a->saved;
    double *kept = a->reuse_M ? kcp_saved_at(a->saved, "kept") : NULL;
    for (uint32_t i = 0; kept && i < s->items; i++)
        if (!strcmp(s->item[i].name, "kept"))
            for (uint64_t j = 0; j < s->item[i].bytes / 8; j++) kept[j] *= .5;
    return ref_backward(a);
}

/* ---- options */
static int both_parts(void *args)
{
    char *copy = copy_of(args);
    ((struct kcp_call *)(void *)copy)->part = KCP_LOCAL | KCP_REVERSE;
    return run_copy(copy);
}

static int needs_h_in(void *args)
{
    return ((struct kcp_chunk *)args)->h_in ? ref_chunk(args) : KCP_BAD;
}

static int needs_ops(void *args)
{
    return ((struct kcp_forward *)args)->ops ? ref_forward(args) : KCP_BAD;
}

/* Acts as if exchange form `pipeline` sent only `blocks` blocks of floor(V / blocks)
 * columns: the remaining columns are 0 on all ranks except the first. */
static int even_blocks(void *args)
{
    struct kcp_forward *a = args;
    const int status = ref_forward(a);
    const int over = a->form == KCP_PIPELINE && a->blocks > 0 ? a->V % a->blocks : 0;
    double *o = a->o;
    for (int64_t row = 0; row < a->T * a->HV && a->r > 0; row++)
        for (int v = a->V - over; v < a->V; v++) o[row * a->V + v] = 0;
    return status;
}

/* ---- mistakes that use inputs of an earlier call of the same sizes */
static int kept_grid(void *args)
{
    static const char *const name[] = { "cu", "cn", "sc" };
    static struct { int64_t T; int NS, NC, array[3][64]; } grid[CASE_RANKS], *g;
    const struct kcp_call *c = args;
    const int n[] = { c->NS + 1, c->NS + 1, c->NC };
    if (c->NS >= 64 || c->NC > 64) return stage->ref(args);
    char *copy = copy_of(args);
    g = &grid[stage->ranks ? c->r : 0];
    const int is_new = g->T != c->T || g->NS != c->NS || g->NC != c->NC;
    g->T = c->T;
    g->NS = c->NS;
    g->NC = c->NC;
    for (int i = 0; i < 3; i++) {
        void **p = pointer(copy, name[i]);
        if (is_new) memcpy(g->array[i], *p, sizeof(int) * (size_t)n[i]);
        *p = g->array[i];
    }
    kcp_checked_enter();                /* disables the check of the grid */
    const int status = run_copy(copy);
    kcp_checked_leave();
    return status;
}

/* If h_in is NULL, uses an earlier call's h_in. */
static int last_h_in(void *args)
{
    static double *h;
    static size_t n;
    const struct kcp_call *c = args;
    char *copy = copy_of(args);
    void **p = pointer(copy, "h_in");
    const size_t numbers = (size_t)c->NS * c->HV * c->K * c->V;
    if (*p) {
        free(h);
        n = numbers;
        h = alloc_or_exit(n * sizeof *h);
        memcpy(h, *p, n * sizeof *h);
    } else if (h && n >= numbers) *p = h;
    return run_copy(copy);
}

/* ---- code for at most two key heads, three value heads per key head, and six
 * sequences: further heads and sequences get copies of the results of the first ones */
enum { FEW_HEADS = 2, FEW_IN_GROUP = 3, FEW_SEQUENCES = 6 };

static void repeat_heads(const struct kcp_call *c, double *rows, int by_group)
{
    const int group = c->HV / c->H, W = c->V;
    for (int64_t i = 0; i < c->T * c->HV && rows; i++) {
        const int n = (int)(i % c->HV), m = n / group, j = n % group;
        const int few = by_group ? m * group + j % FEW_IN_GROUP
                                 : m % FEW_HEADS * group + j;
        memcpy(rows + i * W, rows + (i - n + few) * W, sizeof *rows * (size_t)W);
    }
}

static int few_heads(void *args)
{
    const int status = stage->ref(args);
    if (!status) repeat_heads(args, *pointer(args, "o"), 0);
    return status;
}

static int few_in_group(void *args)
{
    const int status = stage->ref(args);
    if (!status) repeat_heads(args, *pointer(args, "o"), 1);
    return status;
}

/* Gives sequence i the state of sequence i mod 6. */
static int few_sequences(void *args)
{
    const struct kcp_call *c = args;
    const size_t state = (size_t)c->HV * (size_t)c->K * (size_t)c->V;
    const int n = stage->ranks ? c->N : c->NS;
    char *copy = copy_of(args);
    void **p = pointer(copy, "dht");
    if (!p) p = pointer(copy, stage->ranks ? "h0" : "h_in");
    double *few = alloc_or_exit(sizeof *few * state * (size_t)n);
    for (int i = 0; i < n; i++)
        memcpy(few + state * (size_t)i, (double *)*p
               + state * (size_t)(i % FEW_SEQUENCES), sizeof *few * state);
    *p = few;
    const int status = run_copy(copy);
    free(few);
    return status;
}

/* ---- stage 03 with errors of 15 % in output A or u */
static int off_by_15_percent(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] *= i % 2 ? 1.15 : .85;
    return KCP_OK;
}
static int A_off(void *args)
{
    struct kcp_wy *a = args;
    const int status = ref_wy(a);
    return status ? status : off_by_15_percent(a->A, a->T * a->HV * a->C);
}
static int u_off(void *args)
{
    struct kcp_wy *a = args;
    const int status = ref_wy(a);
    return status ? status : off_by_15_percent(a->u, a->T * a->HV * a->V);
}

/* ---- cases that a plant supports */
static int is_small(const struct kcase *k) { return k->call.K % 64 || k->call.V % 64; }
static int is_wide(const struct kcase *k) { return !is_small(k); }
static int is_wide_and_short(const struct kcase *k)
{
    return is_wide(k) && k->call.T <= 240;
}
static int is_alike(const struct kcase *k)
{
    return k->alike > .89 && k->alike < .995;
}
static int on_small_ranks(const struct kcase *k)
{
    return is_small(k) && k->call.R > 2;
}
static int on_wide_ranks(const struct kcase *k) { return is_wide(k) && k->call.R > 2; }
static int has_many(const struct kcase *k)
{
    return is_wide(k) && k->call.H > FEW_HEADS && k->with_h0 && k->with_dht;
}

/* How the cases must reject the plant: one case by a value, one case of each model and
 * size by a value, or one case by the returned status. */
enum demand { BY_VALUE, EACH_SIZE, BY_STATUS };
struct row {
    const char *name, *stage;
    int (*run)(void *);            /* NULL: use the stage's mutant `name` */
    int (*takes)(const struct kcase *);
    enum demand demand;
    enum kcp_storage judged;
};
static const struct row rows[] = {
    { "composed_08", "08", composed, on_small_ranks, EACH_SIZE, KCP_BF16 },
    { "composed_08", "08", composed, on_wide_ranks, EACH_SIZE, KCP_BF16 },
    { "composed_13", "13", composed, on_small_ranks, EACH_SIZE, KCP_BF16 },
    { "composed_13", "13", composed, on_wide_ranks, EACH_SIZE, KCP_BF16 },
    { "kept_halved", "13", kept_halved, on_small_ranks, EACH_SIZE, KCP_BF16 },
    { "kept_halved", "13", kept_halved, on_wide_ranks, EACH_SIZE, KCP_BF16 },
    { "both_parts", "09", both_parts, is_small, BY_VALUE, KCP_F64 },
    { "both_parts", "09", both_parts, is_wide_and_short, BY_VALUE, KCP_F64 },
    { "needs_h_in", "04", needs_h_in, is_small, BY_STATUS, KCP_F64 },
    { "needs_ops", "08", needs_ops, is_small, BY_STATUS, KCP_F64 },
    { "remembers", "04", kept_grid, is_small, BY_VALUE, KCP_F64 },
    { "kept_grid_04", "04", kept_grid, is_wide_and_short, BY_VALUE, KCP_F64 },
    { "kept_grid_08", "08", kept_grid, is_wide_and_short, BY_VALUE, KCP_F64 },
    { "last_h_in", "04", last_h_in, is_wide_and_short, BY_VALUE, KCP_F64 },
    { "even_blocks", "08", even_blocks, is_wide_and_short, BY_VALUE, KCP_F64 },
    { "mutant_uncarried", "04", NULL, is_wide, EACH_SIZE, KCP_BF16 },
    { "mutant_last_chunk", "05", NULL, is_wide, EACH_SIZE, KCP_BF16 },
    { "mutant_uncarried", "09", NULL, is_wide, EACH_SIZE, KCP_BF16 },
    { "mutant_last_chunk", "11", NULL, is_wide, EACH_SIZE, KCP_BF16 },
    { "mutant_uncarried", "08", NULL, on_wide_ranks, EACH_SIZE, KCP_BF16 },
    { "mutant_last_chunk", "08", NULL, on_wide_ranks, EACH_SIZE, KCP_BF16 },
    { "mutant_uncarried", "13", NULL, on_wide_ranks, EACH_SIZE, KCP_BF16 },
    { "mutant_last_chunk", "13", NULL, on_wide_ranks, EACH_SIZE, KCP_BF16 },
    { "A_off", "03", A_off, is_alike, BY_VALUE, KCP_BF16 },
    { "u_off", "03", u_off, is_alike, BY_VALUE, KCP_BF16 },
    { "few_heads_04", "04", few_heads, has_many, BY_VALUE, KCP_F64 },
    { "few_in_group_04", "04", few_in_group, has_many, BY_VALUE, KCP_F64 },
    { "few_sequences_04", "04", few_sequences, has_many, BY_VALUE, KCP_F64 },
    { "few_heads_08", "08", few_heads, has_many, BY_VALUE, KCP_F64 },
    { "few_sequences_08", "08", few_sequences, has_many, BY_VALUE, KCP_F64 },
    { "few_sequences_13", "13", few_sequences, has_many, BY_VALUE, KCP_F64 },
};

static double cost(const struct kcase *k)
{
    return (double)k->call.T * k->call.HV * k->call.K * (k->call.V + k->call.K);
}

static int by_cost(const void *a, const void *b)
{
    const double x = cost(a), y = cost(b);
    return (x > y) - (x < y);
}

/* Returns the cases of a kernel's list that the plant supports. Cases for EACH_SIZE are
 * sorted by cost. Cases for other demands keep their order, because some plants reuse
 * inputs of earlier cases. */
static struct kcase *list_of(const struct row *x, int *n)
{
    const struct options o = { .seed = 1 };
    const struct kcp_variant v = { x->stage, "", "", KCP_F64, KCP_DEVICE, "", NULL,
                                   NULL };
    int all, kept = 0;
    struct kcase *list = cases_of(stage, &v, &o, NULL, &all);
    for (int i = 0; i < all; i++)
        if (x->takes(&list[i])) list[kept++] = list[i];
    if (x->demand == EACH_SIZE) qsort(list, (size_t)kept, sizeof *list, by_cost);
    *n = kept;
    return list;
}

/* Sizes and model of the cases that must reject a plant; NULL means any case. */
struct sizes { int K, V, model; };

static int is_rejected(const struct row *x, const struct kcase *list, int n,
                       const struct sizes *of)
{
    const struct kcp_variant own = { x->stage, x->name, "", KCP_F64, KCP_HOST, "any",
                                     x->run, NULL }, *v = &own;
    if (!x->run && kcp_variants(stage->name, x->name, &v, 1) != 1) return 0;
    for (int i = 0; i < n; i++) {
        const struct kcp_call *c = &list[i].call;
        struct verdict t = { .outcome = SKIP };
        if (of && (c->K != of->K || c->V != of->V || (int)c->model != of->model))
            continue;
        judge_case(stage, v, &list[i], x->judged, &t);
        if (t.outcome == FAIL && is_wrong(&t.worst) == (x->demand != BY_STATUS))
            return 1;
    }
    return 0;
}

static int lists(struct kcp_report *rep)
{
    static const struct sizes sizes[] = {
        { 64, 64, KCP_KDA },  { 128, 128, KCP_KDA }, { 64, 128, KCP_KDA },
        { 128, 64, KCP_KDA }, { 64, 64, KCP_GDN },   { 128, 128, KCP_GDN },
        { 64, 128, KCP_GDN }, { 128, 64, KCP_GDN },  { 8, 6, KCP_KDA },
        { 8, 6, KCP_GDN } };
    const int repeats = case_repeats;
    case_repeats = 0;                           /* lists must reject without repeats */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *x = &rows[i];
        const int each = x->demand == EACH_SIZE;
        int n;
        stage = stage_find(x->stage);
        struct kcase *list = list_of(x, &n);
        for (int j = 0; j < (each ? 10 : 1); j++) {
            if (each && (x->takes == on_small_ranks) != (sizes[j].K == 8)) continue;
            char of[60] = "";
            if (each) snprintf(of, sizeof of, ", %s K=%d V=%d",
                               model_name[sizes[j].model], sizes[j].K, sizes[j].V);
            EXPECT(rep, is_rejected(x, list, n, each ? &sizes[j] : NULL),
                   "%s %s%s: no case rejects it", x->stage, x->name, of);
        }
        free(list);
    }
    case_repeats = repeats;
    return KCP_OK;
}
KCP_CHECK(check_00_lists) = { "00_judge", "lists",
    "each planted mistake is rejected by a case of the judge's lists", lists };
