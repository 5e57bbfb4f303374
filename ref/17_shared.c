/* 17_shared.c -- kernel 2 of chapter 17 in C: loads rows to shared memory.
 * Book: chapter 17. */
#include "17_block.h"
#include "checked.h"
#include "ref.h"

enum { WIDEST = 256, LONGEST = 64 };            /* K <= WIDEST, C <= LONGEST */

/* A block's shared memory. */
struct block { double w[LONGEST * WIDEST], kg[LONGEST * WIDEST]; };

static void load_rows(double *tile, const double *tensor, int64_t first, int64_t stride,
                      int len, int columns);
static void column(const struct block *m, double *S, const double *decay, int K,
                   int len, double *x);

//> load
/* Copies rows of `columns` numbers to adjacent rows of a tile. Row j begins at
 * tensor[first + j * stride]. Adjacent lanes copy adjacent groups of 8 numbers. */
static void load_rows(double *tile, const double *tensor, int64_t first, int64_t stride,
                      int len, int columns)
{
    const int pieces = (columns + 7) / 8;
    for (int i = 0; i < len * pieces; i += LANES) {
        int64_t from[LANES];
        int to[LANES], count[LANES];
        for (int l = 0; l < LANES; l++) {
            const int row = (i + l) / pieces, at = (i + l) % pieces * 8;
            to[l] = row * columns + at;
            from[l] = first + row * stride + at;
            count[l] = columns - at < 8 ? columns - at : 8;
            if (row >= len) count[l] = 0;
        }
        block_load(tile, to, tensor, from, count);
    }
}

/* Computes one chunk in the thread that has column S [K] of the state. x [len] is this
 * column of u on entry and of v_new on return. */
static void column(const struct block *m, double *S, const double *decay, int K,
                   int len, double *x)
{
    for (int j = 0; j < len; j++) {
        double sum[4] = { 0 };
        for (int p = 0; p < K; p++) sum[p % 4] += m->w[j * K + p] * S[p];
        x[j] -= sum[0] + sum[1] + (sum[2] + sum[3]);
    }
    for (int i = 0; i < K; i++) {
        S[i] *= decay[i];
        for (int j = 0; j < len; j++) S[i] += m->kg[j * K + i] * x[j];
    }
}
//< load

/* Computes one chunk: all threads load, then all threads compute. A CUDA kernel needs a
 * barrier between these steps. Row v of S is column v of the state, which thread v has
 * in registers. */
static void one_chunk(const struct kcp_ladder *a, struct block *m, double *S, int wide,
                      int s, int n, int c)
{
    const int HV = a->HV, K = a->K, V = a->V;
    const struct block_tokens z = block_tokens(a, s, c);
    const double (*u)[HV][V] = a->u, (*decay)[HV][K] = a->decay;
    double (*v_new)[HV][V] = a->v_new, x[LONGEST];
    const int64_t first = (z.t * HV + n) * K;
    load_rows(m->w, a->w, first, HV * K, z.len, K);
    load_rows(m->kg, a->kg, first, HV * K, z.len, K);
    for (int v = 0; v < V; v++) {
        for (int j = 0; j < z.len; j++) x[j] = u[z.t + j][n][v];
        column(m, S + v * wide, decay[c][n], K, z.len, x);
        for (int j = 0; j < z.len; j++) v_new[z.t + j][n][v] = x[j];
    }
}

static void chunks(const struct kcp_ladder *a, void *m, double *S, int wide, int s,
                   int n, int v0)
{
    const int *cn = a->cn;
    for (int c = cn[s]; c < cn[s + 1]; c++) one_chunk(a, m, S, wide, s, n, c);
}

int ref_ladder_shared(struct kcp_ladder *a)
{
    const int refused = kcp_begin("17_ladder", KCP_HOST, a, NULL);
    return refused ? refused : block_columns(a, a->V, sizeof(struct block), chunks);
}
