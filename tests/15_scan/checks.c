/* checks.c -- checks Spike-KDA: gradients agree with differences, all cuts agree,
 * Spike-KDA without masks equals KDA, and a scan needs little memory.
 *
 * Book: chapter 15.  Checked by: itself, it can fail.  Next: tests/15_scan/mutants.c.
 */
#include "run.h"
#include "tests/made_call.h"
#include "ref/sigmoid.h"
#include "tests/judge/family_cuts.h"

#include <malloc.h>

static int take_kind(struct batch *x, int kind)
{
    x->no_masks = kind == 1;
    x->masks = x->no_masks ? 0 : kind;
    return kind < 4;
}

/* Sets x->walk from R and the exchange form, except for canonical segments. */
static void take_options(struct batch *x)
{
    if (x->L)
        return;
    x->oracle = 0;
    x->walk = x->R % 3;
    if (x->cuts)
        x->walk = (x->form + (x->cuts != uneven)) % 3;
}

static void name_run(const struct batch *x, char name[40])
{
    snprintf(name, 40, "masks %d, walk %d", x->masks, x->walk);
}

static void hold_more(struct kcp_report *rep, const struct batch *x, const char *what)
{
    for (int r = 0; r < x->R && !x->oracle; r++)
        EXPECT(rep, x->traffic[r].bytes == x->formula[r].bytes &&
               x->traffic[r].messages == x->formula[r].messages &&
               x->traffic[r].collectives == x->formula[r].collectives,
               "%s, rank %d sent %lld bytes, not %lld", what, r,
               (long long)x->traffic[r].bytes, (long long)x->formula[r].bytes);
}

static int against_tokens(struct kcp_report *rep, struct batch x,
                          const struct batch *one)
{
    static const int64_t fine[] = { 0, 20, 21, 22, 24, 30, 31, 40, 50, 60, 61, 300,
                                    421 };
    const int status = cut_anyhow(rep, x, one, 1, "even cuts and token recurrence");
    return status ? status : cut_at(rep, x, one, 12, fine, "all tokens dropped");
}

static int every_cut(struct kcp_report *rep)
{
    return each(rep, (struct batch){ .R = 1, .oracle = 1 }, against_tokens);
}
KCP_CHECK(check_15_every_cut) = { "15_scan", "every_cut",
    "on 1 to 12 ranks with any cuts, masks, forms and walks, outputs and "
    "gradients agree with the recurrence to 1e-12, and bytes equal the formula",
    every_cut };

static int canonical(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int walk = KCP_AUTO; walk <= KCP_BLELLOCH && !status; walk++)
        status = each(rep, (struct batch){ .R = 1, .L = 48, .walk = walk },
                      cut_canonically);
    return status;
}
KCP_CHECK(check_15_canonical) = { "15_scan", "canonical",
    "canonical segments give equal bits for R = 1, 2, 3, 4 and 8 and for each "
    "walk", canonical };

static int other_walk(struct kcp_report *rep, struct batch x, const struct batch *one)
{
    int status = hold(rep, x, one, -1, "a second run");
    x.walk = KCP_BLELLOCH;
    status = status ? status : hold(rep, x, one, 1e-13, "scan against sequential");
    x.walk = KCP_AUTO; x.R = 3;
    return status ? status : hold(rep, x, one, 1e-13, "auto on three ranks");
}

static int walks(struct kcp_report *rep)
{
    return each(rep, (struct batch){ .R = 1, .walk = KCP_SEQUENTIAL }, other_walk);
}
KCP_CHECK(check_15_walks) = { "15_scan", "walks",
    "a second run gives equal bits, and the scan agrees with the sequential form "
    "to 1e-13", walks };

/* Returns the loss sum o do + sum ht dht + sum ot dot. */
static double loss(struct batch *x)
{
    struct kcp_comm comm = { .R = 1 };
    struct kcp_scan a = call(x, &comm);
    static const int of[][2] = { { O, DO }, { HT, DHT }, { OT, DOT } };
    double sum = 0;
    if (x->oracle ? ref_scan_step(&a) : ref_scan(&a))
        return NAN;
    for (int j = 0; j < 3; j++)
        for (int e = 0; e < out_size[of[j][0]]; e++)
            sum += x->out[of[j][0]][e] * x->in[of[j][1]][e];
    return sum;
}

static int some_slopes(struct kcp_report *rep, struct batch x, const struct batch *one)
{
    static const int of[] = { Q, KEY, VAL, SPIKE, ABASE, BBASE, WA, WB, H0, O0 };
    static const int grad[] = { DQ, DK, DV, DSPIKE, DABASE, DBBASE, DWA, DWB, DH0,
                                DO0 };
    struct stream s = stream_of(15, "slopes");
    if (outputs_add(x.out, out_size, OUTPUTS)) return KCP_NO_MEMORY;
    x.plan = one->plan; x.sums = NULL;
    for (int j = 0; j < 10; j++) {
        const int n = in_size[of[j]];
        double r = 0;
        for (int e = 0; e < n; e++)
            r += one->out[grad[j]][e] * one->out[grad[j]][e];
        r = sqrt(r / n);
        for (int i = 0; i < (x.oracle ? 12 : 4); i++) {
            const int e = (int)(uniform(&s) * n);
            const double is = one->out[grad[j]][e];
            const double by = slope(loss, &x, &x.in[of[j]][e]);
            /* The loss is not polynomial in inputs of sigma. */
            const double tol = of[j] >= SPIKE && of[j] <= WB ? 1e-6 : 1e-9;
            EXPECT(rep, fabs(is - by) <= tol * fmax(fmax(r, fabs(by)), 1e-3),
                   "%s[%d] is %.12g, finite difference %.12g", out_name[grad[j]], e, is,
                   by);
        }
    }
    x.plan = NULL;
    drop(&x);
    return KCP_OK;
}

static int differences(struct kcp_report *rep)
{
    const int status = each(rep, (struct batch){ .R = 1, .oracle = 1 }, some_slopes);
    return status ? status : each(rep, (struct batch){ .R = 1, .walk = KCP_BLELLOCH },
                                  some_slopes);
}
KCP_CHECK(check_15_differences) = { "15_scan", "differences",
    "all gradients, also of W_alpha, w_beta and the bases, agree with finite "
    "differences of the loss, by tokens and by scan", differences };

/* ---- without masks Spike-KDA is KDA with g = log alpha and scale 1; by the chain rule
 *      dalpha_base = dg (1 - alpha)      dbeta_base = dbeta beta (1 - beta) */
static int kda_of(const struct batch *x, double *g, double *beta)
{
    for (int64_t t = 0; t < T; t++)
        for (int n = 0; n < HV; n++) {
            const double *spike = x->in[SPIKE] + (t * HV + n) * D;
            double b = x->in[BBASE][t * HV + n];
            for (int d = 0; d < D; d++) b += x->in[WB][n * D + d] * spike[d];
            beta[t * HV + n] = sigmoid(b);
            for (int i = 0; i < K; i++) {
                double y = x->in[ABASE][(t * HV + n) * K + i];
                for (int d = 0; d < D; d++)
                    y += x->in[WA][(n * K + i) * D + d] * spike[d];
                g[(t * HV + n) * K + i] = -log1p(exp(-y));
            }
        }
    return KCP_OK;
}

static int is_kda(struct kcp_report *rep)
{
    struct batch x = { .walk = KCP_BLELLOCH, .R = 3, .no_masks = 1 }, y;
    char why[160];
    int worst = 0, status = draw(&x);
    status = status ? status : go(&x, why);
    double *g = malloc(sizeof *g * 2 * (KEYS + T * HV)), *beta = g + 2 * KEYS;
    double *dg = g + KEYS, *dbeta = beta + T * HV;
    kda_of(&x, g, beta);
    y = x;
    for (int j = 0; j < OUTPUTS; j++) {
        y.out[j] = malloc(sizeof(double) * out_size[j]);
        memcpy(y.out[j], x.out[j], sizeof(double) * out_size[j]);
    }
    struct kcp_step a = { .T = T, .N = N, .H = H, .HV = HV, .K = K, .V = V, .KG = K,
        .scale = 1, .cu_seqlens = cu, .q = x.in[Q], .k = x.in[KEY], .v = x.in[VAL],
        .g = g, .beta = beta, .h0 = x.in[H0], .o = y.out[O], .ht = y.out[HT],
        .dht = x.in[DHT], .dq = y.out[DQ], .dk = y.out[DK], .dv = y.out[DV], .dg = dg,
        .dbeta = dbeta, .dh0 = y.out[DH0] };
    /* do_, plus dot at the last token of each sequence */
    double *of_last = malloc(sizeof(double) * VALUES);
    memcpy(of_last, x.in[DO], sizeof(double) * VALUES);
    for (int n = 0; n < N; n++)
        for (int e = 0; e < HV * V && cu[n] < cu[n + 1]; e++)
            of_last[(cu[n + 1] - 1) * HV * V + e] += x.in[DOT][n * HV * V + e];
    a.do_ = of_last;
    status = status ? status : ref_step(&a);
    a.pass = KCP_BACKWARD;
    status = status ? status : ref_step(&a);
    for (int e = 0; e < KEYS; e++) y.out[DABASE][e] = dg[e] * -expm1(g[e]);
    for (int e = 0; e < T * HV; e++)
        y.out[DBBASE][e] = dbeta[e] * beta[e] * (1 - beta[e]);
    const double err = status ? NAN : apart(&x, &y, &worst);
    EXPECT(rep, err <= 1e-12, "%s differs from chapter 01: %.2g", out_name[worst], err);
    y.plan = NULL; y.sums = NULL;
    drop(&y);
    drop(&x);
    drop_inputs(&x);
    free(g);
    free(of_last);
    return status;
}
KCP_CHECK(check_15_is_kda) = { "15_scan", "is_kda",
    "without masks the scan on 3 ranks equals chapter 01 with g = log alpha and "
    "scale 1", is_kda };

/* ---- memory of a scan, measured whenever two maps are composed */
#if defined __has_feature
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif
#if defined __SANITIZE_ADDRESS__ || defined SANITIZED
size_t __sanitizer_get_current_allocated_bytes(void);
static size_t in_use(void) { return __sanitizer_get_current_allocated_bytes(); }
#else
static size_t in_use(void)
{
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}
#endif

static size_t most_in_use;

static int compose_and_measure(int HV_, int K_, int V_, const void *b, const void *a,
                               int backward, int a_first, void *out,
                               struct CUstream_st *stream)
{
    const size_t n = in_use();
    most_in_use = n > most_in_use ? n : most_in_use;
    return ref_mapops.compose(HV_, K_, V_, b, a, backward, a_first, out, stream);
}

/* Returns the bytes that a forward of `tokens` tokens allocates; -1: error. */
static long scratch(int64_t tokens, long *maps)
{
    const struct kcp_mapops measuring = { "measuring", 8, ref_mapops.apply,
                                          compose_and_measure, ref_mapops.copy, NULL,
                                          0 };
    const int64_t ends[2] = { 0, tokens };
    struct kcp_comm comm = { .R = 1 };
    struct kcp_plan *plan;
    struct made_call m;
    if (kcp_plan_make(&plan, 1, ends, 1, NULL, 0, 64, 0, NULL)) return -1;
    made_call(&m, kcp_stage_find("15"), KCP_KDA, KCP_FORWARD, plan, &comm);
    m.a.scan.ops = &measuring;
    m.a.scan.walk = KCP_BLELLOCH;
    *maps = 8L * 64 * m.a.call.HV * m.a.call.K * (m.a.call.K + m.a.call.V);
    const size_t before = most_in_use = in_use();
    const int status = ref_scan(&m.a.scan);
    made_free(&m);
    kcp_plan_free(plan);
    return status ? -1 : (long)(most_in_use - before);
}

static int memory(struct kcp_report *rep)
{
    long maps = 0;
    const long few = scratch(256, &maps), many = scratch(2048, &maps);
    EXPECT(rep, few >= maps && few <= 2 * maps + 4096, "T = 256: %ld bytes, C maps "
           "have %ld", few, maps);
    EXPECT(rep, many <= few + 256, "T = 256: %ld bytes, T = 2048: %ld", few, many);
    return KCP_OK;
}
KCP_CHECK(check_15_memory) = { "15_scan", "memory",
    "errata 25: the scratch memory of forward holds C maps and states for any "
    "number of tokens", memory };
