/* 17_warp.h -- a warp's instructions in plain C, as the hardware defines them.
 * Book: chapter 17.
 *
 * Numbers are double, so that tests can compare results to 1e-12. Positions are those
 * of bf16 numbers: two numbers per register, 2 bytes per number in shared memory. */
#pragma once

#include <stdint.h>

enum { LANES = 32, TILE_ROWS = 64, TILE_COLUMNS = 64 };

/* Per lane, A [16,16] has four registers of two numbers, B [16,8] two registers of two
 * numbers, and D [16,8] four registers of one number. */
struct fragment_a { double x[LANES][8]; };
struct fragment_b { double x[LANES][4]; };
struct fragment_d { double x[LANES][4]; };

/* mma.m16n8k16: D += A * B. */
void warp_mma(struct fragment_d *d, const struct fragment_a *a,
              const struct fragment_b *b);

/* ldmatrix.x4 loads four 8 x 8 blocks. Row i of block j is 8 numbers at byte[8 * j + i]
 * of shared memory. Lane 8 * j + i supplies this address. Register j of a lane,
 * x[lane][2 * j] and x[lane][2 * j + 1], receives row lane / 4, columns 2 * (lane % 4)
 * and 2 * (lane % 4) + 1 of block j, or of the transposed block if `trans` is 1.
 * Returns the number of reads of shared memory: 4 if no bank conflicts, at most 32. */
int warp_ldmatrix(double (*x)[8], const double *shared, const int *byte, int trans);

/* Copies S [16,wide] to wide / 8 tiles of D or, if `out` is 1, the tiles to S. */
void warp_state(struct fragment_d *tiles, double *S, int wide, int out);

/* Copies rows of up to 64 numbers, `stride` apart, to a 64 x 64 tile, as the copy
 * engine does with a swizzle of 128 bytes. Sets the tile's remaining elements to 0. */
void warp_tma_load(double *tile, const double *from, int64_t stride, int rows,
                   int columns);
