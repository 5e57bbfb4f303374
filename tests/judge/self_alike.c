/* self_alike.c -- the judge judged: alike keys, and an inverse that does not bear them.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself: where keys are
 * independent the series passes.  Next: self_lists.c.
 *
 * A Neumann series in half precision is the field's known mistake: 15 % off at a cosine
 * of 0.9, and beyond the range of half at more. So there are finite plants too: the
 * inverse, or u alone, off by 15 %.
 */
#include "self_plants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- 03 by a Neumann series: (I - L)(I + L^2)(I + L^4)..., every product in fp16 */
static enum { SERIES, A_OFF, U_OFF } mistake;

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

/* A of a chunk by the series, and u from it. */
static void series_chunk(const struct kcp_wy *a, double *const in[5],
                         double *const out[6], int64_t t0, int n, int h)
{
    double *A = calloc((size_t)(n * n), 8);
    for (int i = 0; i < n; i++)
        memcpy(A + i * n, out[1] + ((t0 + i) * a->HV + h) * a->C, 8u * n);
    series(n, A);
    for (int i = 0; i < n; i++) {
        memcpy(out[1] + ((t0 + i) * a->HV + h) * a->C, A + i * n, 8u * n);
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

/* Every number by 15 %, up and down by turns: so much is the whole off. */
static void put_off(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] *= i % 2 ? 1.15 : .85;
}

static void go_wrong(const struct kcp_wy *a, double *const in[5], double *const out[6],
                     const int64_t size[6])
{
    const int *cu = a->cu;
    if (mistake == A_OFF) put_off(out[1], size[1]);
    if (mistake == U_OFF) put_off(out[2], size[2]);
    for (int s = 0; s < a->NS && mistake < A_OFF; s++)
        for (int64_t t0 = cu[s]; t0 < cu[s + 1]; t0 += a->C)
            for (int h = 0; h < a->HV; h++)
                series_chunk(a, in, out, t0, (int)fmin(a->C, cu[s + 1] - t0), h);
}

/* 03 in bf16 around the reference, with the mistake. */
static int wrong_inverse(void *args)
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
    const int status = ref_wy(&x);
    go_wrong(a, in, out, size);
    for (int i = 0; i < 6; i++) {
        for (int64_t j = 0; j < size[i]; j++)
            out[i][j] = to_storage(out[i][j], KCP_BF16);
        if (size[i]) encode(to[i], out[i], size[i], 2);
        free(out[i]);
    }
    for (int i = 0; i < 5; i++) free(in[i]);
    return status;
}

static const struct plant plant = { "03_wy", wrong_inverse, KCP_BF16, KCP_BF16, 0 };

/* What was there before alike keys: chunks of 64, and not many tokens. */
static void passes_where_independent(struct kcp_report *rep)
{
    int drawn, old = 0;
    struct kcase *list = cases_make(stage_find("03"), 0, 0, 1, 0, &drawn);
    for (int i = 0; i < drawn; i++)
        if (list[i].call.C == 64 && list[i].call.T < 400) list[old++] = list[i];
    if (old > 6) old = 6;
    mistake = SERIES;
    EXPECT(rep, old && !plant_seen(&plant, list, old, 0).cases,
           "the series is to pass where keys are independent: it is a fair plant");
    free(list);
}

/* The anchors of this cosine, at most; how many. */
static int of_cosine(struct kcase *list, int n, double least, double most)
{
    int m = 0;
    for (int i = 0; i < n; i++)
        if (list[i].alike >= least && list[i].alike <= most) list[m++] = list[i];
    return m;
}

static int alike(struct kcp_report *rep)
{
    struct sight seen;
    int n;
    passes_where_independent(rep);
    struct kcase *list = cases_anchors(stage_find("03"), 0, 1, 0, 0, &n);
    n = of_cosine(list, n, 1e-3, 1);
    mistake = SERIES;
    seen = plant_seen(&plant, list, n, 0);
    EXPECT(rep, n >= 8 && seen.cases >= 4, "%d of %d cases of alike keys see the "
           "series", seen.cases, n);
    /* Where beta may be near 2 and the cosine is 1, limits are as wide as 0.4. */
    n = of_cosine(list, n, .9, .99);
    for (mistake = A_OFF; mistake <= U_OFF; mistake++) {
        seen = plant_seen(&plant, list, n, 0);
        EXPECT(rep, n >= 6 && seen.cases == n && seen.limits < HUGE_VAL,
               "%s is 15 %% off, in %d of %d cases seen, by at most %.1f limits",
               mistake == A_OFF ? "A" : "u", seen.cases, n, seen.limits);
    }
    free(list);
    return KCP_OK;
}
KCP_CHECK(check_00_alike) = { "00_judge", "alike",
    "where keys are alike, an inverse by a series in half precision is seen, and one "
    "that is 15 % off", alike };
