/* self_lists.c -- tests that the judge's lists reject mistakes that once passed.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself: some plants
 * must be right on cases where their mistake has no effect.  Next: self_cases.c.
 *
 * Each mistake was once in a kernel that passed the judge. A plant, a variant with one
 * mistake, is rejected like a mutant: by a value whose error exceeds the limit. Two
 * plants refuse the call, and are rejected by their status. */
#include "checked.h"
#include "paths.h"
#include "plants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct planted_at planted_at;
int planted_chapter;

int planted_here(const struct kcp_call *c)
{
    return !planted_at.K || (c->K == planted_at.K && c->V == planted_at.V &&
                             (int)c->model == planted_at.model);
}

/* ---- copies of arguments, and access to a pointer by its field's name */
static const struct kcp_stage *stage;          /* of the plant that runs */

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
        if (i % (V + K) < V) x[i] = ((const double *)b)[i];     /* no M_b h_a */
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

static int kept_times(struct kcp_backward *a, double factor)
{
    const struct kcp_saved *s = a->saved;
    double *kept = a->reuse_M ? kcp_saved_at(a->saved, "kept") : NULL;
    for (uint32_t i = 0; kept && i < s->items; i++)
        if (!strcmp(s->item[i].name, "kept"))
            for (uint64_t j = 0; j < s->item[i].bytes / 8; j++) kept[j] *= factor;
    return ref_backward(a);
}
static int kept_halved(void *args) { return kept_times(args, .5); }
static int kept_zeroed(void *args) { return kept_times(args, 0); }

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

/* Makes each block of a pipeline floor(V / blocks) columns wide, so that the leftover
 * columns are wrong on all ranks except the first. */
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

/* If h_in is NULL, uses the h_in of an earlier call. */
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

/* Takes only tensor-core sizes; o is wrong in the 50th consecutive call of one size. */
static int once_in_fifty(void *args)
{
    static int64_t T;
    static int calls;
    struct kcp_chunk *a = args;
    if (a->K % 64 || a->V % 64) return KCP_NA;
    const int status = ref_chunk(a);
    calls = T == a->T ? calls + 1 : 1;
    T = a->T;
    if (calls == 50) *(double *)a->o += 1;
    return status;
}

/* ---- right for at most two key heads, three heads per group and six sequences;
 * further heads and sequences get copies of the first ones */
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

/* ---- stage 03 with a known mistake of other implementations: the inverse is computed
 * by a Neumann series in half precision, (I - L)(I + L^2)(I + L^4)...; and stage 03
 * with errors of 15 % in A or u */
static double half(double x)
{
    int e;
    frexp(x, &e);
    const double step = ldexp(1, e - 11 > -24 ? e - 11 : -24);
    const double y = rint(x / step) * step;
    return fabs(y) > 65504 ? copysign(INFINITY, y) : y;
}

enum { C = 64 };
static void multiply(double (*a)[C], double (*b)[C], double (*out)[C])
{
    for (int i = 0; i < C; i++)
        for (int j = 0; j < C; j++) {
            double x = 0;
            for (int k = 0; k < C; k++) x += a[i][k] * b[k][j];
            out[i][j] = half(x);
        }
}

/* Replaces A, the inverse of I + L of n tokens, by the result of the series. */
static void series(double (*A)[C], int n)
{
    static double L[C][C], P[C][C], X[C][C], Y[C][C];
    memset(P, 0, sizeof P);
    memset(X, 0, sizeof X);
    for (int i = 0; i < n; i++)                       /* I + L by substitution */
        for (int j = 0; j < n; j++) {
            double x = i == j;
            for (int k = j; k < i; k++) x -= A[i][k] * L[k][j];
            L[i][j] = i >= j ? x : 0;
            P[i][j] = half(-(L[i][j] - (i == j)));
            X[i][j] = P[i][j] + (i == j);
        }
    for (int power = 2; power < n; power *= 2) {
        multiply(P, P, Y);
        memcpy(P, Y, sizeof P);
        for (int i = 0; i < n; i++) Y[i][i] += 1;
        multiply(X, Y, L);
        memcpy(X, L, sizeof X);
    }
    memcpy(A, X, sizeof X);
}

static int inverse_by_series(void *args)
{
    struct kcp_wy *a = args;
    const int *cu = a->cu, status = ref_wy(a);
    if (a->C != C || status) return status ? status : KCP_NA;
    double (*A)[a->HV][C] = a->A, (*u)[a->HV][a->V] = a->u, one[C][C];
    const double (*v)[a->HV][a->V] = a->v, (*beta)[a->HV] = a->beta;
    for (int s = 0; s < a->NS; s++)
        for (int t0 = cu[s]; t0 < cu[s + 1]; t0 += C)
            for (int h = 0; h < a->HV; h++) {
                const int n = t0 + C < cu[s + 1] ? C : cu[s + 1] - t0;
                for (int i = 0; i < n; i++) memcpy(one[i], A[t0 + i][h], sizeof one[i]);
                series(one, n);
                for (int i = 0; i < n; i++) {
                    memcpy(A[t0 + i][h], one[i], sizeof one[i]);
                    for (int d = 0; d < a->V; d++) {
                        double x = 0;
                        for (int j = 0; j <= i; j++)
                            x += one[i][j] * beta[t0 + j][h] * v[t0 + j][h][d];
                        u[t0 + i][h][d] = x;
                    }
                }
            }
    return status;
}

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

/* ---- cases of a list that a plant runs on */
static int is_wide(const struct kcp_call *c) { return !(c->K % 64 || c->V % 64); }
static int over_three(const struct kcase *k) { return k->call.R > 2; }
static int any_case(const struct kcase *k) { (void)k; return 1; }
static int is_alike(const struct kcase *k) { return k->alike > 1e-3; }
static int is_alike_below_1(const struct kcase *k)
{
    return k->alike > .89 && k->alike < .995;
}
static int is_independent(const struct kcase *k)
{
    return k->alike <= 0 && k->call.C == C && k->call.T < 400 && !k->exact_beta &&
           !k->null_rows && k->regime != TURNS;
}
/* Returns 1 if the case has few tokens and random keys. */
static int is_plain(const struct kcase *k)
{
    return is_wide(&k->call) && !k->null_rows && !k->exact_beta && k->alike == 0 &&
           k->regime == LIVE && k->call.T <= 240 && k->id >= 1000 && k->id < 2000;
}
static int is_live(const struct kcase *k)
{
    return k->with_h0 && k->with_dht && k->regime == LIVE;
}
static int has_many(const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    return is_live(k) && c->H > FEW_HEADS && c->HV / c->H > FEW_IN_GROUP &&
           c->N > FEW_SEQUENCES && c->K == 128 && c->V == 128;
}
/* Returns 1 if every value head has a separate key head, and there are many chunks. */
static int has_own_keys(const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    return is_live(k) && c->H > FEW_HEADS && c->HV == c->H && c->N > 1 && c->K == 64 &&
           c->V == 64 && c->T > 17 * c->C;
}

/* Which cases must reject the plant. EACH: one case of each size and model; ALL: all
 * cases; ONE: at least one; NONE: none; STATUS: at least one by the status that the
 * plant returns, none by a value. */
enum demand { ONE, EACH, ALL, NONE, STATUS };
struct row {
    const char *name, *stage;
    int (*run)(void *);
    int wide;                      /* anchors: 0 small, 1 wide; 2: cases_of */
    int (*takes)(const struct kcase *);
    enum demand demand;
    enum kcp_storage judged;
    int chapter;                   /* chapter with the mistake, in a layer */
};
static const struct row rows[] = {
    { "composed_08", "08_forward", composed, 0, over_three, EACH, KCP_BF16, 0 },
    { "composed_08", "08_forward", composed, 1, over_three, EACH, KCP_BF16, 0 },
    { "composed_13", "13_backward", composed, 0, over_three, EACH, KCP_BF16, 0 },
    { "composed_13", "13_backward", composed, 1, over_three, EACH, KCP_BF16, 0 },
    { "kept_halved", "13_backward", kept_halved, 0, over_three, EACH, KCP_BF16, 0 },
    { "kept_halved", "13_backward", kept_halved, 1, over_three, EACH, KCP_BF16, 0 },
    { "kept_zeroed", "13_backward", kept_zeroed, 0, over_three, EACH, KCP_BF16, 0 },
    { "kept_zeroed", "13_backward", kept_zeroed, 1, over_three, EACH, KCP_BF16, 0 },
    { "both_parts", "09_chunk_backward", both_parts, 0, any_case, ONE, KCP_F64, 0 },
    { "both_parts", "09_chunk_backward", both_parts, 2, is_plain, ONE, KCP_F64, 0 },
    { "needs_h_in", "04_chunk", needs_h_in, 0, any_case, STATUS, KCP_F64, 0 },
    { "needs_ops", "08_forward", needs_ops, 0, any_case, STATUS, KCP_F64, 0 },
    { "remembers", "04_chunk", kept_grid, 0, any_case, ONE, KCP_F64, 0 },
    { "kept_grid_04", "04_chunk", kept_grid, 2, is_plain, ONE, KCP_F64, 0 },
    { "kept_grid_08", "08_forward", kept_grid, 2, is_plain, ONE, KCP_F64, 0 },
    { "last_h_in", "04_chunk", last_h_in, 2, is_plain, ONE, KCP_F64, 0 },
    { "even_blocks", "08_forward", even_blocks, 2, is_plain, ONE, KCP_F64, 0 },
    { "uncarried_04", "04_chunk", uncarried_04, 1, any_case, EACH, KCP_BF16, 0 },
    { "uncarried_05", "05_affine", uncarried_05, 1, any_case, EACH, KCP_BF16, 0 },
    { "uncarried_09", "09_chunk_backward", uncarried_09, 1, any_case, EACH, KCP_BF16,
      0 },
    { "uncarried_11", "11_merge_backward", uncarried_11, 1, any_case, EACH, KCP_BF16,
      0 },
    { "uncarried_04 in 08", "08_forward", planted_08, 1, over_three, EACH, KCP_BF16,
      4 },
    { "uncarried_05 in 08", "08_forward", planted_08, 1, over_three, EACH, KCP_BF16,
      5 },
    { "uncarried_09 in 13", "13_backward", planted_13, 1, over_three, EACH, KCP_BF16,
      9 },
    { "uncarried_11 in 13", "13_backward", planted_13, 1, over_three, EACH, KCP_BF16,
      11 },
    { "series", "03_wy", inverse_by_series, 0, is_independent, NONE, KCP_BF16, 0 },
    { "series", "03_wy", inverse_by_series, 0, is_alike, ONE, KCP_BF16, 0 },
    { "A_off", "03_wy", A_off, 0, is_alike_below_1, ALL, KCP_BF16, 0 },
    { "u_off", "03_wy", u_off, 0, is_alike_below_1, ALL, KCP_BF16, 0 },
    { "few_heads_04", "04_chunk", few_heads, 2, has_many, ALL, KCP_F64, 0 },
    { "few_heads_04", "04_chunk", few_heads, 2, has_own_keys, ALL, KCP_F64, 0 },
    { "few_in_group_04", "04_chunk", few_in_group, 2, has_many, ALL, KCP_F64, 0 },
    { "few_sequences_04", "04_chunk", few_sequences, 2, has_many, ALL, KCP_F64, 0 },
    { "few_heads_08", "08_forward", few_heads, 2, has_many, ONE, KCP_F64, 0 },
    { "few_sequences_08", "08_forward", few_sequences, 2, has_many, ONE, KCP_F64,
      0 },
    { "few_sequences_13", "13_backward", few_sequences, 2, has_many, ONE, KCP_F64,
      0 },
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

static struct kcase *list_of(const struct row *x, int *n)
{
    const struct kcp_stage *s = stage_find(x->stage);
    const struct options o = { .seed = 1 };
    const struct kcp_variant v = { s->name, "", "", KCP_F64, KCP_DEVICE, "", NULL,
                                   NULL };
    int all, kept = 0;
    struct kcase *list = x->wide == 2 ? cases_of(s, &v, &o, NULL, &all)
                                      : cases_anchors(s, x->wide, 1, 0, 0, &all);
    for (int i = 0; i < all; i++)
        if (x->takes(&list[i])) list[kept++] = list[i];
    /* Sorted only for EACH, because some plants reuse inputs of the previous case. */
    if (x->demand == EACH) qsort(list, (size_t)kept, sizeof *list, by_cost);
    *n = kept;
    return list;
}

/* Counts the cases that reject the plant; for ONE, EACH and STATUS stops at the
 * first. */
static int rejections(const struct row *x, const struct kcase *list, int n,
                      int by_status)
{
    const struct kcp_variant v = { x->stage, x->name, "", KCP_F64, KCP_HOST, "any",
                                   x->run, NULL };
    int count = 0;
    stage = stage_find(x->stage);
    for (int i = 0; i < n && (x->demand == ALL || x->demand == NONE || !count); i++) {
        struct verdict t = { .outcome = SKIP };
        if (!planted_here(&list[i].call)) continue;
        judge_case(stage_find(x->stage), &v, &list[i], x->judged, &t);
        const int by_value = t.worst.tol > 0 &&
                             (t.worst.nan || !(t.worst.err <= t.worst.tol));
        count += t.outcome == FAIL && by_value != by_status;
    }
    return count;
}

static void at_each_size(struct kcp_report *rep, const struct row *x,
                         const struct kcase *list, int n)
{
    static const int sizes[][2] = { { 64, 64 }, { 128, 128 }, { 64, 128 },
                                    { 128, 64 }, { 8, 6 } };
    for (int i = x->wide ? 0 : 8; i < (x->wide ? 8 : 10); i++) {
        planted_at = (struct planted_at){ sizes[i / 2][0], sizes[i / 2][1], i % 2 };
        EXPECT(rep, rejections(x, list, n, 0), "%s %s, %s K=%d V=%d: all %d "
               "cases pass", x->stage, x->name, model_name[i % 2], planted_at.K,
               planted_at.V, n);
    }
    planted_at.K = 0;
}

static int lists(struct kcp_report *rep)
{
    const int asked = case_repeats;
    case_repeats = 0;                           /* lists must reject without repeats */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *x = &rows[i];
        int n;
        struct kcase *list = list_of(x, &n);
        planted_chapter = x->chapter;
        EXPECT(rep, n > 0, "%s %s: no case", x->stage, x->name);
        if (x->demand == EACH) at_each_size(rep, x, list, n);
        else {
            const int count = rejections(x, list, n, x->demand == STATUS);
            int good = count > 0;
            if (x->demand == ALL) good = count == n;
            if (x->demand == NONE) good = !count;
            EXPECT(rep, good, "%s %s: %d of %d cases reject it", x->stage, x->name,
                   count, n);
        }
        if (x->demand == STATUS)
            EXPECT(rep, !rejections(x, list, n, 0), "%s %s: also rejected by "
                   "values", x->stage, x->name);
        planted_chapter = 0;
        free(list);
    }
    case_repeats = asked;
    return KCP_OK;
}
KCP_CHECK(check_00_lists) = { "00_judge", "lists",
    "each planted error is rejected by the judge's lists, by values",
    lists };

/* Checks that the plants that do not carry the state are right if stretches have only
 * one chunk. */
static int fair(struct kcp_report *rep)
{
    static const char *const words[] = {
        "live kda H=1 HV=2 K=8 V=12 C=16 lengths=16,7,0,12 h0 dht l2norm",
        "live gdn H=1 HV=2 K=8 V=12 C=16 lengths=16,7,0,12 h0 dht l2norm",
        "live kda R=3 H=1 HV=2 K=8 V=12 C=16 lengths=36,9 h0 dht l2norm",
        "live gdn R=3 H=1 HV=2 K=8 V=12 C=16 lengths=36,9 h0 dht l2norm" };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *x = &rows[i];
        const struct kcp_variant v = { x->stage, x->name, "", KCP_F64, KCP_HOST, "any",
                                       x->run, NULL };
        for (int j = 0; j < 2 && !strncmp(x->name, "uncarried", 9); j++) {
            struct verdict t = { .outcome = SKIP };
            struct kcase k;
            char why[160];
            planted_chapter = x->chapter;
            case_parse(words[j + (x->chapter ? 2 : 0)], &k, why, sizeof why);
            judge_case(stage_find(x->stage), &v, &k, KCP_F64, &t);
            planted_chapter = 0;
            EXPECT(rep, t.outcome == PASS && t.worst.tol > 0, "%s %s: %s", x->stage,
                   x->name, t.why);
        }
    }
    return KCP_OK;
}
KCP_CHECK(check_00_fair) = { "00_judge", "fair",
    "plants that do not carry the state pass with one chunk per sequence", fair };

/* Checks that for a kernel that does not take case 0, the first case that the kernel
 * takes is small and runs fifty times. */
static int fifty(struct kcp_report *rep)
{
    const struct row x = { "", "04_chunk", NULL, 2, any_case, ONE, KCP_F64, 0 };
    const struct kcp_variant v = { "04_chunk", "once_in_fifty", "", KCP_F64, KCP_HOST,
                                   "any", once_in_fifty, NULL };
    int n, i = 0;
    struct kcase *list = list_of(&x, &n);
    struct verdict t = { .outcome = NA };
    for (; i < n && t.outcome == NA; i++)
        judge_case(stage_find("04"), &v, &list[i], KCP_F64, &t);
    EXPECT(rep, i > 1 && i < 4 && t.outcome == FAIL && strstr(t.why, "differs") &&
           list[i - 1].call.T < 300, "case number %d: %s %s", i,
           outcome_name[t.outcome], t.why);
    free(list);
    return KCP_OK;
}
KCP_CHECK(check_00_fifty) = { "00_judge", "fifty",
    "a variant without small sizes, wrong in one of fifty calls, is rejected", fifty };
