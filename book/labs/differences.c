/* differences.c -- the file of lab 09d, which checks gradients by finite differences.
 * Book: chapter 01, exercises.  Used by: make lab LAB=09d. */
#include "kcp.h"

#include <math.h>
#include <string.h>

enum { T = 5, K = 3, V = 2 };

/* The inputs of one head over T tokens, or the gradients of these inputs. */
struct inputs { double q[T][K], k[T][K], v[T][V], g[T][K], beta[T], h0[K][V]; };

/* Returns 1 if `step`, a function of stage 01 (ref/stages/01.def), is right. Its
 * `args` is a struct kcp_step. If pass is KCP_FORWARD, `step` writes o and ht. If pass
 * is KCP_BACKWARD, `step` computes all gradients from do_ and dht. */
int lab_check(int (*step)(void *args))
{
    const int64_t cu[2] = { 0, T };
    struct inputs x, d;
    double o[T][V], ht[K][V], dO[T][V], dht[K][V];
    struct kcp_step a = { .T = T, .N = 1, .H = 1, .HV = 1, .K = K, .V = V, .KG = K,
                          .scale = 0.7, .cu_seqlens = cu, .q = x.q, .k = x.k, .v = x.v,
                          .g = x.g, .beta = x.beta, .h0 = x.h0, .o = o, .ht = ht,
                          .do_ = dO, .dht = dht, .dq = d.q, .dk = d.k, .dv = d.v,
                          .dg = d.g, .dbeta = d.beta, .dh0 = d.h0 };
    //> differences
    double *const in = (double *)&x, *const got = (double *)&d;
    const int n = sizeof x / sizeof *in;
    unsigned z = 12345;
    for (int i = 0; i < n; i++)
        in[i] = (z = z * 1664525u + 1013904223u) / 4294967296.0 - .4;
    for (int t = 0; t < T; t++)
        for (int i = 0; i < K; i++) x.g[t][i] = -fabs(x.g[t][i]);
    for (int i = 0; i < T * V; i++) (&dO[0][0])[i] = cos(i);
    for (int i = 0; i < K * V; i++) (&dht[0][0])[i] = sin(i + 1);
    a.pass = KCP_BACKWARD;
    if (step(&a)) return 0;
    a.pass = KCP_FORWARD;
    for (int i = 0; i < n; i++) {
        const double at = in[i], h = 1e-5;
        double loss[2] = { 0, 0 };
        for (int side = 0; side < 2; side++) {
            in[i] = side ? at + h : at - h;
            if (step(&a)) return 0;
            for (int j = 0; j < T * V; j++)
                loss[side] += (&o[0][0])[j] * (&dO[0][0])[j];
            for (int j = 0; j < K * V; j++)
                loss[side] += (&ht[0][0])[j] * (&dht[0][0])[j];
        }
        in[i] = at;
        if (!(fabs((loss[1] - loss[0]) / (2 * h) - got[i]) <= 1e-8)) return 0;
    }
    return 1;
    //< differences
}
