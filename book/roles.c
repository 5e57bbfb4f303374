/* roles.c -- runs the two kernels of chapter 18 in C: factors, producer warps, steps.
 * Book: chapters 18 and 18c.
 * Random tokens in six chunks; the last chunk has two tokens. Every result is compared
 * with the recurrence of chapter 01. */
#include "ref.h"
#include "ref/17_block.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 22, K = 4, V = 3, C = 4, CHUNKS = (T + C - 1) / C };

static double q[T][K], k[T][K], v[T][V], g[T][K], beta[T], h0[K][V], o[T][V], ht[K][V];
static double d_o[T][V], dht[K][V], dq[T][K], dk[T][K], dv[T][V], dg[T][K], dbeta[T];
static double dh0[K][V], out[T][V];

/* The factors of one chunk. A triangle has zeros above its diagonal. */
struct factors { double k[C][K], q[C][K], kg[C][K], decay[K], Ab[C][C], Aqk[C][C]; };
static struct factors all[CHUNKS];

/* y[m,w] += sign a b, with a[m,n] and b[n,w]. In add_t the transposed of a[n,m] is the
 * first factor, in add_bt that of b[w,n] the second. */
#define add(y, s, a, b, m, n, w) add_product(y, s, a, n, 1, b, w, 1, (m) * (w), n, w)
#define add_t(y, s, a, b, m, n, w) add_product(y, s, a, 1, m, b, w, 1, (m) * (w), n, w)
#define add_bt(y, s, a, b, m, n, w) add_product(y, s, a, n, 1, b, 1, n, (m) * (w), n, w)
static void add_product(double *y, double sign, const double *a, int di, int dj,
                        const double *b, int ej, int ek, int size, int n, int w)
{
    for (int i = 0; i < size; i++)
        for (int j = 0; j < n; j++)
            y[i] += sign * a[i / w * di + j * dj] * b[j * ej + i % w * ek];
}

/* Computes the factors of n tokens from token t0 on. Rows n .. C - 1 are 0. */
static void prepare(struct factors *f, int t0, int n)
{
    double G[C][K], scores[C][C] = { { 0 } };
    memset(f, 0, sizeof *f);
    for (int i = 0; i < n; i++)
        for (int p = 0; p < K; p++)
            G[i][p] = g[t0 + i][p] / log(2) + (i ? G[i - 1][p] : 0);
    for (int i = 0; i < n; i++)
        for (int p = 0; p < K; p++) {
            f->q[i][p] = exp2(G[i][p]) * q[t0 + i][p];
            f->k[i][p] = exp2(G[i][p]) * k[t0 + i][p];
            f->kg[i][p] = exp2(G[n - 1][p] - G[i][p]) * k[t0 + i][p];
            f->decay[p] = exp2(G[n - 1][p]);
            for (int j = 0; j <= i; j++) {
                const double kD = exp2(G[i][p] - G[j][p]) * k[t0 + j][p];
                f->Aqk[i][j] += q[t0 + i][p] * kD;
                scores[i][j] += k[t0 + i][p] * kD;
            }
        }
    for (int i = 0; i < n; i++)                     /* (I + L) A beta = beta */
        for (int j = 0; j <= i; j++) {
            f->Ab[i][j] = i == j ? beta[t0 + i] : 0;
            for (int m = j; m < i; m++)
                f->Ab[i][j] -= beta[t0 + i] * scores[i][m] * f->Ab[m][j];
        }
}

//> factors-step
/* One step. y has the chunk's rows of v; S is the state, o the chunk's output. */
static void step(const struct factors *f, double y[C][V], double S[K][V],
                 double o[C][V])
{
    double v_new[C][V] = { { 0 } };
    memset(o, 0, sizeof v_new);
    add(y[0], -1, f->k[0], S[0], C, K, V);              /* y = v - k~ S */
    add(v_new[0], 1, f->Ab[0], y[0], C, C, V);          /* v_new = A beta y */
    add(o[0], 1, f->q[0], S[0], C, K, V);               /* o = q_g S + Aqk v_new */
    add(o[0], 1, f->Aqk[0], v_new[0], C, C, V);
    for (int i = 0; i < K * V; i++) S[i / V][i % V] *= f->decay[i / V];
    add_t(S[0], 1, f->kg[0], v_new[0], K, C, V);        /* S = Lambda S + kg^T v_new */
}
//< factors-step

//> reverse-step
/* One step back. d_o is the gradient of the chunk's output; dS that of its last state,
 * and on return that of its first state. Writes dv [C,V]. */
static void step_back(const struct factors *f, const double d_o[C][V], double dS[K][V],
                      double dv[C][V])
{
    double dU[C][V] = { { 0 } };
    memset(dv, 0, sizeof dU);
    add(dU[0], 1, f->kg[0], dS[0], C, K, V);            /* dU = kg dS + Aqk^T dO */
    add_t(dU[0], 1, f->Aqk[0], d_o[0], C, C, V);
    add_t(dv[0], 1, f->Ab[0], dU[0], C, C, V);          /* dv = (A beta)^T dU */
    for (int i = 0; i < K * V; i++) dS[i / V][i % V] *= f->decay[i / V];
    add_t(dS[0], 1, f->q[0], d_o[0], K, C, V);          /* dS = Lambda dS + q_g^T dO */
    add_t(dS[0], -1, f->k[0], dv[0], K, C, V);          /*      - k~^T dv */
}
//< reverse-step

/* What one step of eq:gauge-adjoint reads, with 2^a in `anchor`, and its gradients. */
struct gauge {
    double qf[C][K], kf[C][K], kb[C][K], F[C][K], anchor[K], S_hat[K][V], v_new[C][V];
    double d_o[C][V], dv[C][V], dqf[C][K], dkf[C][K], dkb[C][K], dE[K];
};

//> gauge-back
/* One step back. dS is dS_hat at the step's end, and on return at its start. */
static void gauge_back(const struct factors *f, struct gauge *x, double dS[K][V])
{
    double dU[C][V] = { { 0 } }, X[C][C] = { { 0 } }, Y[C][C] = { { 0 } };
    add(dU[0], 1, x->kb[0], dS[0], C, K, V);
    add_t(dU[0], 1, f->Aqk[0], x->d_o[0], C, C, V);
    add_t(x->dv[0], 1, f->Ab[0], dU[0], C, C, V);
    add_bt(X[0], 1, x->d_o[0], x->v_new[0], C, V, C);
    add_bt(Y[0], 1, x->dv[0], x->v_new[0], C, V, C);
    for (int i = 0; i < C; i++)
        for (int j = i; j < C; j++) Y[i][j] = 0, X[i][j] *= i == j;     /* tril */
    add_bt(x->dkb[0], 1, x->v_new[0], dS[0], C, V, K);
    for (int p = 0; p < K; p++) {
        for (int v = 0; v < V; v++) x->dE[p] += x->S_hat[p][v] * dS[p][v];
        for (int i = 0; i < C; i++) x->dE[p] += x->kb[i][p] * x->dkb[i][p];
    }
    add_t(x->dkb[0], 1, X[0], x->qf[0], C, C, K);
    add_t(x->dkb[0], -1, Y[0], x->kf[0], C, C, K);
    add_bt(x->dqf[0], 1, x->d_o[0], x->S_hat[0], C, V, K);
    add(x->dqf[0], 1, X[0], x->kb[0], C, C, K);
    add_bt(x->dkf[0], -1, x->dv[0], x->S_hat[0], C, V, K);
    add(x->dkf[0], -1, Y[0], x->kb[0], C, C, K);
    add_t(dS[0], 1, x->qf[0], x->d_o[0], K, C, V);
    add_t(dS[0], -1, x->kf[0], x->dv[0], K, C, V);
}
//< gauge-back

//> roles-block
enum { PIPE_K, PIPE_A, PIPE_Q, PIPE_AQK, PIPES, STAGES = 2, V_LANES = C };
enum { CONSUMER = PIPES, STORE, ROLES };

/* Shared memory. All pipelines have STAGES stages. o of chunk c - 1 replaces v of
 * chunk c. The producer waits for `v_empty` if waits_for_o is 1. */
struct block {
    struct factors at[STAGES];
    double v[STAGES][C][V], S[K][V], late[C][V];
    struct block_barrier full[PIPES][STAGES], empty[PIPES][STAGES];
    struct block_barrier o_ready[STAGES], v_empty[STAGES];
    struct block_copies copies;
    int waits_for_o;
};

#define PART(pipe, x) { pipe, offsetof(struct factors, x), sizeof all[0].x }
static const struct { int pipe; size_t at, size; } parts[] = {
    PART(PIPE_K, k), PART(PIPE_A, Ab), PART(PIPE_A, kg), PART(PIPE_A, decay),
    PART(PIPE_Q, q), PART(PIPE_AQK, Aqk),
};
enum { PARTS = sizeof parts / sizeof *parts, SIZE = sizeof(double) };
//< roles-block

static int tokens(int c)
{
    return T - c * C < C ? T - c * C : C;
}

//> producer
/* Fills a stage of one pipeline with chunk c: announces the bytes, then issues the
 * copies. Returns 0 if the stage is not free yet. */
static int producer(struct block *m, int pipe, int c)
{
    static const double zero[V];
    const int at = c % STAGES, before = c / STAGES - 1;
    struct block_barrier *full = &m->full[pipe][at];
    int64_t bytes = 0;
    if (c >= STAGES && !block_passed(&m->empty[pipe][at], before)) return 0;
    if (pipe == PIPE_K && c >= STAGES && m->waits_for_o &&
        !block_passed(&m->v_empty[at], before)) return 0;
    for (int i = 0; i < PARTS; i++)
        bytes += parts[i].pipe == pipe ? 2 * parts[i].size / SIZE : 0;
    block_arrive_expect(full, bytes);
    for (int i = 0; i < PARTS; i++)
        if (parts[i].pipe == pipe)
            block_tma(&m->copies, (double *)((char *)&m->at[at] + parts[i].at),
                      (double *)((char *)&all[c] + parts[i].at), 0, 1,
                      parts[i].size / SIZE, full);
    for (int lane = 0; pipe == PIPE_K && lane < V_LANES; lane++)
        block_async_arrive(&m->copies, m->v[at][lane],
                           lane < tokens(c) ? v[c * C + lane] : zero, V, full);
    return 1;
}
//< producer

//> consumer
/* Computes chunk c. Its o stays in `late` until the next step. Returns 0 to wait. */
static int consumer(struct block *m, int c)
{
    const int at = c % STAGES, phase = c / STAGES;
    double y[C][V];
    for (int pipe = 0; pipe < PIPES; pipe++)
        if (!block_passed(&m->full[pipe][at], phase)) return 0;
    memcpy(y, m->v[at], sizeof y);
    memcpy(m->v[at], m->late, sizeof y);
    block_arrive(&m->o_ready[at]);
    step(&m->at[at], y, m->S, m->late);
    for (int pipe = 0; pipe < PIPES; pipe++) block_arrive(&m->empty[pipe][at]);
    if (c == CHUNKS - 1) memcpy(out[c * C], m->late, tokens(c) * sizeof *y);
    return 1;
}

/* Copies o of chunk c - 1 from the place of v of chunk c to memory. */
static int store(struct block *m, int c)
{
    const int at = c % STAGES;
    if (!block_passed(&m->o_ready[at], c / STAGES)) return 0;
    if (c) memcpy(out[(c - 1) * C], m->v[at], sizeof m->v[at]);
    block_arrive(&m->v_empty[at]);
    return 1;
}
//< consumer

/* Runs roles and copies in random order. Returns 0 if all roles finish all chunks, and
 * 1 if nothing can go on. */
static int hangs(struct block *m)
{
    struct block_copies *q = &m->copies;
    int done[ROLES] = { 0 }, left = ROLES * CHUNKS;
    for (int idle = 0; left && idle < 1000; idle++) {
        const int x = rand() % (ROLES + 1), c = x < ROLES ? done[x] : 0;
        if (x == ROLES && q->n) block_carry_out(q, rand() % q->n);
        else if (x == ROLES || c == CHUNKS) continue;
        else if (x == CONSUMER ? consumer(m, c) : x == STORE ? store(m, c) :
                 producer(m, x, c)) left--, done[x]++;
        else continue;
        idle = 0;
    }
    return left > 0;
}

/* Returns how far out [T,V] and S [K,V] are from x and y. */
static double difference(double S[K][V], double x[T][V], double y[K][V])
{
    double sum = 0;
    for (int i = 0; i < T * V; i++) sum += fabs(out[i / V][i % V] - x[i / V][i % V]);
    for (int i = 0; i < K * V; i++) sum += fabs(S[i / V][i % V] - y[i / V][i % V]);
    return sum;
}

/* Runs a block in 100 orders. Returns the difference from the recurrence: NaN if a
 * number was read too early, infinity if the block hangs. */
static double run(int on_full, int waits_for_o)
{
    static struct block m;
    double sum = 0;
    for (int order = 0; order < 100; order++) {
        memset(&m, 0, sizeof m);
        memcpy(m.S, h0, sizeof h0);
        m.waits_for_o = waits_for_o;
        for (int i = 0; i < STAGES; i++) {
            for (int pipe = 0; pipe < PIPES; pipe++) {
                block_barrier_init(&m.full[pipe][i], pipe == PIPE_K ? on_full : 1);
                block_barrier_init(&m.empty[pipe][i], 1);
            }
            block_barrier_init(&m.o_ready[i], 1);
            block_barrier_init(&m.v_empty[i], 1);
        }
        if (hangs(&m)) return INFINITY;
        sum += difference(m.S, o, ht);
    }
    return sum;
}

static void check(int holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "roles.c: %s\n", what);
    exit(1);
}

/* Fills x with random numbers from `low` to `high`. */
static void fill(double *x, int n, double low, double high)
{
    for (int i = 0; i < n; i++) x[i] = low + (high - low) * (rand() / (RAND_MAX + 1.0));
}

static void recurrence(void)
{
    static int64_t cu[2] = { 0, T };
    fill(q[0], T * K, -1, 1), fill(k[0], T * K, -1, 1), fill(v[0], T * V, -1, 1);
    fill(g[0], T * K, -1, 0), fill(beta, T, 0, 1), fill(h0[0], K * V, -1, 1);
    fill(d_o[0], T * V, -1, 1), fill(dht[0], K * V, -1, 1);
    struct kcp_step a = {
        .T = T, .N = 1, .H = 1, .HV = 1, .K = K, .KG = K, .V = V, .scale = 1, .C = C,
        .cu_seqlens = cu, .q = q, .k = k, .v = v, .g = g, .beta = beta, .h0 = h0,
        .o = o, .ht = ht, .do_ = d_o, .dht = dht, .dq = dq, .dk = dk, .dv = dv,
        .dg = dg, .dbeta = dbeta, .dh0 = dh0 };
    check(!ref_step(&a), "ref_step failed");
    a.pass = KCP_BACKWARD;
    check(!ref_step(&a), "ref_step failed");
}

/* Sets what gauge_back reads in chunk c, whose first state is S. Anchor: row 0. */
static void gauge_of(struct gauge *x, int c, double S[K][V])
{
    const struct factors *f = &all[c];
    double y[C][V] = { { 0 } }, unused[C][V];
    for (int p = 0; p < K; p++) {
        x->anchor[p] = exp2(g[c * C][p] / log(2));
        for (int w = 0; w < V; w++) x->S_hat[p][w] = x->anchor[p] * S[p][w];
        for (int i = 0; i < tokens(c); i++) {
            x->qf[i][p] = f->q[i][p] / x->anchor[p];
            x->kf[i][p] = f->k[i][p] / x->anchor[p];
            x->F[i][p] = x->kf[i][p] / k[c * C + i][p];
            x->kb[i][p] = k[c * C + i][p] / x->F[i][p];
        }
    }
    memcpy(x->d_o, d_o[c * C], tokens(c) * sizeof *y);
    memcpy(y, v[c * C], tokens(c) * sizeof *y);
    add(y[0], -1, f->k[0], S[0], C, K, V);
    add(x->v_new[0], 1, f->Ab[0], y[0], C, C, V);
    memcpy(y, v[c * C], tokens(c) * sizeof *y);
    step(f, y, S, unused);
}

/* Takes both steps back over all chunks, and compares gradients with the recurrence. */
static void backward(void)
{
    static struct gauge all_x[CHUNKS];
    double S[K][V], dS[K][V], dS_hat[K][V], worst = 0;
    memcpy(S, h0, sizeof h0);
    memcpy(dS, dht, sizeof dht);
    memcpy(dS_hat, dht, sizeof dht);
    for (int c = 0; c < CHUNKS; c++) gauge_of(&all_x[c], c, S);
    for (int c = CHUNKS - 1; c >= 0; c--) {
        struct gauge *x = &all_x[c];
        double found[C][V], sum[K];
        step_back(&all[c], x->d_o, dS, found);
        memcpy(out[c * C], found, tokens(c) * sizeof *found);
        for (int i = 0; i < K * V; i++)
            dS_hat[i / V][i % V] *= all[c].decay[i / V] / x->anchor[i / V];
        gauge_back(&all[c], x, dS_hat);
        for (int i = 0; i < K * V; i++) dS_hat[i / V][i % V] *= x->anchor[i / V];
        memcpy(sum, x->dE, sizeof sum);
        for (int i = tokens(c) - 1, t = c * C + i; i >= 0; i--, t--) {
            double db = 0;
            for (int w = 0; w < V; w++) {
                db += x->dv[i][w] * x->v_new[i][w] / beta[t] / beta[t];
                worst += fabs(x->dv[i][w] - dv[t][w]);
            }
            worst += fabs(db - dbeta[t]);
            for (int p = 0; p < K; p++) {
                const double F = x->F[i][p], dqf = x->dqf[i][p], dkf = x->dkf[i][p];
                const double dkb = x->dkb[i][p];
                sum[p] += x->qf[i][p] * dqf + x->kf[i][p] * dkf - x->kb[i][p] * dkb;
                worst += fabs(sum[p] - dg[t][p]) + fabs(F * dqf - dq[t][p]) +
                         fabs(F * dkf + dkb / F - dk[t][p]);
            }
        }
    }
    check(difference(dS, dv, dh0) < 1e-12, "step_back differs from the recurrence");
    check(worst + difference(dS_hat, dv, dh0) < 1e-10, "gauge_back differs");
}

int main(void)
{
    recurrence();
    for (int c = 0; c < CHUNKS; c++) prepare(&all[c], c * C, tokens(c));
    backward();
    static const struct { int on_full, waits; const char *outcome; } trials[] = {
        { 1 + V_LANES, 1, "as the recurrence" },
        { V_LANES, 1, "wrong: a row of v is read too early" },
        { 2 + V_LANES, 1, "hangs" },
        { 1 + V_LANES, 0, "wrong: v is copied over o" },
    };
    printf("== 18-roles\narrivals at full of PIPE_K   wait for v_empty   outcome\n");
    for (int i = 0; i < 4; i++) {
        const double found = run(trials[i].on_full, trials[i].waits);
        check(i == 0 ? found < 1e-10 : i == 2 ? isinf(found) :
                  !isinf(found) && !(found < 1e-10),
              trials[i].outcome);
        printf("%-28d %-18s %s\n", trials[i].on_full, trials[i].waits ? "yes" : "no",
               trials[i].outcome);
    }
    return 0;
}
