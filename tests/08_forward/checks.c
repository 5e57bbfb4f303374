/* checks.c -- compares the results and the traffic of forward on 1 to 8 ranks.
 *
 * Book: chapter 08. Checked by: tests/08_forward/mutants.c. Next: ref/13_backward.c.
 * The judge compares every variant with the token recurrence. This file compares
 * reference runs that differ in cuts or exchange form, and repeated runs. */
#include "tests/judge/judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 210, N = 5, H = 1, HV = 2, K = 6, V = 5, C = 8, MAX_R = 8 };

static const int64_t cu[N + 1] = { 0, 3, 3, 150, 209, 210 };

/* The inputs and outputs of all ranks. Each rank copies its own rows. */
struct layer {
    double q[T][H][K], k[T][H][K], v[T][HV][V], g[T][HV][K], beta[T][HV];
    double h0[N][HV][K][V];
    struct kcp_call call;
    struct kcp_plan *plan;
    double o[T][HV][V], ht[N][HV][K][V];
    struct kcp_traffic traffic[MAX_R], formula[MAX_R];
};

static struct layer *draw(enum kcp_model model)
{
    struct layer *a = calloc(1, sizeof *a);
    struct stream s = stream_of(8, "08_forward");
    if (!a)
        return NULL;
    a->call = (struct kcp_call){ .N = N, .H = H, .HV = HV, .K = K, .V = V, .C = C,
        .KG = model == KCP_KDA ? K : 1, .model = model, .beta_form = KCP_BETA_SIGMOID,
        .l2norm = 1, .scale = 0.4, .blocks = 3 };
    for (double *x = &a->q[0][0][0]; x < &a->g[0][0][0]; x++) *x = normal(&s);
    for (double *x = &a->g[0][0][0]; x < &a->beta[0][0]; x++)
        *x = -fabs(normal(&s)) / T;
    for (double *x = &a->beta[0][0]; x < &a->h0[0][0][0][0]; x++) *x = normal(&s) - 2;
    for (int e = 0; e < N * HV * K * V; e++) (&a->h0[0][0][0][0])[e] = normal(&s);
    return a;
}

/* Copies n rows to a separate allocation, so that reads past the rows are found. */
static void *mine(const void *rows, int64_t at, int64_t n, size_t row)
{
    void *p = malloc((size_t)n * row + 1);
    return p ? memcpy(p, (const char *)rows + at * row, (size_t)n * row) : NULL;
}

static int body(struct kcp_comm *comm, void *arg)
{
    struct layer *a = arg;
    const struct kcp_context *x = &a->plan->ctx[comm->r];
    const int64_t n = x->end - x->begin, t = x->begin;
    const size_t gate = sizeof(double) * HV * a->call.KG;
    struct kcp_forward f = { 0 };
    memcpy(&f, &a->call, sizeof a->call);
    f.T = n; f.NS = x->NS; f.NC = x->NC; f.R = a->plan->R; f.r = comm->r;
    f.plan = a->plan; f.comm = comm; f.ops = &ref_mapops;
    f.cu = x->cu; f.cn = x->cn; f.sc = x->sc; f.h0 = a->h0; f.ht = a->ht;
    f.q_raw = mine(a->q, t, n, sizeof a->q[0]);
    f.k_raw = mine(a->k, t, n, sizeof a->k[0]);
    f.v = mine(a->v, t, n, sizeof a->v[0]); f.g_raw = mine(a->g, t, n, gate);
    f.beta_raw = mine(a->beta, t, n, sizeof a->beta[0]);
    f.o = mine(a->o, t, n, sizeof a->o[0]);
    int err = f.q_raw && f.k_raw && f.v && f.g_raw && f.beta_raw && f.o ? KCP_OK
                                                                        : KCP_NO_MEMORY;
    if (!err && !(err = ref_forward(&f)))
        memcpy(a->o[t], f.o, (size_t)n * sizeof a->o[0]);
    const struct kcp_exchange e = { .form = f.form, .blocks = f.blocks, .HV = HV,
        .K = K, .V = V, .plan = a->plan, .comm = comm, .ops = &ref_mapops };
    a->traffic[comm->r] = comm->traffic;
    a->formula[comm->r] = kcp_exchange_formula(&e);
    free((void *)f.q_raw); free((void *)f.k_raw); free((void *)f.v); free(f.o);
    free((void *)f.g_raw); free((void *)f.beta_raw);
    return err;
}

/* Fills o and ht with NaN, then runs the layer on R ranks. */
static int run_ranks(struct kcp_report *rep, struct layer *a, int R,
                     const int64_t *cuts, int64_t L, enum kcp_form form)
{
    char why[200] = "";
    memset(a->o, 0xff, sizeof a->o);
    memset(a->ht, 0xff, sizeof a->ht);
    a->call.form = form;
    if (kcp_plan_make(&a->plan, N, cu, R, cuts, L, C, 0, NULL))
        return KCP_BAD;
    const int err = kcp_threads_run(R, body, a, why, sizeof why);
    EXPECT(rep, !err, "form %d R %d: %s", form, R, why);
    for (int r = 0; r < R && !err; r++)
        EXPECT(rep, !memcmp(&a->traffic[r], &a->formula[r], sizeof a->traffic[r]),
               "form %d R %d rank %d: %lld bytes, formula %lld", form, R, r,
               (long long)a->traffic[r].bytes, (long long)a->formula[r].bytes);
    kcp_plan_free(a->plan);
    return err;
}

static int same_bits(const struct layer *a, const struct layer *b)
{
    return !memcmp(a->o, b->o, sizeof a->o) && !memcmp(a->ht, b->ht, sizeof a->ht);
}

static double apart(const struct layer *a, const struct layer *b)
{
    const double *x = &a->o[0][0][0], *y = &b->o[0][0][0];
    const int64_t n = (sizeof a->o + sizeof a->ht) / sizeof *x;     /* ht follows o */
    double d = 0, s = 0;
    for (int64_t e = 0; e < n; e++) {
        d += (x[e] - y[e]) * (x[e] - y[e]);
        s += y[e] * y[e];
    }
    return sqrt(d / s);
}

static const int64_t uneven[] = { 0, 1, 60, 60, 61, 149, 150, 210, 210 };

/* With canonical segments, all forms that apply maps in order give the same bits for
 * every R and all cuts. */
static int canonical(struct kcp_report *rep)
{
    static const int ranks[] = { 1, 2, 3, 4, 8 };
    for (int model = KCP_KDA; model <= KCP_GDN; model++) {
        struct layer *a = draw(model), *one = draw(model);
        if (!a || !one || run_ranks(rep, one, 1, NULL, 24, KCP_ALL_GATHER))
            return KCP_NO_MEMORY;
        for (int form = 0; form < KCP_FORMS; form++)
            for (int i = 0; i < 6 && kcp_form_in_order(form); i++) {
                const int R = i < 5 ? ranks[i] : MAX_R;
                run_ranks(rep, a, R, i < 5 ? NULL : uneven, 24, form);
                EXPECT(rep, same_bits(a, one), "model %d form %d R %d%s: bits differ "
                                               "from R = 1, by %.1e", model, form, R,
                       i < 5 ? "" : " uneven", apart(a, one));
            }
        run_ranks(rep, a, 8, NULL, 24, KCP_SCAN);        /* equal bits not guaranteed */
        EXPECT(rep, apart(a, one) < 1e-13, "scan: off by %.1e", apart(a, one));
        free(a); free(one);
    }
    return KCP_OK;
}

static int forms(struct kcp_report *rep)
{
    for (int model = KCP_KDA; model <= KCP_GDN; model++) {
        struct layer *a = draw(model), *one = draw(model), *twice = draw(model);
        if (!a || !one || !twice || run_ranks(rep, one, 1, NULL, 0, KCP_CHAIN))
            return KCP_NO_MEMORY;
        for (int form = 0; form < KCP_FORMS; form++)
            for (int R = 2; R <= MAX_R; R++) {
                const int64_t *cuts = R == MAX_R ? uneven : NULL;
                run_ranks(rep, a, R, cuts, 0, form);
                run_ranks(rep, twice, R, cuts, 0, form);
                EXPECT(rep, same_bits(a, twice), "form %d R %d: unequal", form, R);
                EXPECT(rep, apart(a, one) < 1e-13, "model %d form %d R %d: off by %.1e",
                       model, form, R, apart(a, one));
            }
        free(a); free(one); free(twice);
    }
    return KCP_OK;
}

static int silence(struct kcp_report *rep)
{
    const int64_t cuts[] = { 0, 3, 150, 150, 209, 210 };
    struct layer *a = draw(KCP_KDA), *one = draw(KCP_KDA);
    if (!a || !one || run_ranks(rep, one, 1, NULL, 0, KCP_CHAIN))
        return KCP_NO_MEMORY;
    for (int64_t L = 0; L < 48; L += 24)
        for (int form = 0; form < KCP_FORMS; form++) {
            run_ranks(rep, a, 5, cuts, L, form);
            for (int r = 0; r < 5; r++)
                EXPECT(rep, !(a->traffic[r].bytes | a->traffic[r].messages |
                              a->traffic[r].collectives), "form %d rank %d", form, r);
            EXPECT(rep, apart(a, one) < 1e-13, "off by %.1e", apart(a, one));
        }
    free(a); free(one);
    return KCP_OK;
}

static int disagrees(struct kcp_comm *comm, void *arg)
{
    struct layer *a = arg;
    struct kcp_forward f = { 0 };
    memcpy(&f, &a->call, sizeof a->call);
    f.r = comm->r; f.R = 3; f.comm = comm; f.plan = a->plan;
    f.NS = a->plan->ctx[comm->r].NS; f.NC = -1;
    return comm->r == 1 ? ref_forward(&f) : comm->barrier(comm, NULL);
}

static int refuses(struct kcp_report *rep)
{
    struct layer *a = draw(KCP_KDA);
    char why[200] = "";
    if (!a || kcp_plan_make(&a->plan, N, cu, 3, NULL, 0, C, 0, NULL))
        return KCP_NO_MEMORY;
    const int err = kcp_threads_run(3, disagrees, a, why, sizeof why);
    EXPECT(rep, err == KCP_BAD && strstr(why, "rank 1: 08_forward: NC"),
           "status %d, %s", err, why);
    kcp_plan_free(a->plan);
    free(a);
    return KCP_OK;
}

KCP_CHECK(check_08_canonical) = {
    "08_forward", "canonical", "R = 1, 2, 3, 4, 8, all ordered forms: equal bits",
    canonical };
KCP_CHECK(check_08_forms) = {
    "08_forward", "forms", "all forms and R agree; a repeated run gives equal bits",
    forms };
KCP_CHECK(check_08_silence) = {
    "08_forward", "silence", "if no sequence is cut, no byte is sent", silence };
KCP_CHECK(check_08_refuses) = {
    "08_forward", "refuses", "if one rank contradicts the plan, all ranks end",
    refuses };
