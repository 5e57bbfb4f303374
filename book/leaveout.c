/* leaveout.c -- prints the error of dg without and with the terms of dG that cancel.
 * Book: chapter 10, which shows the output.
 *
 * All gates are equal. The exact dg comes from the adjoint of chapter 01. dG is the
 * sum of gradients of paths (dq1, dks, ...); columns "paths in bf16" round these. */
#include "ref.h"
#include "base/bf16.h"
#include "base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { C = 16, K = 8, V = 8 };
static const int one_stretch[] = { 0, C }, one_chunk[] = { 0, 1 }, first[] = { 0 };
static double q[C][K], k[C][K], v[C][V], dO[C][V], beta[C], g[C][K], G[C][K], h0[K][V];
static double Aqk[C][C], A[C][C], u[C][V], w[C][K], kg[C][K], qg[C][K], o[C][V];
static double v_new[C][V], h[K][V], h_out[K][V], dAqk[C][C], dvl[C][V], dU[C][V];
static double dS[K][V], dh_in[K][V], dht[K][V], truth[C][K], dg[C][K];

static double uniform(void)
{
    static uint64_t seed = 3;
    return random_uniform(&seed) - 0.5;
}

static double bf16(double x) { return bf16_value(bf16_of(x)); }

#define STAGE(type, name)                                                             \
    struct type name = { .T = C, .N = 1, .NS = 1, .NC = 1, .R = 1, .H = 1, .HV = 1,   \
                         .K = K, .V = V, .C = C, .KG = K, .model = KCP_KDA,           \
                         .scale = 1 };                                                \
    name.cu = one_stretch; name.cn = one_chunk; name.sc = first

static void references(void)
{
    static double dq[C][K], dk[C][K], dv[C][V], db[C], dh0[K][V], ht[K][V];
    static const int64_t cu[] = { 0, C };
    STAGE(kcp_wy, a);
    a.q = q; a.k = k; a.v = v; a.G = G; a.beta = beta;
    a.Aqk = Aqk; a.A = A; a.u = u; a.w = w; a.kg = kg; a.qg = qg;
    STAGE(kcp_chunk, b);
    b.qg = qg; b.kg = kg; b.u = u; b.w = w; b.Aqk = Aqk; b.G = G; b.h_in = h0;
    b.o = o; b.v_new = v_new; b.h = h; b.h_out = h_out;
    STAGE(kcp_chunk_backward, c);
    c.part = KCP_LOCAL | KCP_REVERSE;
    c.qg = qg;
    c.kg = kg;
    c.w = w;
    c.Aqk = Aqk;
    c.v_new = v_new; c.G = G; c.do_ = dO; c.dh_out = dht;
    c.dAqk = dAqk; c.dv_local = dvl; c.dU = dU; c.dh = dS; c.dh_in = dh_in;
    struct kcp_step s = { .T = C, .N = 1, .H = 1, .HV = 1, .K = K, .V = V, .KG = K,
                          .C = C, .scale = 1, .pass = KCP_BACKWARD };
    s.cu_seqlens = cu; s.q = q; s.k = k; s.v = v; s.g = g; s.beta = beta; s.h0 = h0;
    s.do_ = dO; s.dht = dht; s.o = o; s.ht = ht;
    s.dq = dq; s.dk = dk; s.dv = dv; s.dg = truth; s.dbeta = db; s.dh0 = dh0;
    if (ref_wy(&a) || ref_chunk(&b) || ref_chunk_backward(&c) || ref_step(&s)) {
        fprintf(stderr, "leaveout.c: a reference failed\n");
        exit(1);
    }
}

/* Computes dg from the paths of chapter 10. If `star`, leaves out the terms that
 * cancel: those of a token pair (i,i), and dks of the last row. */
static void paths(int star, int round)
{
    static double dw[C][K], dkgb[C][K], dA[C][C], X[C][C], dL[C][C], dG[C][K];
    memset(dkgb, 0, sizeof dkgb);
    memset(dL, 0, sizeof dL);
    memset(dG, 0, sizeof dG);
    for (int i = 0; i < C; i++)
        for (int d = 0; d < K; d++) {
            dw[i][d] = 0;
            for (int e = 0; e < V; e++) dw[i][d] -= dU[i][e] * h[d][e];
        }
    for (int i = 0; i < C; i++)
        for (int j = 0; j <= i; j++) {
            for (int d = 0; d < K; d++) dkgb[j][d] += A[i][j] * dw[i][d];
            dA[i][j] = 0;
            for (int e = 0; e < V && j < i; e++)
                dA[i][j] += dU[i][e] * v[j][e] * beta[j];
            for (int d = 0; d < K && j < i; d++)
                dA[i][j] += dw[i][d] * exp2(G[j][d]) * k[j][d] * beta[j];
        }
    for (int i = 0; i < C; i++)
        for (int j = 0; j < C; j++) {
            X[i][j] = 0;
            for (int p = 0; p <= i && p < C; p++) X[i][j] += dA[i][p] * A[j][p];
        }
    for (int p = 0; p < C; p++)
        for (int i = 0; i <= p; i++)
            for (int j = 0; j < i; j++) dL[i][j] -= A[p][i] * X[p][j];
    for (int i = 0; i < C; i++)
        for (int d = 0; d < K; d++) {
            const double last = G[C - 1][d];
            double dq1 = 0, dks = 0, dq2 = 0, dk2 = 0, dkt = 0;
            for (int e = 0; e < V; e++) {
                dq1 += exp2(G[i][d]) * dO[i][e] * h[d][e];
                dks += exp2(last - G[i][d]) * v_new[i][e] * dS[d][e];
            }
            for (int j = 0; j <= i - star; j++)
                dq2 += dAqk[i][j] * k[j][d] * exp2(G[i][d] - G[j][d]);
            for (int j = 0; j < i; j++)
                dk2 += dL[i][j] * k[j][d] * exp2(G[i][d] - G[j][d]);
            for (int r = i + star; r < C; r++)
                dkt += (dAqk[r][i] * q[r][d] +
                        (r > i ? dL[r][i] * beta[r] * k[r][d] : 0)) *
                       exp2(G[r][d] - G[i][d]);
            if (star && i == C - 1) dks = 0;
            double dkb = exp2(G[i][d]) * dkgb[i][d];
            if (round) {
                dq1 = bf16(dq1);
                dks = bf16(dks);
                dq2 = bf16(dq2);
                dk2 = bf16(dk2);
                dkt = bf16(dkt);
                dkb = bf16(dkb);
            }
            dG[i][d] += q[i][d] * dq1 - k[i][d] * dks + beta[i] * k[i][d] * dkb +
                        q[i][d] * dq2 + (beta[i] * dk2 - dkt) * k[i][d];
            dG[C - 1][d] += k[i][d] * dks;
        }
    for (int d = 0; d < K; d++) {
        for (int e = 0; e < V; e++)
            dG[C - 1][d] += exp2(G[C - 1][d]) * h[d][e] * dS[d][e];
        for (int i = C - 1; i >= 0; i--)
            dg[i][d] = dG[i][d] + (i < C - 1 ? dg[i + 1][d] : 0);
    }
}

static double error(void)
{
    double e = 0, n = 0;
    for (int i = 0; i < C; i++)
        for (int d = 0; d < K; d++) {
            e += (dg[i][d] - truth[i][d]) * (dg[i][d] - truth[i][d]);
            n += truth[i][d] * truth[i][d];
        }
    return sqrt(e / n);
}

int main(void)
{
    static const double gate[] = { -0.1, -1, -2, -5, -10, -20, -50 };
    for (int i = 0; i < C; i++) {
        double n = 0;
        for (int d = 0; d < K; d++) {
            q[i][d] = uniform();
            k[i][d] = uniform();
            n += k[i][d] * k[i][d];
        }
        for (int d = 0; d < K; d++) k[i][d] /= sqrt(n);
        for (int e = 0; e < V; e++) {
            v[i][e] = uniform();
            dO[i][e] = uniform();
        }
        beta[i] = 0.5 + uniform() / 2;
    }
    for (int i = 0; i < K; i++)
        for (int e = 0; e < V; e++) {
            h0[i][e] = uniform();
            dht[i][e] = uniform();
        }
    printf("== 10-leaveout\n  gate   size of dg     in double precision           "
           "paths in bf16\n");
    printf("                     left out      let in          left out      let in\n");
    for (int n = 0; n < 7; n++) {
        double size = 0, e[4];
        for (int i = 0; i < C; i++)
            for (int d = 0; d < K; d++) {
                g[i][d] = gate[n];
                G[i][d] = (i ? G[i - 1][d] : 0) + g[i][d] / log(2);
            }
        references();
        for (int i = 0; i < C; i++)
            for (int d = 0; d < K; d++)
                size += truth[i][d] * truth[i][d] / (C * K);
        for (int way = 0; way < 4; way++) {
            paths(way % 2 == 0, way / 2);
            e[way] = error();
        }
        printf("%6.1f   %9.1e   %9.1e   %9.1e       %9.1e   %9.1e\n", gate[n],
               sqrt(size), e[0], e[1], e[2], e[3]);
    }
    return 0;
}
