/* 17_banks.c -- kernel 6 of chapter 17 in C: reads tiles that the copy engine swizzled.
 * Book: chapter 17. */
#include "17_block.h"
#include "checked.h"
#include "ref.h"

#include <string.h>

enum { TILE = TILE_ROWS * TILE_COLUMNS, WIDE = 4 };   /* K <= 64 * WIDE */

/* The data of a warp, which computes 16 columns of the state. The tiles of w and kg are
 * swizzled, unlike those in 17_lanes.c. */
struct warp {
    struct fragment_d S[WIDE * 8], y[8];
    double w[WIDE * TILE], kg[WIDE * TILE];
};

static int piece_at(int row, int piece);

//> swizzle
/* Returns the byte offset of columns 8 * piece .. 8 * piece + 7 of row `row`.
 * warp_tma_load writes tiles of 64 columns, with 2 bytes per number. */
static int piece_at(int row, int piece)
{
    const int tile = piece / 8, place = (piece % 8) ^ (row % 8);
    return 2 * TILE * tile + 128 * row + 16 * place;
}
//< swizzle

/* Makes two operands B from the four registers that ldmatrix returns. The operands hold
 * columns 0..7 and 8..15 of the 16 x 16 block. */
static void two_b(struct fragment_b *b, const double (*r)[8])
{
    for (int lane = 0; lane < LANES; lane++)
        for (int x = 0; x < 4; x++) {
            b[0].x[lane][x] = r[lane][x];
            b[1].x[lane][x] = r[lane][4 + x];
        }
}

/* Adds A * B to the two tiles at `to`. A is in the tiles `d`, B in registers `r`. */
static void multiply(struct fragment_d *to, const struct fragment_d *d,
                     const double (*r)[8])
{
    struct fragment_a a;
    struct fragment_b b[2];
    for (int lane = 0; lane < LANES; lane++)
        for (int x = 0; x < 8; x++) a.x[lane][x] = d[x / 4].x[lane][x % 4];
    two_b(b, r);
    warp_mma(&to[0], &a, &b[0]);
    warp_mma(&to[1], &a, &b[1]);
}

//> rung
/* times_w() computes y^T = S^T w^T. add_kg() computes S^T += v_new^T kg, with v_new in
 * m->y. Both add to *times their shared-memory reads, 4 or more per ldmatrix. */
static void times_w(struct warp *m, int K, int64_t *times)
{
    memset(m->y, 0, sizeof m->y);
    for (int i = 0; i < (K + 15) / 16; i++)
        for (int c = 0; c < 4; c++) {
            double r[LANES][8];
            int byte[LANES];
            for (int l = 0; l < LANES; l++)
                byte[l] = piece_at(16 * c + l % 8 + l / 16 * 8, 2 * i + l / 8 % 2);
            *times += warp_ldmatrix(r, m->w, byte, 0);
            multiply(m->y + 2 * c, m->S + 2 * i, r);
        }
}

static void add_kg(struct warp *m, int K, int64_t *times)
{
    for (int c = 0; c < 4; c++)
        for (int i = 0; i < (K + 15) / 16; i++) {
            double r[LANES][8];
            int byte[LANES];
            for (int l = 0; l < LANES; l++)
                byte[l] = piece_at(16 * c + l % 16, 2 * i + l / 16);
            *times += warp_ldmatrix(r, m->kg, byte, 1);
            multiply(m->S + 2 * i, m->y + 2 * c, r);
        }
}
//< rung

/* Computes y <- u - y, v_new = y, and S [i,v] <- decay_i S [i,v]. In a tile of D,
 * register x of lane l is in row l / 4 + 8 * (x / 2) and column 2 * (l % 4) + x % 2. */
static void between(const struct kcp_ladder *a, struct warp *m, struct block_tokens z,
                    int n, int v0, const double *decay)
{
    const double (*u)[a->HV][a->V] = a->u;
    double (*v_new)[a->HV][a->V] = a->v_new;
    for (int l = 0; l < LANES; l++)
        for (int x = 0; x < 4; x++) {
            const int column = l % 4 * 2 + x % 2, v = v0 + l / 4 + x / 2 * 8;
            for (int c = 0; c < 8; c++) {
                const int j = c * 8 + column, there = j < z.len && v < a->V;
                double *y = &m->y[c].x[l][x];
                *y = there ? u[z.t + j][n][v] - *y : 0;
                if (there) v_new[z.t + j][n][v] = *y;
            }
            for (int i = column; i < a->K; i += 8) m->S[i / 8].x[l][x] *= decay[i];
        }
}

/* Computes all chunks of segment s. If a->work points to one int64_t, adds to it the
 * number of times that ldmatrix instructions read shared memory. */
static void chunks(const struct kcp_ladder *a, void *unit, double *S, int wide, int s,
                   int n, int v0)
{
    const int HV = a->HV, K = a->K, *cn = a->cn;
    const double (*w)[HV][K] = a->w, (*kg)[HV][K] = a->kg, (*decay)[HV][K] = a->decay;
    struct warp *m = unit;
    int64_t none, *times = a->work_bytes == sizeof none ? a->work : &none;
    warp_state(m->S, S, wide, 0);
    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const struct block_tokens z = block_tokens(a, s, c);
        for (int i = 0; i < WIDE; i++) {
            const int j = 64 * i < K ? 64 * i : 0, columns = 64 * i < K ? K - j : 0;
            warp_tma_load(m->w + i * TILE, w[z.t][n] + j, HV * K, z.len, columns);
            warp_tma_load(m->kg + i * TILE, kg[z.t][n] + j, HV * K, z.len, columns);
        }
        times_w(m, K, times);
        between(a, m, z, n, v0, decay[c][n]);
        add_kg(m, K, times);
    }
    warp_state(m->S, S, wide, 1);
}

int ref_ladder_banks(struct kcp_ladder *a)
{
    const int refused = kcp_begin("17_ladder", KCP_HOST, a, NULL);
    return refused ? refused : block_columns(a, 16, sizeof(struct warp), chunks);
}
