/* example.h -- makes plans and calls for the worked example, and runs the recurrence.
 * Book: all chapters. */
#pragma once

#include "ref.h"
#include "tokens.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = EX_T, K = EX_K, V = EX_V, C = EX_C, WC = 2, MOST = 3 };

/* Results of chapter 01's recurrence, with which all other results are compared. */
static double g[T][K], o[T][V], ht[K][V], ones[T][V] = { { 1, 1 }, { 1, 1 }, { 1, 1 } };
static double dq[T][K], dk[T][K], dv[T][V], dg[T][K], dbeta[T], dh0[K][V];
static double worst;

static inline void fail(const char *what)
{
    fprintf(stderr, "the worked example: %s\n", what);
    exit(1);
}

static inline void same(const double *x, const double *y, int n, const char *what)
{
    for (int i = 0; i < n; i++) {
        if (!(fabs(x[i] - y[i]) <= 1e-12)) fail(what);
        if (fabs(x[i] - y[i]) > worst) worst = fabs(x[i] - y[i]);
    }
}

/* Prints the name of a matrix, then each row. -0 is printed as 0. */
static inline void show(const char *name, const double *x, int rows, int cols)
{
    for (int i = 0; i < rows; i++) {
        printf("%-8s", i ? "" : name);
        for (int j = 0; j < cols; j++)
            printf(" %10.6f", x[i * cols + j] == 0 ? 0 : x[i * cols + j]);
        printf("\n");
    }
}

static inline struct kcp_plan *plan_of(int R, const int64_t *cuts, int chunk)
{
    static const int64_t cu[] = { 0, T };
    struct kcp_plan *p;
    const char *why;
    if (kcp_plan_make(&p, 1, cu, R, cuts, 0, chunk, WC, &why)) fail(why);
    return p;
}

/* Makes a plan for R ranks. If R = 2, rank 0 has tokens 0 and 1, rank 1 has token 2. */
static inline struct kcp_plan *ranks(int R)
{
    static const int64_t one[] = { 0, 3 }, two[] = { 0, 2, 3 };
    static const int64_t three[] = { 0, 1, 2, 3 };
    static const int64_t *const cuts[] = { one, two, three };
    return plan_of(R, cuts[R - 1], C);
}

static inline void fill(struct kcp_call *a, const struct kcp_plan *p, int r)
{
    memset(a, 0, sizeof *a);
    a->T = p->ctx[r].end - p->ctx[r].begin;
    a->N = 1;
    a->NS = p->ctx[r].NS;
    a->NC = p->ctx[r].NC; a->R = p->R; a->r = r; a->H = a->HV = 1;
    a->K = a->KG = K; a->V = V; a->C = C; a->model = KCP_KDA; a->scale = 1;
    a->plan = p; a->ops = &ref_mapops;
}

#define STAGE(type, name)                                                             \
    struct type name;                                                                 \
    memset(&name, 0, sizeof name);                                                    \
    fill((struct kcp_call *)&name, p, r);                                             \
    name.cu = p->ctx[r].cu; name.cn = p->ctx[r].cn; name.sc = p->ctx[r].sc

/* Returns the args for a recurrence over tokens t .. t + n - 1, with dO = 1. */
static inline struct kcp_step step_call(int t, int n)
{
    static int64_t cu[2];
    for (int i = 0; i < T * K; i++)
        g[i / K][i % K] = ex_log2_decay[i / K][i % K] * log(2);
    cu[1] = n;
    return (struct kcp_step){
        .T = n, .N = 1, .H = 1, .HV = 1, .K = K, .KG = K, .V = V, .scale = 1, .C = C,
        .cu_seqlens = cu, .q = ex_q[t], .k = ex_k[t], .v = ex_v[t], .g = g[t],
        .beta = ex_beta + t, .o = o, .ht = ht, .do_ = ones, .dq = dq, .dk = dk,
        .dv = dv, .dg = dg, .dbeta = dbeta, .dh0 = dh0 };
}

static inline void step_run(struct kcp_step a)
{
    const int forward = ref_step(&a);
    a.pass = KCP_BACKWARD;
    if (forward || ref_step(&a)) fail("ref_step failed");
}

static inline void recurrence(int n)
{
    step_run(step_call(0, n));
}
