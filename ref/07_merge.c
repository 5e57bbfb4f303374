/* 07_merge.c -- applies, composes and folds affine maps, in double precision.
 * Book: chapters 07, 11 (with M^T). */
#include "checked.h"
#include "ref.h"

#include <stdlib.h>
#include <string.h>

/* Applies the map of one head: next <- op(M) S + h on columns v0 .. v0+Vb-1. op(M) is
 * M^T if `backward` is 1, otherwise M. If `first` is 1, sets next <- h without reading
 * S or M, which may be uninitialized. */
static void step(int K, int V, const double map[K][V + K], int backward, int first,
                 int v0, int Vb, const double *S, int ld, double next[K][Vb])
{
    //> fold_step
    for (int i = 0; i < K; i++) {
        for (int v = 0; v < Vb; v++) next[i][v] = map[i][v0 + v];
        for (int p = 0; p < K && !first; p++) {
            const double M = backward ? map[p][V + i] : map[i][V + p];
            for (int v = 0; v < Vb; v++) next[i][v] += M * S[p * ld + v];
        }
    }
    //< fold_step
}

/* Sets S_out = op(M) S_in + h for every head. comm.h describes the parameters. */
static int apply(int HV, int K, int V, const void *maps, int backward, int first,
                 int v0, int Vb, const void *S_in, int ld_in, void *S_out, int ld_out,
                 struct CUstream_st *stream)
{
    const double (*map)[K][V + K] = maps, (*in)[K][ld_in] = S_in;
    double (*out)[K][ld_out] = S_out;
    double (*next)[Vb] = malloc(sizeof(double) * K * Vb);  /* S_in may equal S_out */
    if (!next) return KCP_NO_MEMORY;
    for (int n = 0; n < HV; n++) {
        const double *S = first ? NULL : &in[n][0][0];
        step(K, V, map[n], backward, first, v0, Vb, S, ld_in, next);
        for (int i = 0; i < K; i++)
            memcpy(out[n][i], next[i], sizeof(double) * Vb);
    }
    free(next);
    return KCP_OK;
}

/* Computes the map that applies `a`, then `b`: h = op(M_b) h_a + h_b and M = M_b M_a.
 * In backward, M = M_a M_b, because (M_a M_b)^T = M_b^T M_a^T. */
//> compose
static int compose(int HV, int K, int V, const void *b_, const void *a_, int backward,
                   int a_first, void *out_, struct CUstream_st *stream)
{
    const double (*b)[K][V + K] = b_, (*a)[K][V + K] = a_;
    double (*out)[K][V + K] = out_;
    for (int n = 0; n < HV; n++)
        for (int i = 0; i < K; i++) {
            double *h = out[n][i], *M = out[n][i] + V;
            for (int v = 0; v < V; v++) h[v] = b[n][i][v];
            for (int p = 0; p < K; p++) {
                const double M_b = backward ? b[n][p][V + i] : b[n][i][V + p];
                for (int v = 0; v < V; v++) h[v] += M_b * a[n][p][v];
            }
            for (int j = 0; j < K && !a_first; j++) M[j] = 0;
            for (int p = 0; p < K && !a_first; p++) {
                const double (*left)[V + K] = backward ? a[n] : b[n];
                const double (*right)[V + K] = backward ? b[n] : a[n];
                for (int j = 0; j < K; j++)
                    M[j] += left[i][V + p] * right[p][V + j];
            }
        }
    return KCP_OK;
}
//< compose

static int copy(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                size_t width, size_t rows, struct CUstream_st *stream)
{
    for (size_t i = 0; i < rows; i++)
        memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    return KCP_OK;
}

const struct kcp_mapops ref_mapops = {
    "reference", sizeof(double), apply, compose, copy, &kcp_diagonal_mapops, 0 };

/* Computes S [HV,K,V] from maps j0 .. j1-1 [R,HV,K,V+K], where `range` is {j0, j1}:
 *   S = h_{j0};    S <- M_j S + h_j,    j = j0+1 .. j1-1    (forward)
 *   S = h_{j1-1};  S <- M_j^T S + h_j,  j = j1-2 .. j0      (backward)
 * An empty range gives S = 0. */
//> merge
int ref_merge(struct kcp_merge *a)
{
    const int refused = kcp_begin("07_merge", KCP_HOST, a, NULL);
    if (refused) return refused;
    const int HV = a->HV, K = a->K, V = a->V, backward = a->pass == KCP_BACKWARD;
    //> shape
    const double (*map)[HV][K][V + K] = a->maps;
    //< shape
    const int *range = a->range, j0 = range[0], j1 = range[1];
    int err = KCP_OK;

    if (j0 >= j1) memset(a->S, 0, sizeof(double) * HV * K * V);
    for (int j = j0; j < j1 && !err; j++) {
        const int at = backward ? j0 + j1 - 1 - j : j;
        err = apply(HV, K, V, map[at], backward, j == j0, 0, V, a->S, V, a->S, V, NULL);
    }
    return err;
}
//< merge
