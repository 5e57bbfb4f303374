/* 17_warp.h -- a warp's instructions in plain C, as the hardware defines them.
 *
 * Book: chapter 17.  Checked by: tests/17_ladder/checks.c.  Next: 17_warp.c.
 *
 * Numbers are double, so that results can be compared to 1e-12. Their positions are
 * those of bf16 numbers: two adjacent numbers per register, 2 bytes per number in
 * shared memory. */
#ifndef KCP_17_WARP_H
#define KCP_17_WARP_H

#include <stdint.h>

enum { LANES = 32, TILE_ROWS = 64, TILE_COLUMNS = 64 };

/* Registers of each lane: for A [16,16] four registers of two numbers, for B [16,8] two
 * registers of two, for D [16,8] four registers of one. */
struct fragment_a { double x[LANES][8]; };
struct fragment_b { double x[LANES][4]; };
struct fragment_d { double x[LANES][4]; };

/* mma.m16n8k16: D += A B. */
void warp_mma(struct fragment_d *d, const struct fragment_a *a,
              const struct fragment_b *b);

/* ldmatrix.x4. Lane 8 j + i gives the address of row i of the j-th 8 x 8 block: 8
 * numbers at byte[lane] of shared memory. Register j of a lane is x[lane][2 j] and
 * x[lane][2 j + 1]: row lane / 4, columns 2 (lane % 4) and 2 (lane % 4) + 1 of block j,
 * or of its transpose with `trans`. Returns the number of reads of shared memory: 4 if
 * no block has a bank conflict, up to 32. */
int warp_ldmatrix(double (*x)[8], const double *shared, const int *byte, int trans);

/* The copy engine with a swizzle of 128 bytes: copies rows of up to 64 numbers,
 * `stride` apart, to a tile of 64 x 64. The rest of the tile becomes 0. */
void warp_tma_load(double *tile, const double *from, int64_t stride, int rows,
                   int columns);

#endif
