/* bound_gpu.c -- checks that a GPU's bounds on |M| equal the reference's or are above.
 *
 * Book: chapter 20.  Checked by: itself, against ref/20_bound.c on the same inputs.
 * Next: ../../cuda/host/bound.cu. */
#include "core/narrowing.h"
#include "ref.h"
#include "tests/judge/judge.h"
#include "base/random.h"
#include "wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BT = 150, BH = 2, BHV = 4, BK = 80, BC = 16, NS = 3, TRIALS = 48 };

struct inputs {
    double k[BT * BH * BK], g[BT * BHV * BK], beta[BT * BHV], A[BHV], dt[BHV * BK];
};

/* Rounds inputs to the storage type, so that GPU and reference have equal inputs. */
static void as_stored(double *x, int64_t n, size_t bytes)
{
    void *coded = malloc((size_t)n * bytes);
    if (!coded)
        return;
    encode(coded, x, n, bytes);
    decode(x, coded, n, bytes);
    free(coded);
}

static void draw(struct inputs *a, const struct kcp_forward *f, size_t bytes,
                 uint64_t *seed)
{
    const double strength = exp2(-9 * random_uniform(seed));
    for (int i = 0; i < BT * BH * BK; i++)
        a->k[i] = random_normal(seed) / sqrt(BK);
    for (int i = 0; i < BT * BHV * BK; i++) {
        const double x = random_normal(seed);
        a->g[i] = f->gate == KCP_GATE_RAW ? -strength * fabs(x) : x + log2(strength);
    }
    for (int i = 0; i < BT * BHV; i++)
        a->beta[i] = f->beta_form == KCP_BETA_RAW ? 2 * random_uniform(seed)
                                                 : 2 * random_normal(seed);
    for (int i = 0; i < BHV; i++)
        a->A[i] = 0.3 * random_normal(seed);
    for (int i = 0; i < BHV * BK; i++)
        a->dt[i] = 0.3 * random_normal(seed);
    as_stored(a->k, BT * BH * BK, bytes);
    as_stored(a->g, BT * BHV * BK, bytes);
    as_stored(a->beta, BT * BHV, bytes);
    as_stored(a->A, BHV, 4);
    as_stored(a->dt, BHV * BK, 4);
}

/* Runs the reference's front end and bound. */
static int by_reference(const struct inputs *a, const struct kcp_forward *f,
                        const int *cu, const int *cn, const int *sc, double *bound)
{
    const size_t wide = (size_t)BT * BHV * BK;
    double *got = calloc(6 * wide, sizeof *got);
    if (!got)
        return KCP_NO_MEMORY;
    struct kcp_gate g = { .cu = cu, .cn = cn, .sc = sc, .q_raw = a->k, .k_raw = a->k,
        .g_raw = a->g, .beta_raw = a->beta, .A_log = f->A_log ? a->A : NULL,
        .dt_bias = f->dt_bias ? a->dt : NULL, .q = got, .k = got + wide,
        .rstd_q = got + 2 * wide, .rstd_k = got + 2 * wide + BT * BH,
        .g = got + 3 * wide, .G = got + 4 * wide, .beta = got + 5 * wide };
    memcpy(&g, f, sizeof(struct kcp_call));
    g.pass = KCP_FORWARD;
    const int status = ref_gate(&g);
    if (!status)
        kcp_decay_bound((const struct kcp_call *)f, cu, g.k, g.G, g.beta, bound);
    free(got);
    return status;
}

static const void *up(const struct memory *m, const double *x, int64_t n, size_t bytes)
{
    void *coded = malloc((size_t)n * bytes), *on = m->alloc((size_t)n * bytes);
    if (coded && on) {
        encode(coded, x, n, bytes);
        m->copy(on, coded, (size_t)n * bytes);
    }
    free(coded);
    return on;
}

static const void *up_ints(const struct memory *m, const int *x, int n)
{
    void *on = m->alloc(sizeof *x * (size_t)n);
    if (on)
        m->copy(on, x, sizeof *x * (size_t)n);
    return on;
}

static int by_gpu(const struct memory *m, const struct inputs *a,
                  const struct kcp_forward *f, size_t bytes, const int *cu,
                  const int *cn, const int *sc, double *bound)
{
    struct kcp_forward on = *f;
    const void *held[9] = {
        on.k_raw = up(m, a->k, BT * BH * BK, bytes),
        on.g_raw = up(m, a->g, (int64_t)BT * BHV * f->KG, bytes),
        on.beta_raw = up(m, a->beta, BT * BHV, bytes), up(m, a->A, BHV, 4),
        up(m, a->dt, (int64_t)BHV * f->KG, 4), on.cu = up_ints(m, cu, NS + 1),
        on.cn = up_ints(m, cn, NS + 1), on.sc = up_ints(m, sc, f->NC),
        m->alloc(sizeof(double) * (size_t)(f->NC * BHV + NS)) };
    on.A_log = f->A_log ? held[3] : NULL;
    on.dt_bias = f->dt_bias ? held[4] : NULL;
    on.work = (void *)held[8];
    on.work_bytes = sizeof(double) * (size_t)(f->NC * BHV + NS);
    int status = KCP_NO_MEMORY;
    if (on.work)
        status = cuda_decay_bound(&on, bytes == 2 ? KCP_BF16 : KCP_F32, bound);
    on.work_bytes--;
    if (!status && cuda_decay_bound(&on, KCP_F32, bound) != KCP_BAD)
        status = KCP_BAD;                       /* work too short: refused */
    for (int i = 0; i < 9; i++)
        if (held[i]) m->free((void *)held[i]);
    return status;
}

static int bound_gpu(struct kcp_report *rep)
{
    static const int cu[NS + 1] = { 0, 33, 33, BT };
    static const int cn[NS + 1] = { 0, 3, 3, 11 };
    static const int sc[11] = { 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2 };
    const struct memory *m = device_memory();
    uint64_t seed = 11;
    if (!m || !&cuda_decay_bound) {
        printf("  (no GPU: not run)\n");
        return KCP_NA;
    }
    struct inputs *a = malloc(sizeof *a);
    int alive = 0, dead = 0;
    for (int i = 0; i < TRIALS && a; i++) {
        struct kcp_forward f = { .T = BT, .N = NS, .NS = NS, .NC = 11, .R = 1, .H = BH,
            .HV = BHV, .K = BK, .V = 16, .C = BC, .KG = i % 3 ? BK : 1,
            .model = i % 3 ? KCP_KDA : KCP_GDN, .gate = (enum kcp_gate_form)(i / 2 % 3),
            .beta_form = (enum kcp_beta_form)(i / 6 % 3), .l2norm = i / 4 % 2,
            .lower_bound = -5 };
        const size_t bytes = i % 2 ? 2 : 4;
        double want[NS], got[NS] = { NAN, NAN, NAN };
        f.A_log = f.gate != KCP_GATE_RAW ? a->A : NULL;
        f.dt_bias = f.gate != KCP_GATE_RAW ? a->dt : NULL;
        draw(a, &f, bytes, &seed);
        const int bad = by_reference(a, &f, cu, cn, sc, want) ||
                        by_gpu(m, a, &f, bytes, cu, cn, sc, got);
        EXPECT(rep, !bad, "trial %d: not bounded", i);
        for (int s = 0; s < NS && !bad; s++) {
            EXPECT(rep, got[s] >= want[s] * (1 - 1e-12), "trial %d, segment %d: %.9g "
                   "is below %.9g", i, s, got[s], want[s]);
            EXPECT(rep, got[s] <= want[s] * (1 + 4e-3) + 1e-300, "trial %d, segment "
                   "%d: %.9g, the reference has %.9g", i, s, got[s], want[s]);
            alive += want[s] > 1e-6;
            dead += want[s] < 1e-12;
        }
    }
    EXPECT(rep, alive > TRIALS && dead > 0, "%d bounds are alive, %d are not",
           alive, dead);
    free(a);
    return KCP_OK;
}
KCP_CHECK(check_20_bound_gpu) = { "20_clusters", "gpu_bound",
    "bounds that a GPU computes from raw inputs agree with the reference's and "
    "are never below them", bound_gpu };
