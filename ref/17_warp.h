/* 17_warp.h -- a warp's instructions in plain C: what the hardware promises of them.
 *
 * Book: chapter 17.  Checked by: tests/17_ladder/checks.c.  Next: 17_warp.c.
 *
 * Numbers are double, so that a program over lanes can be held to 1e-12; where they lie
 * is as with bf16: two neighbours a register, 2 bytes each in shared memory.
 */
#ifndef KCP_17_WARP_H
#define KCP_17_WARP_H

#include <stdint.h>

enum { LANES = 32, TILE_ROWS = 64, TILE_COLUMNS = 64 };

/* What each lane holds: of A [16,16] four registers of two, of B [16,8] two registers
 * of two, of D [16,8] four of one. */
struct fragment_a { double x[LANES][8]; };
struct fragment_b { double x[LANES][4]; };
struct fragment_d { double x[LANES][4]; };

/* mma.m16n8k16: D += A B. */
void warp_mma(struct fragment_d *d, const struct fragment_a *a,
              const struct fragment_b *b);

/* ldmatrix.x4: lane 8 j + i points at 8 numbers, row i of the j-th 8 x 8 block, at
 * byte[lane] of shared memory. Register j of a lane, x[lane][2 j] and the next, is row
 * lane / 4, columns 2 (lane % 4) and the next, of block j; with trans, of block j
 * transposed. Returns how often shared memory is read: 4 when no bank is met twice in a
 * block, up to 32. */
int warp_ldmatrix(double (*x)[8], const double *shared, const int *byte, int trans);

/* The copy engine with a swizzle of 128 bytes: rows of up to 64 numbers, `stride`
 * apart, to a tile of 64 x 64; what is not there becomes 0. */
void warp_tma_load(double *tile, const double *from, int64_t stride, int rows,
                   int columns);

#endif
