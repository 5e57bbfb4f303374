/* model.c -- computes logits from bytes through one KDA layer, and all gradients.
 * Book: chapters 08 and 13.
 *
 *   x = E[byte];  q k v = conv(x W);  o = KDA(q, k, v, x Wg, x Wb + b);  z = x + o Wo
 *   loss = mean over tokens of -log softmax(z U)[next byte of the same sequence] */
#include "text.h"
#include "base/random.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HK = HEADS * KEY, HVV = VALUE_HEADS * VALUE, HVK = VALUE_HEADS * KEY };

const struct shape param_shape[PARAMS] = {
    [P_EMBED] = { BYTES, WIDTH }, [P_Q] = { WIDTH, HK }, [P_K] = { WIDTH, HK },
    [P_V] = { WIDTH, HVV }, [P_G] = { WIDTH, HVK }, [P_BETA] = { WIDTH, VALUE_HEADS },
    [P_O] = { HVV, WIDTH }, [P_LOGIT] = { WIDTH, BYTES }, [P_CQ] = { HK, TAPS },
    [P_CK] = { HK, TAPS }, [P_CV] = { HVV, TAPS }, [P_ALOG] = { 1, VALUE_HEADS },
    [P_DT] = { VALUE_HEADS, KEY }, [P_BBIAS] = { 1, VALUE_HEADS },
};
const int tensor_row[TENSORS] = {
    [X] = WIDTH, [PQ] = HK, [PK] = HK, [PV] = HVV, [Q_] = HK, [K_] = HK, [V_] = HVV,
    [GRAW] = HVK, [BRAW] = VALUE_HEADS, [O] = HVV, [Z] = WIDTH, [LOGIT] = BYTES,
    [DZ] = WIDTH, [DO] = HVV, [DQ] = HK, [DK] = HK, [DV] = HVV, [DG] = HVK,
    [DB] = VALUE_HEADS, [DPQ] = HK, [DPK] = HK, [DPV] = HVV, [DX] = WIDTH,
};

int64_t param_at(int p)
{
    int64_t at = 0;
    for (int i = 0; i < p; i++)
        at += (int64_t)param_shape[i].rows * param_shape[i].cols;
    return at;
}

/* Returns a nearly normal random number, the sum of twelve uniform numbers, because
 * this sum has the same bits on every machine. */
static double normal(uint64_t *s)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += random_uniform(s);
    return sum;
}

/* Draws parameters. Gates are as in trained models (chapter 02): exp(A_log) grows
 * from 1 to 16 over the heads, and dt is log-uniform in [1e-3, 0.1]. beta is about
 * 0.05, so that part of a state remains after a rank's tokens. */
double *params_make(uint64_t seed)
{
    double *theta = malloc(sizeof *theta * param_at(PARAMS));
    uint64_t s = seed;
    for (int p = 0; theta && p < PARAMS; p++) {
        double *w = theta + param_at(p);
        const struct shape *sh = &param_shape[p];
        const int fan_in = p >= P_CQ && p <= P_CV ? TAPS : sh->rows;
        const double size = p == P_G ? 0.1 : 1;
        for (int64_t i = 0; i < (int64_t)sh->rows * sh->cols; i++) {
            const double dt = exp(log(1e-3) + log(100.0) * random_uniform(&s));
            w[i] = size * normal(&s) / (p == P_EMBED ? 1 : sqrt(fan_in));
            if (p == P_ALOG) w[i] = log(1 + 15.0 * i / (VALUE_HEADS - 1));
            if (p == P_DT) w[i] = log(expm1(dt));
            if (p == P_BBIAS) w[i] = -3;
        }
    }
    return theta;
}

/* c [T,m] += a [T,n] b [n,m] */
static void times(int64_t T, int n, int m, const double *a, const double *b, double *c)
{
    for (int64_t t = 0; t < T; t++)
        for (int p = 0; p < n; p++)
            for (int j = 0; j < m; j++)
                c[t * m + j] += a[t * n + p] * b[p * m + j];
}

/* c [T,n] += a [T,m] b^T */
static void times_transposed(int64_t T, int n, int m, const double *a, const double *b,
                             double *c)
{
    static _Thread_local double bt[BYTES * BYTES];
    for (int p = 0; p < n; p++)
        for (int j = 0; j < m; j++) bt[j * n + p] = b[p * m + j];
    times(T, m, n, a, bt, c);
}

/* dw [n,m] += a [T,n]^T c [T,m], for the T tokens of one segment */
static void outer(int64_t T, int n, int m, const double *a, const double *c, double *dw)
{
    for (int64_t t = 0; t < T; t++)
        for (int p = 0; p < n; p++)
            for (int j = 0; j < m; j++)
                dw[p * m + j] += a[t * n + p] * c[t * m + j];
}

static const struct { enum activation in, out; enum param w; } projection[] = {
    { X, PQ, P_Q }, { X, PK, P_K }, { X, PV, P_V }, { X, GRAW, P_G },
    { X, BRAW, P_BETA }, { O, Z, P_O }, { Z, LOGIT, P_LOGIT },
};
enum { INTO_LAYER = 5, PROJECTIONS = 7 };
static const enum activation gradient[] = { DPQ, DPK, DPV, DG, DB, DZ, LOGIT };

static void project(const struct rank *a, int i)
{
    const struct shape *w = &param_shape[projection[i].w];
    times(a->T, w->rows, w->cols, a->t[projection[i].in],
          a->run->theta + param_at(projection[i].w), a->t[projection[i].out]);
}

static void project_back(const struct rank *a, int i, enum activation into)
{
    const struct shape *w = &param_shape[projection[i].w];
    times_transposed(a->T, w->rows, w->cols, a->t[gradient[i]],
                     a->run->theta + param_at(projection[i].w), a->t[into]);
}

void model_embed(const struct rank *a)
{
    const unsigned char *byte = a->run->text->byte + a->ctx->begin;
    const double *E = a->run->theta, *b = a->run->theta + param_at(P_BBIAS);
    for (int64_t t = 0; t < a->T; t++) {
        memcpy(a->t[X] + t * WIDTH, E + byte[t] * WIDTH, sizeof *E * WIDTH);
        memcpy(a->t[BRAW] + t * VALUE_HEADS, b, sizeof *b * VALUE_HEADS);
    }
    for (int i = 0; i < INTO_LAYER; i++) project(a, i);
}

/* Writes the loss's gradient to tensor LOGIT, and the loss to the last column of
 * `part`. A later rank sends the byte that follows this shard's last byte (a halo
 * exchange). */
int model_loss(const struct rank *a, double *part, int64_t n)
{
    const struct text *x = a->run->text;
    const struct kcp_context *c = a->ctx;
    const unsigned char *byte = x->byte + c->begin;
    const struct kcp_halo h = { .plan = a->run->plan, .comm = a->comm, .reach = 1,
                                .backward = 1, .row_bytes = 1 };
    const struct kcp_segment *seg = a->run->plan->seg + c->seg0;
    unsigned char next = 0;
    int64_t count = 0;
    for (int i = 0; i < x->N; i++) count += x->cu[i + 1] - x->cu[i] - 1;

    memcpy(a->t[Z], a->t[X], sizeof(double) * a->T * WIDTH);
    project(a, INTO_LAYER);
    project(a, INTO_LAYER + 1);
    const int status = kcp_halo_run(&h, byte, &next);
    for (int s = 0; !status && s < c->NS; s++)
        for (int64_t t = c->cu[s]; t < c->cu[s + 1]; t++) {
            double *p = a->t[LOGIT] + t * BYTES, top = p[0], sum = 0;
            const int ends = t + 1 == c->cu[s + 1] && seg[s].last;
            const int target = t + 1 < a->T ? byte[t + 1] : next;
            for (int j = 1; j < BYTES; j++) top = p[j] > top ? p[j] : top;
            for (int j = 0; j < BYTES; j++) sum += exp(p[j] - top);
            if (!ends) part[s * n + n - 1] += (log(sum) + top - p[target]) / count;
            for (int j = 0; j < BYTES; j++)
                p[j] = ends ? 0 : (exp(p[j] - top) / sum - (j == target)) / count;
        }
    return status;
}

/* Computes the gradients `dz` and `do`. The layer's backward reads `do`. */
void model_into_layer(const struct rank *a)
{
    project_back(a, INTO_LAYER + 1, DZ);
    project_back(a, INTO_LAYER, DO);
}

/* Adds gradients of projections, embedding and `b` to a segment's row of `part`. */
void model_gradients(const struct rank *a, double *part, int64_t n)
{
    const struct kcp_context *c = a->ctx;
    const unsigned char *byte = a->run->text->byte + c->begin;
    memcpy(a->t[DX], a->t[DZ], sizeof(double) * a->T * WIDTH);
    for (int i = 0; i < INTO_LAYER; i++) project_back(a, i, DX);
    for (int s = 0; s < c->NS; s++) {
        const int64_t t0 = c->cu[s], T = c->cu[s + 1] - t0;
        for (int i = 0; i < PROJECTIONS; i++) {
            const struct shape *w = &param_shape[projection[i].w];
            outer(T, w->rows, w->cols, a->t[projection[i].in] + t0 * w->rows,
                  a->t[gradient[i]] + t0 * w->cols,
                  part + s * n + param_at(projection[i].w));
        }
        for (int64_t t = t0; t < t0 + T; t++) {
            for (int j = 0; j < WIDTH; j++)
                part[s * n + byte[t] * WIDTH + j] += a->t[DX][t * WIDTH + j];
            for (int j = 0; j < VALUE_HEADS; j++)
                part[s * n + param_at(P_BBIAS) + j] += a->t[DB][t * VALUE_HEADS + j];
        }
    }
}
