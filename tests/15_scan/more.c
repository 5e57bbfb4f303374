/* more.c -- checks Spike-KDA on sequences in pieces, with walk auto, and against KDA.
 *
 * Book: chapter 15.  Checked by: itself, it can fail.  Next: tests/15_scan/memory.c.
 */
#include "run.h"
#include "ref/sigmoid.h"

/* ---- a sequence in pieces: ht and ot of one piece are h0 and o0 of the next */
/* Runs the piece of tokens [t0, t1). The arrays in `state` are h0, o0, ht (backward:
 * dh0), ot (backward: do0), dht and dot. */
static int piece(const struct batch *x, int pass, int64_t t0, int64_t t1,
                 double *state[6])
{
    struct kcp_plan *p = NULL;
    struct kcp_comm comm = { .R = 1 };
    const int64_t ends[2] = { 0, t1 - t0 };
    if (kcp_plan_make(&p, 1, ends, 1, NULL, 0, C, 0, NULL)) return KCP_NO_MEMORY;
    struct batch y = *x;
    y.R = 1; y.plan = p;
    struct kcp_scan a = call(&y, &comm);
    a.N = 1;
    a.T = t1 - t0;
    a.pass = pass;
    const int64_t qk = t0 * H * K, n = t0 * HV;
    a.q = x->in[Q] + qk;
    a.k = x->in[KEY] + qk;
    a.v = x->in[VAL] + n * V;
    a.spike = x->in[SPIKE] + n * D;
    a.alpha_base = x->in[ABASE] + n * K;
    a.beta_base = x->in[BBASE] + n;
    a.drop = x->drop + t0;
    a.active = x->active + n;
    a.o = x->out[O] + n * V;
    a.do_ = x->in[DO] + n * V;
    a.dq = x->out[DQ] + qk;
    a.dk = x->out[DK] + qk;
    a.dv = x->out[DV] + n * V;
    a.dspike = x->out[DSPIKE] + n * D;
    a.dalpha_base = x->out[DABASE] + n * K;
    a.dbeta_base = x->out[DBBASE] + n;
    a.h0 = state[0]; a.o0 = state[1]; a.ht = a.dh0 = state[2]; a.ot = a.do0 = state[3];
    a.dht = state[4]; a.dot = state[5];
    const int status = ref_scan(&a);
    kcp_plan_free(p);
    return status;
}

/* Runs sequence 4 (tokens 330 to 420) forward and backward in pieces of 1, 30 and 60
 * tokens, and compares the results with a run without pieces. */
static int stream_one(struct kcp_report *rep, enum kcp_walk walk)
{
    enum { s = 4, kv = HV * K * V, row = HV * V };
    static const int64_t at[] = { 330, 331, 361, 421 };
    struct batch x = { .walk = walk, .R = 1, .masks = 3 }, y;
    char why[160];
    int worst = 0, status = draw(&x);
    status = status ? status : go(&x, why);
    y = x; y.sums = NULL;
    double *S = calloc(8 * (kv + row), sizeof *S), *O_ = S + 8 * kv;
    double (*sums)[WAS + WBS] = calloc(1, sizeof *sums);
    for (int j = 0; j < OUTPUTS; j++) {
        y.out[j] = malloc(sizeof(double) * out_size[j]);
        memcpy(y.out[j], x.out[j], sizeof(double) * out_size[j]);
    }
    y.sums = sums;
    memcpy(S, x.in[H0] + s * kv, sizeof *S * kv);
    memcpy(O_, x.in[O0] + s * row, sizeof *S * row);
    for (int j = 0; j < 3 && !status; j++) {
        double *state[6] = { S + j * kv, O_ + j * row, S + (j + 1) * kv,
                             O_ + (j + 1) * row };
        status = piece(&y, KCP_FORWARD, at[j], at[j + 1], state);
    }
    memcpy(y.out[HT] + s * kv, S + 3 * kv, sizeof *S * kv);
    memcpy(y.out[OT] + s * row, O_ + 3 * row, sizeof *S * row);
    memcpy(S + 7 * kv, x.in[DHT] + s * kv, sizeof *S * kv);
    memcpy(O_ + 7 * row, x.in[DOT] + s * row, sizeof *S * row);
    for (int j = 2; j >= 0 && !status; j--) {
        double *state[6] = { S + j * kv, O_ + j * row, S + (j + 4) * kv,
                             O_ + (j + 4) * row, S + (j + 5) * kv, O_ + (j + 5) * row };
        status = piece(&y, KCP_BACKWARD, at[j], at[j + 1], state);
    }
    memcpy(y.out[DH0] + s * kv, S + 4 * kv, sizeof *S * kv);
    memcpy(y.out[DO0] + s * row, O_ + 4 * row, sizeof *S * row);
    const double err = status ? NAN : apart(&y, &x, &worst);
    EXPECT(rep, err <= (walk == KCP_SEQUENTIAL ? -1 : 1e-13),
           "walk %d: %s differs by %.2g", walk, out_name[worst], err);
    y.plan = NULL;
    drop(&y);
    drop(&x);
    drop_inputs(&x);
    free(S);
    return status;
}

static int streaming(struct kcp_report *rep)
{
    const int status = stream_one(rep, KCP_SEQUENTIAL);
    return status ? status : stream_one(rep, KCP_BLELLOCH);
}
KCP_CHECK(check_15_streaming) = { "15_scan", "streaming",
    "a sequence in three calls gives the outputs and gradients of one call",
    streaming };

/* ---- auto: the number of compositions shows which form auto chose */
static int composed;

static int counts(int HV_, int K_, int V_, const void *b, const void *a, int backward,
                  int a_first, void *out, struct CUstream_st *stream)
{
    composed++;
    return ref_mapops.compose(HV_, K_, V_, b, a, backward, a_first, out, stream);
}

/* Returns how often maps are composed for a sequence of `tokens` tokens; -1: error. */
static int compositions(struct batch *x, enum kcp_walk walk, int64_t tokens)
{
    double *rest = calloc(HV * (K + 1) * V, sizeof *rest);
    double *state[6] = { x->in[H0], x->in[O0], rest, rest + HV * K * V };
    x->walk = walk; composed = 0;
    const int status = rest ? piece(x, KCP_FORWARD, 0, tokens, state) : KCP_NO_MEMORY;
    free(rest);
    return status ? -1 : composed;
}

static int by_length(struct kcp_report *rep)
{
    const struct kcp_mapops counting = { "counting", 8, ref_mapops.apply, counts,
                                         ref_mapops.copy, NULL, 0 };
    struct batch x = { .R = 1, .ops = &counting, .masks = 2 };
    int status = draw(&x), turn = 0, turns = 0;
    status = status ? status : outputs_add(x.out, out_size, OUTPUTS);
    for (int n = 1; n <= 80 && !status; n++) {
        const int by_scan = compositions(&x, KCP_BLELLOCH, n);
        const int by_auto = compositions(&x, KCP_AUTO, n);
        EXPECT(rep, n < 2 || by_scan >= n - (n + C - 1) / C, "scan of %d: %d", n,
               by_scan);
        EXPECT(rep, !compositions(&x, KCP_SEQUENTIAL, n), "sequential of %d: maps", n);
        EXPECT(rep, by_auto == 0 || by_auto == by_scan, "auto of %d: %d", n, by_auto);
        if (n > 1 && (by_auto > 0) != turn) {
            turn = by_auto > 0;
            turns++;
        }
    }
    EXPECT(rep, turns == 1 && turn, "auto changes form %d times for T = 2..80", turns);
    drop(&x);
    drop_inputs(&x);
    return status;
}
KCP_CHECK(check_15_auto) = { "15_scan", "auto",
    "auto: short segments run sequentially, long ones by the scan", by_length };

/* ---- without masks Spike-KDA is KDA with g = log alpha, scale 1; through sigma
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
    double *of_last = malloc(sizeof(double) * VALUES);     /* do_ plus dot */
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
    "without masks, on 3 ranks: equals chapter 01 with g = log alpha, scale 1",
    is_kda };
