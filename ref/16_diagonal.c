/* 16_diagonal.c -- maps with a diagonal M. A rank sends only the diagonal of M.
 * Book: chapter 16.
 *
 * A map is [h | d] [HV,K,V+1], with M = diag(d). A diagonal M equals M^T, so both
 * passes use the same code. Results have the same bits as with a full M, because the
 * terms off the diagonal are zero. */
#include "16_family.h"

#include <string.h>

/* Computes S_out = d S_in + h, row by row. comm.h describes the parameters. */
static int apply_diagonal(int HV, int K, int V, const void *maps, int backward,
                          int first, int v0, int Vb, const void *S_in, int ld_in,
                          void *S_out, int ld_out, struct CUstream_st *stream)
{
    const double (*map)[V + 1] = maps, (*S)[ld_in] = S_in;
    double (*next)[ld_out] = S_out;
    //> apply-diagonal
    for (int i = 0; i < HV * K; i++) {
        const double *h = map[i] + v0, d = map[i][V];
        for (int v = 0; v < Vb; v++)
            next[i][v] = first ? h[v] : h[v] + d * S[i][v];
    }
    //< apply-diagonal
    return KCP_OK;
}

/* Computes the map that applies `a`, then `b`: h = d_b h_a + h_b, d = d_b d_a. */
static int compose_diagonal(int HV, int K, int V, const void *b_, const void *a_,
                            int backward, int a_first, void *out_,
                            struct CUstream_st *stream)
{
    const double (*b)[V + 1] = b_, (*a)[V + 1] = a_;
    double (*out)[V + 1] = out_;
    for (int i = 0; i < HV * K; i++) {
        const double d = b[i][V];
        for (int v = 0; v < V; v++) out[i][v] = b[i][v] + d * a[i][v];
        if (!a_first) out[i][V] = d * a[i][V];
    }
    return KCP_OK;
}

static int copy_diagonal(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t rows, struct CUstream_st *stream)
{
    return ref_mapops.copy(to, to_pitch, from, from_pitch, width, rows, stream);
}

const struct kcp_mapops kcp_diagonal_mapops = {
    "reference, M diagonal", sizeof(double), apply_diagonal, compose_diagonal,
    copy_diagonal, NULL, 1 };

/* Converts n maps [h | M] [HV,K,V+K] to [h | d] [HV,K,V+1] in place. Starts with the
 * first row, because each row moves to a lower address. */
void family_diagonal(int n, int HV, int K, int V, double *maps)
{
    for (int64_t i = 0; i < (int64_t)n * HV * K; i++) {
        const double *map = maps + i * (V + K), d = map[V + i % K];
        memmove(maps + i * (V + 1), map, sizeof *maps * V);
        maps[i * (V + 1) + V] = d;
    }
}
