/* page.c -- computes what the page shows: inputs, the ranks' program, and the checks.
 * Book: page "compute".
 *
 * page_run(query) runs the references and comm/form/ on simulated ranks, first without
 * and then with the chosen mutant, and returns HTML. The script of the page only passes
 * the reader's choices to this function and shows the answer. */
#include "page.h"

#include "base/random.h"
#include "ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K = PAGE_K, V = PAGE_V, KV = K * V };

/* ---- the reader's choices */
static char query[512];
static int64_t cu[MOST_N + 1], cuts[MOST_R + 1];
struct choices pick;

static const char *value(const char *key)
{
    char word[32];
    snprintf(word, sizeof word, "&%s=", key);
    const char *at = strstr(query, word);
    return at ? at + strlen(word) : "";
}

static int whole(const char *key, int least, int most, int *to)
{
    char *end;
    const long x = strtol(value(key), &end, 10);
    *to = (int)x;
    if (end != value(key) && (*end == '&' || !*end) && x >= least && x <= most)
        return 1;
    put("<p class=bad>%s: expected a whole number from %d to %d</p>", key, least, most);
    return 0;
}

/* Reads "13,30,57" into x[1] .. x[n]; returns n, or -1 if the list is wrong. */
static int list(const char *key, int64_t *x, int most)
{
    int n = 0;
    char *end;
    for (const char *at = value(key); *at && *at != '&'; at = end + (*end == ',')) {
        const long y = strtol(at, &end, 10);
        if (end == at || (*end && *end != '&' && *end != ',') || n == most) {
            put("<p class=bad>%s: expected at most %d numbers, separated by commas</p>",
                key, most);
            return -1;
        }
        x[++n] = y;
    }
    return n;
}

/* Reads the choices and makes the plan. Returns 0, after a line that says why, if a
 * choice is wrong. */
static int choose(void)
{
    int kind, n, cut;
    const char *why = "";
    struct kcp_owners table;
    if (!whole("tokens", 1, MOST_T, &pick.T) || !whole("chunk", 1, 64, &pick.C) ||
        !whole("ranks", 1, MOST_R, &pick.R) ||
        !whole("form", 0, KCP_FORMS - 1, &pick.form) ||
        !whole("gates", 0, 3, &pick.gates) || !whole("owners", 0, 2, &pick.owners) ||
        !whole("model", 0, 1, &kind) || !whole("h0", 0, 1, &pick.h0) ||
        !whole("mutant", 0, MUTANTS, &pick.mutant) ||
        !whole("guess", 0, 7, &pick.guess) ||
        (n = list("sequences", cu, MOST_N - 1)) < 0 ||
        (cut = list("cuts", cuts, MOST_R - 1)) < 0)
        return 0;
    pick.model = kind ? KCP_GDN : KCP_KDA;
    pick.KG = kind ? 1 : K;
    cu[pick.N = n + 1] = cuts[pick.R] = pick.T;
    if (cut && cut != pick.R - 1) {
        put("<p class=bad>cuts: found %d, expected %d for %d ranks, or none</p>", cut,
            pick.R - 1, pick.R);
        return 0;
    }
    const int N = pick.N, R = pick.R, C = pick.C;
    kcp_plan_free(pick.plan);
    pick.plan = NULL;
    int status = KCP_OK;
    if (pick.owners == KCP_CONTIGUOUS)
        status = kcp_plan_make(&pick.plan, N, cu, R, cut ? cuts : NULL, 0, C, 0, &why);
    else {
        status = kcp_owners_make(&table, pick.owners, N, cu, R, C, &why);
        if (!status)
            status = kcp_plan_owned(&pick.plan, N, cu, R, &table, 0, C, 0, &why);
        kcp_owners_free(&table);
    }
    if (status) put("<p class=bad>%s</p>", why);
    return !status;
}

/* ---- inputs, and results of the recurrence and of the ranks, in token order */
static struct {
    double q[MOST_T][K], k[MOST_T][K], v[MOST_T][V], g[MOST_T * K], beta[MOST_T];
    double dO[MOST_T][V], h0[MOST_N][KV], dht[MOST_N][KV];
} in;
struct results truth, got[2];
struct kcp_traffic traffic[MOST_R], formula[MOST_R];

static void draw_numbers(double *x, int64_t n, uint64_t *seed)
{
    for (int64_t i = 0; i < n; i++) x[i] = random_normal(seed);
}

static void make_inputs(void)
{
    const int KG = pick.KG;
    static const double rate[] = { 0, 0.03, 0.5, 5 };
    uint64_t seed = 1;
    draw_numbers((double *)&in, sizeof in / sizeof(double), &seed);
    for (int t = 0; t < pick.T; t++) {
        double kk = 0, qq = 0;
        for (int i = 0; i < K; i++) {
            kk += in.k[t][i] * in.k[t][i];
            qq += in.q[t][i] * in.q[t][i];
        }
        for (int i = 0; i < K; i++) {
            in.k[t][i] /= sqrt(kk);
            in.q[t][i] /= sqrt(qq);
        }
        in.beta[t] = random_uniform(&seed);
        for (int i = 0; i < KG; i++)
            in.g[t * KG + i] =
                -rate[pick.gates] * (pick.gates == 3 ? 1 : random_uniform(&seed));
    }
}

static int recurrence(void)
{
    struct kcp_step a = {
        .T = pick.T, .N = pick.N, .R = 1, .H = 1, .HV = 1, .K = K, .V = V,
        .KG = pick.KG, .C = pick.C, .model = pick.model, .scale = 1, .cu_seqlens = cu,
        .q = in.q, .k = in.k, .v = in.v,
        .g = in.g, .beta = in.beta, .h0 = pick.h0 ? in.h0 : NULL, .o = truth.o,
        .ht = truth.ht, .do_ = in.dO, .dht = in.dht, .dq = truth.dq, .dk = truth.dk,
        .dv = truth.dv, .dg = truth.dg, .dbeta = truth.dbeta, .dh0 = truth.dh0 };
    const int status = ref_step(&a);
    a.pass = KCP_BACKWARD;
    return status ? status : ref_step(&a);
}

/* ---- one rank: forward, then backward, on its shard */
static int rank(struct kcp_comm *comm, void *arg)
{
    struct results *to = arg;
    static double q[MOST_T][K], k[MOST_T][K], v[MOST_T][V], g[MOST_T * K], beta[MOST_T];
    static double dO[MOST_T][V];
    static struct results y;
    const int r = comm->r, KG = pick.KG, at = pick.mutant - 1;
    const struct kcp_plan *plan = pick.plan;
    const struct kcp_context *x = &plan->ctx[r];
    const struct { const void *whole; void *shard; size_t row; } part[] = {
        { in.q, q, sizeof *q }, { in.k, k, sizeof *k }, { in.v, v, sizeof *v },
        { in.g, g, KG * sizeof *g }, { in.beta, beta, sizeof *beta },
        { in.dO, dO, sizeof *dO } };
    for (int i = 0; i < 6; i++)
        kcp_plan_take(plan, r, part[i].row, part[i].whole, part[i].shard);

    struct kcp_forward f = {
        .T = x->end - x->begin, .N = pick.N, .NS = x->NS, .NC = x->NC, .R = pick.R,
        .r = r, .H = 1, .HV = 1, .K = K, .V = V, .C = pick.C, .KG = KG,
        .model = pick.model, .form = pick.form, .save = KCP_SAVE_ALL,
        .blocks = 2, .scale = 1, .plan = plan, .comm = comm, .ops = &page_ops,
        .cu = x->cu, .cn = x->cn, .sc = x->sc, .q_raw = q, .k_raw = k, .v = v,
        .g_raw = g, .beta_raw = beta, .h0 = pick.h0 ? in.h0 : NULL, .o = y.o,
        .ht = to->ht };
    if (at >= 0 && !strncmp(mutants[at]->stage, "12", 2))
        f.save = KCP_RECOMPUTE;               /* else backward does not run stage 12 */
    f.saved_bytes = kcp_saved_bytes(&f);
    f.saved = malloc(f.saved_bytes);
    int status = f.saved ? ref_forward(&f) : KCP_NO_MEMORY;
    traffic[r] = comm->traffic;
    formula[r] = kcp_exchange_formula(&(struct kcp_exchange){
        .form = pick.form, .blocks = f.blocks, .HV = 1, .K = K, .V = V, .plan = plan,
        .comm = comm, .ops = &page_ops });
    struct kcp_backward b = { 0 };
    memcpy(&b, &f, sizeof(struct kcp_call));
    b.cu = f.cu; b.cn = f.cn; b.sc = f.sc; b.q_raw = q; b.k_raw = k; b.v = v;
    b.g_raw = g; b.beta_raw = beta; b.h0 = f.h0; b.do_ = dO; b.dht = in.dht;
    b.saved = f.saved; b.saved_bytes = f.saved_bytes; b.dq_raw = y.dq; b.dk_raw = y.dk;
    b.dv = y.dv; b.dg_raw = y.dg; b.dbeta_raw = y.dbeta; b.dh0 = to->dh0;
    if (!status) {
        ranks_backward(comm);
        status = ref_backward(&b);
    }
    free(f.saved);
    const struct { const void *shard; void *whole; size_t row; } back[] = {
        { y.o, to->o, V * sizeof *y.o }, { y.dq, to->dq, K * sizeof *y.dq },
        { y.dk, to->dk, K * sizeof *y.dk }, { y.dv, to->dv, V * sizeof *y.dv },
        { y.dg, to->dg, KG * sizeof *y.dg }, { y.dbeta, to->dbeta, sizeof *y.dbeta } };
    for (int i = 0; i < 6; i++)
        kcp_plan_give(plan, r, back[i].row, back[i].shard, back[i].whole);
    return status;
}

static int simulate(int with)
{
    active = with ? mutants[pick.mutant - 1] : NULL;
    forget(with);
    memset(&got[with], 0, sizeof got[with]);
    const int status = ranks_run(pick.R, rank, &got[with]);
    active = NULL;
    return status;
}

/* The query has the form "&tokens=64&chunk=8...". */
const char *page_run(const char *choices);
const char *page_run(const char *choices)
{
    snprintf(query, sizeof query, "%s", choices);
    if (!choose()) return answer();
    make_inputs();
    int status = recurrence();
    if (!status) status = simulate(0);
    const int with = pick.mutant && pick.guess;
    if (!status && with) status = simulate(1);
    question();
    if (status)
        put("<p class=bad>the references returned status %d: %s</p>", status,
            kcp_why());
    else report(with);
    return answer();
}

/* Options of the choices that are lists of ref/ and tests/. */
const char *page_options(int of_mutants);
const char *page_options(int of_mutants)
{
    for (int i = 0; i < KCP_FORMS && !of_mutants; i++)
        put("<option value=%d%s>%s</option>", i, i == KCP_CHAIN ? " selected" : "",
            kcp_form_names[i]);
    if (of_mutants) put("<option value=0>none</option>");
    for (int i = 0; i < MUTANTS && of_mutants; i++)
        put("<option value=%d>%s %s</option>", i + 1, mutants[i]->stage,
            mutants[i]->name);
    return answer();
}

/* The script writes the choices here. */
char *page_buffer(void);
char *page_buffer(void)
{
    static char buffer[sizeof query];
    return buffer;
}
