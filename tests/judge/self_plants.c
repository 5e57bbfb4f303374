/* self_plants.c -- the judge judged: mistakes that its lists of cases must see.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself: the same without
 * the mistake passes.  Next: self_lists.c.
 *
 * Each was once planted in a kernel and passed. Here they are put around the
 * references, so that no GPU is needed: a state that is not carried from chunk to chunk
 * at one size and model alone, maps composed wrongly, kept maps halved, an inverse by a
 * series in half precision, options that are ignored.
 */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* At which size and model the mistake is. K 0: at any. */
static struct { int K, V, model; } at;

static int there(const struct kcp_call *c)
{
    return !at.K || (c->K == at.K && c->V == at.V && (int)c->model == at.model);
}

/* ---- the state is not carried: every chunk is a stretch of its own */
static int alone_grid[2][2];
static const int one_chunk[2] = { 0, 1 }, first_stretch[1] = { 0 };

static int uncarried_04(void *args)
{
    const struct kcp_chunk *a = args;
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    const int *cu = a->cu, *cn = a->cn;
    int status = KCP_OK;
    if (!there(args)) return ref_chunk(args);
    for (int s = 0; s < a->NS; s++)
        for (int c = cn[s]; c < cn[s + 1] && !status; c++) {
            struct kcp_chunk x = *a;
            int *grid = alone_grid[0];
            grid[0] = cu[s] + (c - cn[s]) * a->C;
            grid[1] = c + 1 < cn[s + 1] ? grid[0] + a->C : cu[s + 1];
            x.NS = x.NC = 1;
            x.cu = grid;
            x.cn = one_chunk;
            x.sc = first_stretch;
            x.h = (double *)a->h + c * KV;
            x.h_out = (double *)a->h_out + s * KV;
            x.h_in = c == cn[s] && a->h_in ? (const double *)a->h_in + s * KV : NULL;
            status = ref_chunk(&x);
        }
    return status;
}

static int uncarried_05(void *args)
{
    struct kcp_affine *a = args, x = *a;
    int *cu = malloc(sizeof *cu * (size_t)(a->NS + 1));
    const int *old = a->cu, *cn = a->cn;
    int status = there(args) && cu ? KCP_OK : ref_affine(args);
    const int64_t map = (int64_t)a->HV * a->K * (a->V + a->K);
    for (int s = 0; s < a->NS && there(args) && cu && !status; s++) {
        cu[0] = old[s] + (cn[s + 1] - cn[s] - 1) * a->C;
        cu[1] = old[s + 1];
        x.NS = x.NC = 1;
        x.cu = cu;
        x.cn = one_chunk;
        x.sc = first_stretch;
        x.want = (const int *)a->want + s;
        x.h_start = NULL;
        x.map = (double *)a->map + s * map;
        status = ref_affine(&x);
    }
    free(cu);
    return status;
}

static int uncarried_09(void *args)
{
    const struct kcp_chunk_backward *a = args;
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    const int *cu = a->cu, *cn = a->cn;
    int status = KCP_OK;
    if (!there(args)) return ref_chunk_backward(args);
    for (int s = 0; s < a->NS; s++)
        for (int c = cn[s + 1] - 1; c >= cn[s] && !status; c--) {
            struct kcp_chunk_backward x = *a;
            const int last = c == cn[s + 1] - 1;
            int *grid = alone_grid[1];
            grid[0] = cu[s] + (c - cn[s]) * a->C;
            grid[1] = last ? cu[s + 1] : grid[0] + a->C;
            x.NS = x.NC = 1;
            x.cu = grid;
            x.cn = one_chunk;
            x.sc = first_stretch;
            x.dh = (double *)a->dh + c * KV;
            x.dh_in = (double *)a->dh_in + s * KV;
            x.dh_out = last && a->dh_out ? (const double *)a->dh_out + s * KV : NULL;
            status = ref_chunk_backward(&x);
        }
    return status;
}

static int uncarried_11(void *args)
{
    struct kcp_merge_backward *a = args, x = *a;
    int cu[2], status = KCP_OK;
    const int *old = a->cu, *cn = a->cn;
    const int64_t map = (int64_t)a->HV * a->K * (a->V + a->K);
    if (!there(args)) return ref_merge_backward(args);
    for (int s = 0; s < a->NS && !status; s++) {
        cu[0] = old[s];
        cu[1] = cn[s + 1] - cn[s] > 1 ? cu[0] + a->C : old[s + 1];
        x.NS = x.NC = 1;
        x.cu = cu;
        x.cn = one_chunk;
        x.sc = first_stretch;
        x.want = (const int *)a->want + s;
        x.dh_end = NULL;
        x.dmap = (double *)a->dmap + s * map;
        status = ref_merge_backward(&x);
    }
    return status;
}

/* ---- what crosses a cut */
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

static int wrong_ops(struct kcp_call *c, struct kcp_mapops *ops)
{
    *ops = ref_mapops;
    ops->compose = compose_wrong;
    c->ops = ops;
    return KCP_OK;
}

static int composed_08(void *args)
{
    struct kcp_forward a = *(struct kcp_forward *)args;
    struct kcp_mapops ops;
    wrong_ops((struct kcp_call *)&a, &ops);
    return ref_forward(&a);
}

static int composed_13(void *args)
{
    struct kcp_backward a = *(struct kcp_backward *)args;
    struct kcp_mapops ops;
    wrong_ops((struct kcp_call *)&a, &ops);
    return ref_backward(&a);
}

/* Forward's gathered maps, of which backward takes M, are half as large. */
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
    struct kcp_chunk_backward a = *(struct kcp_chunk_backward *)args;
    a.part = KCP_LOCAL | KCP_REVERSE;
    return ref_chunk_backward(&a);
}

static int wants_h_in(void *args)
{
    return ((struct kcp_chunk *)args)->h_in ? ref_chunk(args) : KCP_BAD;
}

static int wants_ops(void *args)
{
    return ((struct kcp_forward *)args)->ops ? ref_forward(args) : KCP_BAD;
}

/* ---- 03 by a Neumann series: (I - L)(I + L^2)(I + L^4)..., every product in fp16 */
static double half(double x)
{
    int e;
    frexp(x, &e);
    const double step = ldexp(1, e - 11 > -24 ? e - 11 : -24);
    const double y = rint(x / step) * step;
    return fabs(y) > 65504 ? copysign(INFINITY, y) : y;
}

static void multiply(int n, const double *a, const double *b, double *out)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double x = 0;
            for (int k = 0; k < n; k++) x += a[i * n + k] * b[k * n + j];
            out[i * n + j] = half(x);
        }
}

/* A [n][n] becomes what the series makes of I + L, whose inverse it is. */
static void series(int n, double *A)
{
    const size_t size = sizeof(double) * (size_t)(n * n);
    double *L = malloc(size), *P = malloc(size), *X = malloc(size), *Y = malloc(size);
    for (int i = 0; i < n; i++)                       /* I + L by substitution */
        for (int j = 0; j < n; j++) {
            double x = i == j;
            for (int k = j; k < i; k++) x -= A[i * n + k] * (k >= j ? L[k * n + j] : 0);
            L[i * n + j] = i >= j ? x : 0;
        }
    for (int i = 0; i < n * n; i++) {
        P[i] = half(-(L[i] - (i % (n + 1) == 0)));
        X[i] = P[i] + (i % (n + 1) == 0);
    }
    for (int power = 2; power < n; power *= 2) {
        multiply(n, P, P, Y);
        memcpy(P, Y, size);
        for (int i = 0; i < n; i++) Y[i * (n + 1)] += 1;
        multiply(n, X, Y, L);
        memcpy(X, L, size);
    }
    memcpy(A, X, size);
    free(L);
    free(P);
    free(X);
    free(Y);
}

static double *decoded(const void *from, int64_t n, size_t width)
{
    double *x = malloc(8 * (size_t)n + 8);
    decode(x, from, n, width);
    return x;
}

static int neumann(void *args)
{
    struct kcp_wy *a = args, x = *a;
    const int64_t TV = a->T * a->HV, TH = a->T * a->H, C = a->C;
    const int kda = a->model == KCP_KDA;
    double *in[] = { decoded(a->q, TH * a->K, 2), decoded(a->k, TH * a->K, 2),
                     decoded(a->v, TV * a->V, 2), decoded(a->G, TV * a->KG, 4),
                     decoded(a->beta, TV, 4) };
    void *const to[] = { a->Aqk, a->A, a->u, a->w, a->kg, a->qg };
    const int64_t size[] = { TV * C, TV * C, TV * a->V, TV * a->K, kda ? TV * a->K : 0,
                             kda ? TV * a->K : 0 };
    double *out[6];
    for (int i = 0; i < 6; i++) out[i] = calloc((size_t)size[i] + 1, 8);
    x.q = in[0];
    x.k = in[1];
    x.v = in[2];
    x.G = in[3];
    x.beta = in[4];
    x.Aqk = out[0];
    x.A = out[1];
    x.u = out[2];
    x.w = out[3];
    x.kg = kda ? out[4] : NULL;
    x.qg = kda ? out[5] : NULL;
    const int status = ref_wy(&x), *cu = a->cu;
    for (int s = 0; s < a->NS; s++)
        for (int64_t t0 = cu[s]; t0 < cu[s + 1]; t0 += C)
            for (int h = 0; h < a->HV; h++) {
                const int n = (int)fmin(C, cu[s + 1] - t0);
                double *A = calloc((size_t)(n * n), 8);
                for (int i = 0; i < n; i++)
                    memcpy(A + i * n, out[1] + ((t0 + i) * a->HV + h) * C, 8u * n);
                series(n, A);
                for (int i = 0; i < n; i++) {
                    memcpy(out[1] + ((t0 + i) * a->HV + h) * C, A + i * n, 8u * n);
                    double *u = out[2] + ((t0 + i) * a->HV + h) * a->V;
                    for (int v = 0; v < a->V; v++) {
                        u[v] = 0;
                        for (int j = 0; j <= i; j++) {
                            const int64_t row = (t0 + j) * a->HV + h;
                            u[v] += A[i * n + j] * in[4][row] * in[2][row * a->V + v];
                        }
                    }
                }
                free(A);
            }
    for (int i = 0; i < 6; i++) {
        for (int64_t j = 0; j < size[i]; j++)
            out[i][j] = to_storage(out[i][j], KCP_BF16);
        if (size[i]) encode(to[i], out[i], size[i], 2);
        free(out[i]);
    }
    for (int i = 0; i < 5; i++) free(in[i]);
    return status;
}

/* ---- seen? */

/* In how many of the cases is it rejected by values, or in words; ours alone: those of
 * the size and model where it is. */
static int seen(const char *stage, int (*run)(void *), enum kcp_storage storage,
                const struct kcase *list, int n, int first)
{
    const struct kcp_variant v = { stage, "planted", "", storage, KCP_HOST, "any", run,
                                   NULL };
    int count = 0;
    struct verdict t;
    for (int i = 0; i < n && !(first && count); i++) {
        if (!there(&list[i].call) && at.K) continue;
        judge_case(stage_find(stage), &v, &list[i], storage, &t);
        count += t.outcome == FAIL;
    }
    return count;
}

static int carried(struct kcp_report *rep)
{
    static const struct { const char *stage; int (*run)(void *); } plants[] = {
        { "04_chunk", uncarried_04 },          { "05_affine", uncarried_05 },
        { "09_chunk_backward", uncarried_09 }, { "11_merge_backward", uncarried_11 } };
    static const int sizes[][2] = { { 64, 64 }, { 128, 128 }, { 64, 128 },
                                    { 128, 64 } };
    for (int p = 0; p < 4; p++) {
        int n;
        const struct kcp_stage *s = stage_find(plants[p].stage);
        struct kcase *list = cases_anchors(s, 1, 1, 0, 0, &n);
        for (int i = 0; i < 4; i++)
            for (int m = 0; m < 2; m++) {
                at.K = sizes[i][0];
                at.V = sizes[i][1];
                at.model = m;
                EXPECT(rep, seen(s->name, plants[p].run, KCP_F64, list, n, 1),
                       "%s, %s K=%d V=%d: no state carried, and no case sees it",
                       s->name, model_name[m], at.K, at.V);
            }
        at.K = 0;
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_carried) = { "00_judge", "carried",
    "a state that is not carried from chunk to chunk is seen at each size and model",
    carried };

static int crossed(struct kcp_report *rep)
{
    static const struct { const char *stage; int (*run)(void *); } plants[] = {
        { "08_forward", composed_08 }, { "13_backward", composed_13 },
        { "13_backward", kept_halved } };
    for (int p = 0; p < 3; p++)
        for (int model = 0; model < 2; model++) {
            int n, kept = 0;
            struct kcase *list = cases_anchors(stage_find(plants[p].stage), 0, 1, 0, 0,
                                               &n);
            for (int i = 0; i < n; i++)
                if (list[i].call.R > 2 && (int)list[i].call.model == model)
                    list[kept++] = list[i];
            EXPECT(rep, seen(plants[p].stage, plants[p].run, KCP_F64, list, kept, 1),
                   "plant %d of %s, %s: what crosses is wrong, and no case sees it", p,
                   plants[p].stage, model_name[model]);
            free(list);
        }
    return KCP_OK;
}
KCP_CHECK(check_00_crossed) = { "00_judge", "crossed",
    "maps composed wrongly, and kept maps halved, are seen in each model", crossed };

static int left_out(struct kcp_report *rep)
{
    int n;
    struct kcase *list = cases_anchors(stage_find("09"), 0, 1, 0, 0, &n);
    EXPECT(rep, seen("09_chunk_backward", both_parts, KCP_F64, list, n, 1), "parts");
    free(list);
    list = cases_anchors(stage_find("04"), 0, 1, 0, 0, &n);
    EXPECT(rep, seen("04_chunk", wants_h_in, KCP_F64, list, n, 1), "no h_in");
    free(list);
    list = cases_anchors(stage_find("08"), 0, 1, 0, 0, &n);
    EXPECT(rep, seen("08_forward", wants_ops, KCP_F64, list, n, 1), "no ops");
    free(list);
    return KCP_OK;
}
KCP_CHECK(check_00_left_out) = { "00_judge", "left_out",
    "who ignores which part is asked, or needs states or ops that may be NULL, is seen",
    left_out };

static int alike(struct kcp_report *rep)
{
    int n, drawn, old = 0, m = 0;
    const struct kcp_stage *s = stage_find("03");
    struct kcase *list = cases_make(s, 0, 0, 1, 0, &drawn);
    for (int i = 0; i < drawn; i++)              /* what was there before alike keys */
        if (list[i].call.C == 64 && list[i].call.T < 400) list[old++] = list[i];
    if (old > 6) old = 6;
    EXPECT(rep, !seen(s->name, neumann, KCP_BF16, list, old, 0),
           "the series is to pass where keys are independent: it is a fair plant");
    free(list);
    list = cases_anchors(s, 0, 1, 0, 0, &n);
    for (int i = 0; i < n; i++)
        if (list[i].alike > 0) list[m++] = list[i];
    EXPECT(rep, m >= 8 && seen(s->name, neumann, KCP_BF16, list, m, 0) >= 4,
           "%d of %d cases of alike keys see the series",
           seen(s->name, neumann, KCP_BF16, list, m, 0), m);
    free(list);
    return KCP_OK;
}
KCP_CHECK(check_00_alike) = { "00_judge", "alike",
    "an inverse by a series in half precision is seen where keys are alike", alike };
