/* 17_lanes.c -- kernel 3 of chapter 17 in C: fills mma fragments for 32 lanes.
 * Book: chapter 17. */
#include "17_block.h"
#include "checked.h"
#include "ref.h"

enum { WIDEST = 256, LONGEST = 64 };            /* K <= WIDEST, C <= LONGEST */

/* A warp computes 16 columns of one chunk. Its data are S^T and y^T = S^T w^T in tiles
 * [16,8] of mma's result D, and the rows of w and kg, padded with zeros to 64 rows. */
struct warp {
    struct fragment_d S[WIDEST / 8], y[LONGEST / 8];
    double w[LONGEST][WIDEST], kg[LONGEST][WIDEST];
};

struct place { int row, column; };
static struct place place_of_d(int lane, int x);
static void a_of_d(struct fragment_a *a, const struct fragment_d *d);
static void b_of_w(struct fragment_b *b, const struct warp *m, int key, int token);
static void b_of_kg(struct fragment_b *b, const struct warp *m, int token, int key);

//> fragments
/* Returns the row and column, in a tile of D [16,8], of a lane's register x = 0..3. */
static struct place place_of_d(int lane, int x)
{
    const int g = lane / 4, e = lane % 4 * 2;
    return (struct place){ g + x / 2 * 8, e + x % 2 };
}

/* Converts two adjacent tiles of D (together [16,16]) to an operand A. Each lane needs
 * only the numbers in its own registers. */
static void a_of_d(struct fragment_a *a, const struct fragment_d *d)
{
    for (int lane = 0; lane < LANES; lane++)
        for (int x = 0; x < 8; x++) a->x[lane][x] = d[x / 4].x[lane][x % 4];
}

/* Fills B [16,8] for y^T = S^T w^T. Row i of B is key number `key` + i, and column j is
 * token number `token` + j. */
static void b_of_w(struct fragment_b *b, const struct warp *m, int key, int token)
{
    for (int lane = 0; lane < LANES; lane++) {
        const int g = lane / 4, e = lane % 4 * 2;
        for (int x = 0; x < 4; x++)
            b->x[lane][x] = m->w[token + g][key + e + x % 2 + x / 2 * 8];
    }
}

/* Fills B [16,8] for S^T += x^T kg. Rows of B are tokens, and columns are keys. */
static void b_of_kg(struct fragment_b *b, const struct warp *m, int token, int key)
{
    for (int lane = 0; lane < LANES; lane++) {
        const int g = lane / 4, e = lane % 4 * 2;
        for (int x = 0; x < 4; x++)
            b->x[lane][x] = m->kg[token + e + x % 2 + x / 2 * 8][key + g];
    }
}
//< fragments

//> rung
/* Computes y^T = S^T w^T. An mma instruction adds the terms of 16 keys for 8 tokens. */
static void times_w(struct warp *m, int K)
{
    for (int c = 0; c < LONGEST / 8; c++) m->y[c] = (struct fragment_d){ 0 };
    for (int i = 0; i < K; i += 16) {
        struct fragment_a a;
        struct fragment_b b;
        a_of_d(&a, m->S + i / 8);
        for (int c = 0; c < LONGEST / 8; c++) {
            b_of_w(&b, m, i, c * 8);
            warp_mma(&m->y[c], &a, &b);
        }
    }
}

/* Computes S^T += x^T kg, with x = u - y stored in m->y. */
static void add_kg(struct warp *m, int K)
{
    for (int c = 0; c < LONGEST; c += 16) {
        struct fragment_a a;
        struct fragment_b b;
        a_of_d(&a, m->y + c / 8);
        for (int i = 0; i < K; i += 8) {
            b_of_kg(&b, m, c, i);
            warp_mma(&m->S[i / 8], &a, &b);
        }
    }
}

/* Replaces y in the registers by x = u - y, and stores v_new = x. x is 0 for
 * tokens past the chunk's end and for columns >= V. */
static void subtract(const struct kcp_ladder *a, struct warp *m, int64_t t0, int len,
                     int n, int v0)
{
    const double (*u)[a->HV][a->V] = a->u;
    double (*v_new)[a->HV][a->V] = a->v_new;
    for (int c = 0; c < LONGEST / 8; c++)
        for (int lane = 0; lane < LANES; lane++)
            for (int x = 0; x < 4; x++) {
                const struct place at = place_of_d(lane, x);
                const int j = c * 8 + at.column, v = v0 + at.row;
                double *y = &m->y[c].x[lane][x];
                if (j < len && v < a->V) {
                    *y = u[t0 + j][n][v] - *y;
                    v_new[t0 + j][n][v] = *y;
                } else *y = 0;
            }
}

/* Copies a chunk's rows of w and kg, computes y, v_new and S [i,v] <- decay_i S [i,v],
 * then computes S^T += x^T kg. */
static void one_chunk(const struct kcp_ladder *a, struct warp *m, int64_t t0, int len,
                      int n, int v0, const double *decay)
{
    const int HV = a->HV, K = a->K;
    const double (*w)[HV][K] = a->w, (*kg)[HV][K] = a->kg;
    for (int j = 0; j < LONGEST; j++)
        for (int i = 0; i < WIDEST; i++) {
            m->w[j][i] = j < len && i < K ? w[t0 + j][n][i] : 0;
            m->kg[j][i] = j < len && i < K ? kg[t0 + j][n][i] : 0;
        }
    times_w(m, K);
    subtract(a, m, t0, len, n, v0);
    for (int i = 0; i < K; i++)
        for (int lane = 0; lane < LANES; lane++)
            for (int x = 0; x < 4; x++)
                if (place_of_d(lane, x).column == i % 8)
                    m->S[i / 8].x[lane][x] *= decay[i];
    add_kg(m, K);
}
//< rung

/* Computes columns v0 .. v0+15 of head n for all chunks of segment s. */
static void chunks(const struct kcp_ladder *a, void *unit, double *S, int wide, int s,
                   int n, int v0)
{
    struct warp *m = unit;
    const int *cn = a->cn;
    const double (*decay)[a->HV][a->K] = a->decay;
    warp_state(m->S, S, wide, 0);
    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const struct block_tokens z = block_tokens(a, s, c);
        one_chunk(a, m, z.t, z.len, n, v0, decay[c][n]);
    }
    warp_state(m->S, S, wide, 1);
}

int ref_ladder_lanes(struct kcp_ladder *a)
{
    const int refused = kcp_begin("17_ladder", KCP_HOST, a, NULL);
    return refused ? refused : block_columns(a, 16, sizeof(struct warp), chunks);
}
