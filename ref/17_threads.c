/* 17_threads.c -- kernel 1 of chapter 17 in C: each thread computes one column of S.
 * Book: chapter 17. */
#include "17_block.h"
#include "checked.h"
#include "ref.h"

enum { WIDEST = 256, LONGEST = 64 };            /* K <= WIDEST, C <= LONGEST */

static void column(const struct kcp_ladder *a, int s, int n, int v);

//> kernel
/* Computes column v of S for head n and segment s, as thread v of a block does. */
static void column(const struct kcp_ladder *a, int s, int n, int v)
{
    const int HV = a->HV, K = a->K, V = a->V, *cn = a->cn;
    const double (*u)[HV][V] = a->u, (*w)[HV][K] = a->w, (*kg)[HV][K] = a->kg;
    const double (*decay)[HV][K] = a->decay, (*h_in)[HV][K][V] = a->h_in;
    double (*v_new)[HV][V] = a->v_new, (*h_out)[HV][K][V] = a->h_out;
    double S[WIDEST], x[LONGEST];
    for (int i = 0; i < K; i++) S[i] = h_in ? h_in[s][n][i][v] : 0;
    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const struct block_tokens z = block_tokens(a, s, c);
        for (int j = 0; j < z.len; j++) {
            x[j] = u[z.t + j][n][v];
            for (int p = 0; p < K; p++) x[j] -= w[z.t + j][n][p] * S[p];
            v_new[z.t + j][n][v] = x[j];
        }
        for (int i = 0; i < K; i++) {
            S[i] *= decay[c][n][i];
            for (int j = 0; j < z.len; j++) S[i] += kg[z.t + j][n][i] * x[j];
        }
    }
    for (int i = 0; i < K; i++) h_out[s][n][i][v] = S[i];
}
//< kernel

int ref_ladder_threads(struct kcp_ladder *a)
{
    const int refused = kcp_begin("17_ladder", KCP_HOST, a, NULL);
    if (refused) return refused;
    if (a->K > WIDEST || a->C > LONGEST) return KCP_NA;
    block_launch(column, a);
    return KCP_OK;
}
