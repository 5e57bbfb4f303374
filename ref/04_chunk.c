/* 04_chunk.c -- scans the state over chunks and computes the output of every token.
 * Book: chapter 04. */
#include "checked.h"
#include "ref.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens t0 .. t0+c-1 of value head n: one chunk. m is the query/key head of n. */
struct block { int64_t t0; int c, n, m; };

/* v_new = u - w S, where S is the state at the chunk's start, before any decay */
static void correct(const struct kcp_chunk *a, struct block b, double S[a->K][a->V])
{
    const int HV = a->HV, K = a->K, V = a->V;
    const double (*u)[HV][V] = a->u, (*w)[HV][K] = a->w;
    double (*v_new)[HV][V] = a->v_new;
    for (int64_t t = b.t0; t < b.t0 + b.c; t++) {
        for (int v = 0; v < V; v++) v_new[t][b.n][v] = u[t][b.n][v];
        for (int p = 0; p < K; p++)
            for (int v = 0; v < V; v++) v_new[t][b.n][v] -= w[t][b.n][p] * S[p][v];
    }
}

/* o = scale qg S + tril(Aqk) v_new, where Aqk already includes the factor `scale` */
static void output(const struct kcp_chunk *a, struct block b, double S[a->K][a->V])
{
    const int HV = a->HV, K = a->K, V = a->V, C = a->C, kda = a->model == KCP_KDA;
    const double (*Aqk)[HV][C] = a->Aqk, (*v_new)[HV][V] = a->v_new;
    const double (*q)[a->H][K] = a->q, (*qg)[HV][K] = a->qg, (*G)[HV][a->KG] = a->G;
    double (*o)[HV][V] = a->o;
    for (int i = 0; i < b.c; i++) {
        const int64_t t = b.t0 + i;
        const double *qt = kda ? qg[t][b.n] : q[t][b.m];     /* GDN: qg = f q */
        const double f = kda ? 1 : exp2(G[t][b.n][0]);
        for (int v = 0; v < V; v++) o[t][b.n][v] = 0;
        for (int p = 0; p < K; p++)
            for (int v = 0; v < V; v++) o[t][b.n][v] += a->scale * f * qt[p] * S[p][v];
        for (int j = 0; j <= i; j++)
            for (int v = 0; v < V; v++)
                o[t][b.n][v] += Aqk[t][b.n][j] * v_new[b.t0 + j][b.n][v];
    }
}

/* S <- diag(exp2(G_last)) S + kg^T v_new */
static void advance(const struct kcp_chunk *a, struct block b, double S[a->K][a->V])
{
    const int HV = a->HV, K = a->K, V = a->V, KG = a->KG, kda = a->model == KCP_KDA;
    const double (*G)[HV][KG] = a->G, (*v_new)[HV][V] = a->v_new;
    const double (*k)[a->H][K] = a->k, (*keys)[HV][K] = a->kg;
    const double *last = G[b.t0 + b.c - 1][b.n];
    //> advance
    for (int i = 0; i < K; i++) {
        const double decay = exp2(last[KG > 1 ? i : 0]);
        for (int v = 0; v < V; v++) S[i][v] *= decay;
    }
    for (int64_t t = b.t0; t < b.t0 + b.c; t++) {
        const double *kg = kda ? keys[t][b.n] : k[t][b.m];   /* GDN: kg = f k */
        const double f = kda ? 1 : exp2(last[0] - G[t][b.n][0]);
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) S[i][v] += f * kg[i] * v_new[t][b.n][v];
    }
    //< advance
}

/* Starts every segment s from state h_in [s], or from 0 if h_in is NULL. Writes o and
 * v_new [T,HV,V], the states h [NC,HV,K,V] at the starts of the chunks, and the states
 * h_out [NS,HV,K,V] at the ends of the segments. */
int ref_chunk(struct kcp_chunk *a)
{
    const int refused = kcp_begin("04_chunk", KCP_HOST, a, NULL);
    if (refused) return refused;
    const int HV = a->HV, K = a->K, V = a->V, *cu = a->cu, *cn = a->cn;
    const double (*h_in)[HV][K * V] = a->h_in;
    double (*h)[HV][K * V] = a->h, (*h_out)[HV][K * V] = a->h_out;
    const size_t state = sizeof(double) * K * V;
    for (int s = 0; s < a->NS; s++)
        for (int n = 0; n < HV; n++) {
            double (*S)[V] = (void *)h_out[s][n];
            if (h_in) memcpy(S, h_in[s][n], state);
            else memset(S, 0, state);
            for (int c = cn[s]; c < cn[s + 1]; c++) {
                const int t0 = cu[s] + (c - cn[s]) * a->C, left = cu[s + 1] - t0;
                const int len = left < a->C ? left : a->C;
                const struct block b = { t0, len, n, n / (HV / a->H) };
                memcpy(h[c][n], S, state);
                correct(a, b, S);
                output(a, b, S);
                advance(a, b, S);
            }
        }
    return KCP_OK;
}
