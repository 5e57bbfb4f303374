/* self_wide.c -- the judge judged: kernels that take sizes of tensor cores alone.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself: the reference
 * passes.  Next: self_lists.c.
 *
 * They refuse every small case, so what small ones alone asked for nobody asked of
 * them. Planted: metadata kept by its sizes, an option that is ignored, wrong once in
 * fifty calls; and what few heads and few sequences cannot show.
 */
#include "checked.h"
#include "paths.h"
#include "trial.h"

#include <stdlib.h>
#include <string.h>

static int is_small(const struct kcp_call *c) { return c->K % 64 || c->V % 64; }

/* What was made of the first call's `cu` serves each call of the same sizes. */
struct grid_kept {
    int64_t T;
    int NS, NC, cu[64], cn[64], sc[64];
};

static void keep_grid(struct grid_kept *g, int64_t T, int NS, int NC, const int **cu,
                      const int **cn, const int **sc)
{
    if (NS >= 64 || NC > 64) return;
    if (g->T != T || g->NS != NS || g->NC != NC) {
        *g = (struct grid_kept){ .T = T, .NS = NS, .NC = NC };
        memcpy(g->cu, *cu, sizeof(int) * (size_t)(NS + 1));
        memcpy(g->cn, *cn, sizeof(int) * (size_t)(NS + 1));
        memcpy(g->sc, *sc, sizeof(int) * (size_t)NC);
    }
    *cu = g->cu;
    *cn = g->cn;
    *sc = g->sc;
}

static int kept_grid_04(void *args)
{
    static struct grid_kept g;
    struct kcp_chunk a = *(struct kcp_chunk *)args;
    const int *cu = a.cu, *cn = a.cn, *sc = a.sc;
    if (is_small(args)) return KCP_NA;
    keep_grid(&g, a.T, a.NS, a.NC, &cu, &cn, &sc);
    a.cu = cu;
    a.cn = cn;
    a.sc = sc;
    return ref_chunk(&a);
}

static int kept_grid_08(void *args)
{
    static struct grid_kept g[CASE_RANKS];
    struct kcp_forward a = *(struct kcp_forward *)args;
    const int *cu = a.cu, *cn = a.cn, *sc = a.sc;
    if (is_small(args)) return KCP_NA;
    keep_grid(&g[a.r], a.T, a.NS, a.NC, &cu, &cn, &sc);
    a.cu = cu;
    a.cn = cn;
    a.sc = sc;
    kcp_checked_enter();                 /* else the plan and the grid do not agree */
    const int status = ref_forward(&a);
    kcp_checked_leave();
    return status;
}

/* Without h_in it begins with the states that the last call was given. */
static int last_h_in(void *args)
{
    static double *h;
    static size_t n;
    struct kcp_chunk a = *(struct kcp_chunk *)args;
    const size_t numbers = (size_t)a.NS * a.HV * a.K * a.V;
    if (is_small(args)) return KCP_NA;
    if (a.h_in) {
        free(h);
        n = numbers;
        h = malloc(n * sizeof *h);
        if (h) memcpy(h, a.h_in, n * sizeof *h);
    } else if (h && n >= numbers) a.h_in = h;
    return ref_chunk(&a);
}

/* 09 that does both parts, whatever it is asked for. */
static int both_parts(void *args)
{
    struct kcp_chunk_backward a = *(struct kcp_chunk_backward *)args;
    if (is_small(args)) return KCP_NA;
    a.part = KCP_LOCAL | KCP_REVERSE;
    return ref_chunk_backward(&a);
}

/* Blocks of a pipeline are all as wide as V / blocks: the columns left over stay where
 * they are, and what came from ranks before is missing there. */
static int even_blocks(void *args)
{
    struct kcp_forward *a = args;
    if (is_small(args)) return KCP_NA;
    const int status = ref_forward(a);
    const int over = a->form == KCP_PIPELINE && a->blocks > 0 ? a->V % a->blocks : 0;
    double *o = a->o;
    for (int64_t row = 0; row < a->T * a->HV && a->r > 0; row++)
        for (int v = a->V - over; v < a->V; v++) o[row * a->V + v] = 0;
    return status;
}

/* The fiftieth call of one size is wrong. */
static int sized_calls;
static int once_in_fifty(void *args)
{
    static int64_t T;
    struct kcp_chunk *a = args;
    if (is_small(args)) return KCP_NA;
    const int status = ref_chunk(a);
    sized_calls = T == a->T ? sized_calls + 1 : 1;
    T = a->T;
    if (sized_calls == 50) *(double *)a->o += 1;
    return status;
}

/* In how many of the cases, in their order, a value is off by more than its limit; the
 * order counts, for these keep what calls before were given. */
static int seen(const char *stage, int (*run)(void *), const struct kcase *list, int n)
{
    const struct kcp_variant v = { stage, "planted", "", KCP_F64, KCP_HOST, "any", run,
                                   NULL };
    int cases = 0;
    for (int i = 0; i < n; i++) {
        struct verdict t;
        judge_case(stage_find(stage), &v, &list[i], KCP_F64, &t);
        cases += t.outcome == FAIL && t.worst.tol > 0;
    }
    return cases;
}

/* Of the wide list those of few tokens and random keys, which cost little; all: of any
 * length. */
static struct kcase *wide_few(const char *stage, int all, int *n)
{
    const struct options o = { .seed = 1 };
    const struct kcp_stage *s = stage_find(stage);
    const struct kcp_variant v = { s->name, "", "", KCP_F64, KCP_DEVICE, "", NULL,
                                   NULL };
    int kept = 0;
    struct kcase *list = cases_of(s, &v, &o, NULL, n);
    for (int i = 0; i < *n; i++) {
        const struct kcase *k = &list[i];
        const int wide = k->id >= 1000 && k->id < 2000;
        const int plain = !k->null_rows && !k->exact_beta && k->alike == 0 &&
                          k->regime == LIVE && k->call.T <= 240;
        if ((wide && plain) || all) list[kept++] = *k;
    }
    *n = kept;
    return list;
}

static int wide(struct kcp_report *rep)
{
    static const struct { const char *stage, *what; int (*run)(void *); } plants[] = {
        { "04_chunk", "metadata kept by its sizes", kept_grid_04 },
        { "04_chunk", "states of an earlier call", last_h_in },
        { "08_forward", "metadata kept by its sizes", kept_grid_08 },
        { "08_forward", "the last block left out", even_blocks },
        { "09_chunk_backward", "parts", both_parts } };
    const int asked = repeats_asked;
    repeats_asked = 0;                           /* it is the lists that are asked */
    for (int p = 0; p < 5; p++) {
        int n;
        struct kcase *list = wide_few(plants[p].stage, 0, &n);
        const struct kcp_stage *s = stage_find(plants[p].stage);
        if (!p || strcmp(plants[p].stage, plants[p - 1].stage))
            EXPECT(rep, !seen(s->name, s->ref, list, n),
                   "%s: the reference fails", s->name);
        EXPECT(rep, seen(plants[p].stage, plants[p].run, list, n),
               "%s at sizes of tensor cores: %s, and no case sees it", plants[p].stage,
               plants[p].what);
        free(list);
    }
    repeats_asked = asked;
    return KCP_OK;
}
KCP_CHECK(check_00_wide) = { "00_judge", "wide",
    "kernels of 64 and 128 alone that keep metadata, or ignore an option, are seen",
    wide };

/* Who refuses case 0 is run fifty times too, of the first case that it takes. */
static int fifty(struct kcp_report *rep)
{
    int n, few = 0;
    struct kcase *list = wide_few("04", 1, &n);
    const struct kcp_variant v = { "04_chunk", "planted", "", KCP_F64, KCP_HOST, "any",
                                   once_in_fifty, NULL };
    struct verdict t = { .outcome = NA };
    for (; few < n && t.outcome == NA; few++)
        judge_case(stage_find("04"), &v, &list[few], KCP_F64, &t);
    EXPECT(rep, few > 1 && t.outcome == FAIL && strstr(t.why, "differs"),
           "case number %d, after %d calls: %s %s", few, sized_calls,
           outcome_name[t.outcome], t.why);
    EXPECT(rep, few < 4 && list[few - 1].call.T < 300, "the first taken: not small");
    free(list);
    return KCP_OK;
}
KCP_CHECK(check_00_fifty) = { "00_judge", "fifty",
    "wrong once in fifty calls, and takes no small sizes: seen", fifty };

/* ---- more than two key heads, three heads a group, six sequences */
enum { FEW_HEADS = 2, FEW_IN_GROUP = 3, FEW_SEQUENCES = 6 };

/* Rows [T][HV][W]: head n's are those of head from(n), one of the few. */
static void mix_heads(const struct kcp_call *c, int W, double *rows, int by_group)
{
    const int group = c->HV / c->H;
    for (int64_t i = 0; i < c->T * c->HV && rows; i++) {
        const int n = (int)(i % c->HV), m = n / group, j = n % group;
        const int few = by_group ? m * group + j % FEW_IN_GROUP
                                 : m % FEW_HEADS * group + j;
        memcpy(rows + i * W, rows + (i - n + few) * W, sizeof *rows * (size_t)W);
    }
}

static int by_group;
static int few_heads_04(void *args)
{
    struct kcp_chunk *a = args;
    const int status = ref_chunk(a);
    if (!status) mix_heads(args, a->V, a->o, by_group);
    return status;
}

static int few_heads_08(void *args)
{
    struct kcp_forward *a = args;
    const int status = ref_forward(a);
    if (!status) mix_heads(args, a->V, a->o, by_group);
    return status;
}

/* The states [n][HV][K][V] given to sequences past the sixth are the first ones'. */
static double *few_states(const struct kcp_call *c, const void *states, int n)
{
    const size_t state = (size_t)c->HV * (size_t)c->K * (size_t)c->V;
    double *few = malloc(sizeof *few * state * (size_t)n);
    for (int i = 0; i < n && few; i++)
        memcpy(few + state * (size_t)i, (const double *)states
               + state * (size_t)(i % FEW_SEQUENCES), sizeof *few * state);
    return few;
}

static int few_sequences_04(void *args)
{
    struct kcp_chunk a = *(struct kcp_chunk *)args;
    double *few = few_states(args, a.h_in, a.NS);
    a.h_in = few;
    const int status = few ? ref_chunk(&a) : KCP_NO_MEMORY;
    free(few);
    return status;
}

static int few_sequences_08(void *args)
{
    struct kcp_forward a = *(struct kcp_forward *)args;
    double *few = few_states(args, a.h0, a.N);
    a.h0 = few;
    const int status = few ? ref_forward(&a) : KCP_NO_MEMORY;
    free(few);
    return status;
}

static int few_sequences_13(void *args)
{
    struct kcp_backward a = *(struct kcp_backward *)args;
    double *few = few_states(args, a.dht, a.N);
    a.dht = few;
    const int status = few ? ref_backward(&a) : KCP_NO_MEMORY;
    free(few);
    return status;
}

/* What is counted is given all states, and by two ranks at least where there are any:
 * what crosses is of many heads too. */
static int is_whole(const struct kcp_stage *s, const struct kcase *k)
{
    return k->with_h0 && k->with_dht && k->regime == LIVE &&
           (!s->ranks || k->call.R > 1);
}

static int is_larger(const struct kcp_call *c)
{
    return c->H > FEW_HEADS && c->HV / c->H > FEW_IN_GROUP && c->N > FEW_SEQUENCES &&
           c->K == 128 && c->V == 128;
}

/* Heads of their own keys, in sequences of many chunks. */
static int is_own_keys(const struct kcp_call *c)
{
    return c->H > FEW_HEADS && c->HV == c->H && c->N > 1 && c->K == 64 && c->V == 64 &&
           c->T > 17 * c->C;
}

static int models_asked(const struct kcp_stage *s)
{
    if (!strncmp(s->name, "16", 2)) return 1 << KCP_DPLR | 1 << KCP_GDN2 | 1 << KCP_GLA;
    return 1 << KCP_KDA | (strncmp(s->name, "15", 2) ? 1 << KCP_GDN : 0);
}

enum { LARGER, OWN_KEYS, LARGER_KINDS };
static const struct { const char *what; int (*is)(const struct kcp_call *); }
    larger_kind[LARGER_KINDS] = {
        { "many heads, groups and sequences", is_larger },
        { "heads of their own keys, and many chunks", is_own_keys } };

static const struct {
    const char *stage, *what;
    int (*run)(void *), by_group, kind;
} larger_plants[] = {
    { "04_chunk", "heads past the second", few_heads_04, 0, LARGER },
    { "04_chunk", "heads past the second", few_heads_04, 0, OWN_KEYS },
    { "04_chunk", "heads of a group past the third", few_heads_04, 1, LARGER },
    { "04_chunk", "sequences past the sixth", few_sequences_04, 0, LARGER },
    { "08_forward", "heads past the second", few_heads_08, 0, LARGER },
    { "08_forward", "sequences past the sixth", few_sequences_08, 0, LARGER },
    { "13_backward", "sequences past the sixth", few_sequences_13, 0, LARGER } };

/* The list of a stage that has kernels for these sizes has a case of this kind in each
 * model; and what it alone shows is seen there. */
static void larger_of(struct kcp_report *rep, const struct kcp_stage *s,
                      const struct kcase *list, int n, int kind)
{
    const int asked_of = models_asked(s);
    const struct kcase *first = NULL;
    int models = 0;
    for (int j = n - 1; j >= 0; j--)
        if (is_whole(s, &list[j]) && larger_kind[kind].is(&list[j].call)) {
            models |= 1 << list[j].call.model;
            first = &list[j];
        }
    EXPECT(rep, (models & asked_of) == asked_of, "%s: no case of %s in each model",
           s->name, larger_kind[kind].what);
    for (size_t p = 0; p < sizeof larger_plants / sizeof *larger_plants; p++) {
        by_group = larger_plants[p].by_group;
        if (larger_plants[p].kind != kind || !first) continue;
        if (strcmp(larger_plants[p].stage, s->name)) continue;
        EXPECT(rep, seen(s->name, larger_plants[p].run, first, 1),
               "%s at sizes of tensor cores: %s, and the case of %s does not see it",
               s->name, larger_plants[p].what, larger_kind[kind].what);
    }
}

static int wide_larger(struct kcp_report *rep)
{
    const int asked = repeats_asked;
    repeats_asked = 0;
    for (int i = 0; i < kcp_nstages; i++) {
        const struct kcp_stage *s = &kcp_stages[i];
        int n;
        if (strstr("01 06 07 12 14", (char[]){ s->name[0], s->name[1], 0 })) continue;
        struct kcase *list = wide_few(s->name, 1, &n);
        for (int kind = 0; kind < LARGER_KINDS; kind++)
            larger_of(rep, s, list, n, kind);
        free(list);
    }
    repeats_asked = asked;
    return KCP_OK;
}
KCP_CHECK(check_00_wide_larger) = { "00_judge", "wide_larger",
    "kernels of 64 and 128 alone that know few heads or few sequences are seen",
    wide_larger };
