/* points.c -- prints numbers that the figures of chapters 02, 05, 06 and 17 show.
 * Book: chapters 02, 05, 06 and 17.
 * book.mk includes cuda/tile/smem_desc.cuh and swizzle.cuh before this file, without
 * CUDA's keywords. In this program, smem_addr returns the value of a pointer. */
#include "ref.h"
#include "base/random.h"
#include "ref/17_warp.h"

#include <stdio.h>
#include <stdlib.h>

enum { K = 64, T = 1024 };

/* Chapter 02: prints the gate of each token, and G, the sum since the chunk's start. */
static void gates(void)
{
    uint64_t seed = 3;
    double G = 0;
    printf("== points-gates\n");
    for (int t = 0; t < 256; t++) {
        const double g = -0.2 * -log(1 - random_uniform(&seed));
        G = (t % 64 ? G : 0) + g;
        printf("%.17g %.17g\n", g, G);
    }
}

/* Chapter 05: computes M <- A_t M, A_t = (I - beta k k^T) diag(exp g), with a random
 * unit key k. Gates g are -strength |N(0,1)|, or logsigmoid(N(0,1)) if strength < 0. */
static void token(double M[K][K], double strength, uint64_t *seed)
{
    double k[K], length = 0, row[K] = { 0 };
    for (int i = 0; i < K; i++) {
        k[i] = random_normal(seed);
        length += k[i] * k[i];
    }
    const double beta = 1 / (1 + exp(3 - random_normal(seed)));
    for (int i = 0; i < K; i++) {
        const double z = random_normal(seed);
        const double g = strength < 0 ? -log1p(exp(-z)) : -strength * fabs(z);
        k[i] /= sqrt(length);
        for (int p = 0; p < K; p++) {
            M[i][p] *= exp(g);
            row[p] += k[i] * M[i][p];
        }
    }
    for (int i = 0; i < K; i++)
        for (int p = 0; p < K; p++) M[i][p] -= beta * k[i] * row[p];
}

/* Chapter 05: prints |M|_F / sqrt(K) after t tokens, for five strengths of gates. */
static void survival(void)
{
    const double strength[] = { 0, 1.0 / 1024, 1.0 / 128, 1.0 / 16, -1 };
    printf("== points-survival\n");
    for (int c = 0; c < 5; c++) {
        double M[K][K] = { { 0 } }, alive = 1;
        uint64_t seed = 5;
        for (int i = 0; i < K; i++) M[i][i] = 1;
        for (int t = 0; t <= T && alive >= 1e-8; t++) {
            double s = 0;
            for (int i = 0; i < K * K; i++)
                s += M[i / K][i % K] * M[i / K][i % K];
            alive = sqrt(s / K);
            if (t % 8 == 0 || alive < 0.01)
                printf("%d %d %.17g\n", c, t, alive);
            token(M, strength[c], &seed);
        }
    }
}

/* Chapter 06: prints the plan of four packed sequences on three ranks. For a segment,
 * prints sequence, first token, end, whether it is the sequence's last, and how many of
 * h_ext and M (0 to 2) are needed. For a rank, prints first token and four counts. */
static void plan(void)
{
    const int64_t cu[] = { 0, 6, 22, 25, 30 };
    struct kcp_plan *p;
    if (kcp_plan_make(&p, 4, cu, 3, NULL, 0, 4, 4, NULL)) exit(1);
    printf("== points-segments\n");
    for (int j = 0; j < p->S; j++) {
        const struct kcp_segment *s = &p->seg[j];
        const int want = kcp_plan_want(p, j, 0);
        printf("%d %d %d %d %d\n", (int)s->n, (int)s->begin, (int)s->end, s->last,
               !!(want & KCP_WANT_H) + !!(want & KCP_WANT_M));
    }
    printf("== points-ranks\n");
    for (int r = 0; r < 3; r++) {
        const struct kcp_context *c = &p->ctx[r];
        printf("%d %d %d %d %d\n", (int)c->begin, c->pre_num_ranks, c->post_num_ranks,
               (int)c->NS, (int)c->NC);
    }
    kcp_plan_free(p);
}

/* Chapter 17: for a plain and for a swizzled tile, prints the offsets of the 16-byte
 * pieces of 8 rows, one line per row; then how many reads piece 2 of 8 rows takes. */
static void banks(void)
{
    static double tile[64 * 64], r[LANES][8];
    int byte[LANES];
    printf("== points-banks\n");
    for (int swizzled = 0; swizzled < 2; swizzled++) {
        for (int i = 0; i < 64; i++)
            printf(i % 8 < 7 ? "%d " : "%d\n",
                   swizzled ? swizzle128_offset(i / 8, i % 8) : 16 * i);
        for (int l = 0; l < LANES; l++)
            byte[l] = swizzled ? swizzle128_offset(l % 8, 2) : 128 * (l % 8) + 32;
        printf("%d\n", warp_ldmatrix(r, tile, byte, 0) / 4);
    }
}

/* Chapter 17: prints the descriptors of w and kg at byte 0x8400 of shared memory, and
 * what must be added to them for the next 16 keys and for the next 64 columns. */
static void descriptors(void)
{
    const bf16 *tile = (const bf16 *)0x8400;
    printf("== points-descriptors\n%llu %llu\n%d %d %d\n",
           (unsigned long long)smem_desc_k_major(tile),
           (unsigned long long)smem_desc_mn_major(tile, SWIZZLE128_TILE),
           DESC_STEP_K_MAJOR, DESC_STEP_MN_MAJOR, DESC_NEXT_TILE);
}

int main(void)
{
    gates();
    survival();
    plan();
    banks();
    descriptors();
    return 0;
}
