/* checks.c -- checks Spike-KDA: gradients agree with finite differences, all cuts
 * agree, Spike-KDA without masks equals KDA, and a scan needs little memory.
 * Book: chapter 15.
 *
 * The batch has six sequences (two empty, one of one token), long runs of dropped
 * tokens, inputs h0, o0, dht and dot, two value heads per key head, and K != V. */
#include "tests/judge/trial.h"
#include "tests/made_call.h"
#include "ref/sigmoid.h"

#include <malloc.h>
#include <math.h>

#define SIZES "live kda H=2 HV=4 K=6 V=5 C=16 D=3 spike h0 dht seed=15 "
#define BATCH SIZES "blocks=2 lengths=260,0,1,69,91,0 "
#define SMALL SIZES "lengths=40,0,1,19,0 "

enum { KINDS = 4 };
static const char *const masks[KINDS] = { "masks=0", "masks=1", "masks=2", "masks=3" };

static int each_mask(struct kcp_report *rep, const char *words,
                     int (*check)(struct kcp_report *, const char *, const char *))
{
    int status = KCP_OK;
    for (int i = 0; i < KINDS && !status; i++) {
        char text[300];
        snprintf(text, sizeof text, "%s %s", words, masks[i]);
        status = check(rep, "15", text);
    }
    return status;
}

static int tree(struct kcp_report *rep) { return each_mask(rep, BATCH, cuts_agree); }
KCP_CHECK(check_15_walks) = { "15_scan", "walks",
    "on 1 to 12 ranks with any cuts, masks and exchange forms, outputs and gradients "
    "agree with the recurrence to 1e-12, and sent bytes equal the formula", tree };

static int canonical(struct kcp_report *rep)
{
    return each_mask(rep, BATCH "L=48", canonical_reference);
}
KCP_CHECK(check_15_canonical) = { "15_scan", "canonical",
    "canonical segments give equal bits for R = 1, 2, 3, 4, 7 and 8", canonical };

static int differences(struct kcp_report *rep)
{
    return each_mask(rep, SMALL, gradients_agree);
}
KCP_CHECK(check_15_differences) = { "15_scan", "differences",
    "gradients of all inputs, computed token by token or by the scan, agree with "
    "finite differences of the loss", differences };

/* ---- without masks Spike-KDA is KDA with g = log alpha and scale 1; by the chain rule
 *      dalpha_base = dg (1 - alpha)      dbeta_base = dbeta beta (1 - beta) */
static double *at(const struct tensor_set *b, const char *name)
{
    return tensor_find(b, name)->p;
}

/* Stores g, beta and cu_seqlens in b, and adds `dot`, the gradient of a sequence's last
 * output, to do_ of the sequence's last token. */
static void add_kda(struct tensor_set *b, const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    const int HV = c->HV, K = c->K, D = c->D, row = HV * c->V;
    double *g = tensor_add(b, "g", "T HV K", KCP_ACC, c)->p;
    double *beta = tensor_add(b, "beta", "T HV", KCP_ACC, c)->p;
    for (int64_t t = 0; t < c->T * HV; t++) {
        const double *spike = at(b, "spike") + t * D;
        const int64_t n = t % HV;
        double x = at(b, "beta_base")[t];
        for (int d = 0; d < D; d++) x += at(b, "w_beta")[n * D + d] * spike[d];
        beta[t] = sigmoid(x);
        for (int i = 0; i < K; i++) {
            double y = at(b, "alpha_base")[t * K + i];
            for (int d = 0; d < D; d++)
                y += at(b, "W_alpha")[(n * K + i) * D + d] * spike[d];
            g[t * K + i] = -log1p(exp(-y));
        }
    }
    for (int n = 0; n < c->N; n++)
        for (int e = 0; e < row && k->cu[n] < k->cu[n + 1]; e++)
            at(b, "do_")[(k->cu[n + 1] - 1) * row + e] += at(b, "dot")[n * row + e];
    memcpy(tensor_add(b, "cu_seqlens", "N+1", KCP_I64, c)->p, k->cu,
           sizeof *k->cu * (size_t)(c->N + 1));
}

static int is_kda(struct kcp_report *rep)
{
    static const char *const same[] = { "o", "ht", "dq", "dk", "dv", "dh0",
                                        "dalpha_base", "dbeta_base" };
    struct tensor_set spike = { .n = 0 }, kda = { .n = 0 };
    struct kcase k;
    char why[160];
    int status = case_parse(SMALL "masks=1 scale=1", &k, why, sizeof why);
    inputs_draw(&spike, &k, stage_find("15"), KCP_F64);
    tensor_set_copy(&kda, &spike);
    add_kda(&kda, &k);
    struct kcp_stage scan = *stage_find("15");
    scan.oracle = NULL;
    for (int pass = 0; pass < 2 && !status; pass++) {
        struct kcp_call c = k.call;
        c.pass = (enum kcp_pass)pass;
        status = pipeline_one_rank(&spike, &scan, &k, c.pass);
        if (!status) status = reference_run(&kda, stage_find("01"), &c);
    }
    EXPECT(rep, !status, "status %d", status);
    if (!status) {
        double *a = tensor_add(&kda, "dalpha_base", "T HV K", KCP_ACC, &k.call)->p;
        double *b = tensor_add(&kda, "dbeta_base", "T HV", KCP_ACC, &k.call)->p;
        const double *g = at(&kda, "g"), *beta = at(&kda, "beta");
        for (int64_t e = 0; e < tensor_find(&kda, "g")->n; e++)
            a[e] = at(&kda, "dg")[e] * -expm1(g[e]);
        for (int64_t e = 0; e < tensor_find(&kda, "beta")->n; e++)
            b[e] = at(&kda, "dbeta")[e] * beta[e] * (1 - beta[e]);
    }
    for (size_t i = 0; i < sizeof same / sizeof *same && !status; i++) {
        const double err = tensors_apart(&spike, &kda, same[i]);
        EXPECT(rep, err <= 1e-12,
               "%s differs from that of chapter 01 by %.2g", same[i], err);
    }
    tensor_set_free(&spike);
    tensor_set_free(&kda);
    return status;
}
KCP_CHECK(check_15_is_kda) = { "15_scan", "is_kda",
    "without masks, outputs and gradients equal those of chapter 01 with "
    "g = log alpha and scale 1", is_kda };

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

/* Returns the bytes that a forward of `tokens` tokens allocates, or -1 on failure. */
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
    EXPECT(rep, few >= maps && few <= 2 * maps + 4096, "T = 256: %ld bytes allocated, "
           "expected 1 to 2 times the %ld bytes of C maps", few, maps);
    EXPECT(rep, many <= few + 256, "T = 2048: %ld bytes, but T = 256: %ld", many, few);
    return KCP_OK;
}
KCP_CHECK(check_15_memory) = { "15_scan", "memory",
    "errata 25: forward's scratch memory holds C maps and some states, regardless of "
    "the number of tokens", memory };
