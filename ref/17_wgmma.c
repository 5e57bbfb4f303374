/* 17_wgmma.c -- kernel 7 of chapter 17 in C: descriptors locate operand B of wgmma.
 * Book: chapter 17. */
#include "17_block.h"
#include "checked.h"
#include "ref.h"

#include <string.h>

enum { TILE = TILE_ROWS * TILE_COLUMNS, WIDE = 4 };   /* K <= 64 * WIDE */
enum { TILE_BYTES = 2 * TILE };

/* A warpgroup computes 64 columns. Its data are S^T [64,K] and y^T [64,64], both row
 * major. Shared memory contains the tiles of w and, starting at byte KG, the tiles of
 * kg. */
enum { KG = WIDE * TILE_BYTES };
struct warpgroup {
    double *S, y[64 * 64], shared[2 * WIDE * TILE];
};

static void times_w(struct warpgroup *m, int K);
static void add_kg(struct warpgroup *m, int K);

//> products
/* Returns operand B's descriptor. In units of 16 bytes, bits 0 .. 13 are the address,
 * bits 16 .. 29 are the distance between tiles (unused if K-major), and bits 32 .. 45
 * are the distance between groups of eight rows. Bit 62 selects the swizzle of 128
 * bytes. A row of a K-major tile is a column of B, and one wgmma reads 16 numbers of
 * each row. A row of an MN-major tile is a row of B. */
static uint64_t descriptor_k_major(int byte)
{
    return 1ull << 62 | 64ull << 32 | 1ull << 16 | byte / 16;
}

static uint64_t descriptor_mn_major(int byte)
{
    return 1ull << 62 | 64ull << 32 | (uint64_t)(TILE_BYTES / 16) << 16 | byte / 16;
}

/* Copies 16 columns of D, starting at column p, to operand A of the next product. */
static void a_of_d(double (*a)[16], const double *d, int columns, int p)
{
    for (int row = 0; row < 64; row++)
        for (int k = 0; k < 16; k++) a[row][k] = d[row * columns + p + k];
}

/* Computes y^T = S^T w^T, 16 keys per step. The next step begins 32 bytes later in the
 * rows of a tile. */
static void times_w(struct warpgroup *m, int K)
{
    memset(m->y, 0, sizeof m->y);
    for (int p = 0; p < K; p += 16) {
        double a[64][16];
        const int byte = p / 64 * TILE_BYTES + p % 64 * 2;
        a_of_d(a, m->S, K, p);
        warpgroup_mma(m->y, 64, (const double (*)[16])a, m->shared,
                      descriptor_k_major(byte), 0);
    }
}

/* Computes S^T += x^T kg, with x = u - y stored in m->y, 16 tokens per step. The next
 * step begins 16 rows later in the tiles. */
static void add_kg(struct warpgroup *m, int K)
{
    for (int j = 0; j < 64; j += 16) {
        double a[64][16];
        a_of_d(a, m->y, 64, j);
        warpgroup_mma(m->S, K, (const double (*)[16])a, m->shared,
                      descriptor_mn_major(KG + 128 * j), 1);
    }
}
//< products

/* Computes x = u - y, v_new = x, and S [i,v] <- decay_i S [i,v]. x is 0 for
 * tokens past the chunk's end and for columns >= V. */
static void between(const struct kcp_ladder *a, struct warpgroup *m,
                    struct block_tokens z, int n, int v0, int c)
{
    const int HV = a->HV, K = a->K, V = a->V, wide = (K + 15) / 16 * 16;
    const double (*u)[HV][V] = a->u, (*decay)[HV][K] = a->decay;
    double (*v_new)[HV][V] = a->v_new;
    for (int v = 0; v < 64; v++) {
        for (int j = 0; j < 64; j++) {
            const int there = j < z.len && v0 + v < V;
            double *y = &m->y[64 * v + j];
            *y = there ? u[z.t + j][n][v0 + v] - *y : 0;
            if (there) v_new[z.t + j][n][v0 + v] = *y;
        }
        for (int i = 0; i < K; i++) m->S[v * wide + i] *= decay[c][n][i];
    }
}

static void chunks(const struct kcp_ladder *a, void *unit, double *S, int wide, int s,
                   int n, int v0)
{
    struct warpgroup *m = unit;
    const int HV = a->HV, K = a->K, *cn = a->cn;
    const double (*w)[HV][K] = a->w, (*kg)[HV][K] = a->kg;
    m->S = S;
    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const struct block_tokens z = block_tokens(a, s, c);
        for (int i = 0; i < K; i += 64) {
            double *to = m->shared + i / 64 * TILE;
            warp_tma_load(to, w[z.t][n] + i, HV * K, z.len, K - i);
            warp_tma_load(to + KG / 2, kg[z.t][n] + i, HV * K, z.len, K - i);
        }
        times_w(m, wide);
        between(a, m, z, n, v0, c);
        add_kg(m, wide);
    }
}

int ref_ladder_wgmma(struct kcp_ladder *a)
{
    const int refused = kcp_begin("17_ladder", KCP_HOST, a, NULL);
    return refused ? refused : block_columns(a, 64, sizeof(struct warpgroup), chunks);
}
