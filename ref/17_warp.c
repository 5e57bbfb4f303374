/* 17_warp.c -- models mma, ldmatrix and a swizzled copy, as the PTX manual draws them.
 * Book: chapter 17. */
#include "17_warp.h"

/* Gathers A and B from the lanes, and adds A * B to the numbers of D in the lanes. The
 * lane number and the register number determine row and column. */
void warp_mma(struct fragment_d *d, const struct fragment_a *a,
              const struct fragment_b *b)
{
    double A[16][16], B[16][8];
    for (int l = 0; l < LANES; l++) {
        const int g = l >> 2, e = (l & 3) << 1;
        for (int x = 0; x < 8; x++)
            A[g | (x & 2) << 2][e | (x & 1) | (x & 4) << 1] = a->x[l][x];
        for (int x = 0; x < 4; x++) B[e | (x & 1) | (x & 2) << 2][g] = b->x[l][x];
    }
    for (int l = 0; l < LANES; l++)
        for (int x = 0; x < 4; x++) {
            const int row = l >> 2 | (x & 2) << 2, column = (l & 3) << 1 | (x & 1);
            for (int p = 0; p < 16; p++) d->x[l][x] += A[row][p] * B[p][column];
        }
}

/* Returns the number of reads of shared memory that eight rows of 16 bytes need: the
 * largest number of words in one bank. Shared memory has 32 banks of 4 bytes. */
static int times_read(const int *byte)
{
    int most = 1;
    for (int bank = 0; bank < 32; bank++) {
        int words = 0;
        for (int i = 0; i < 8; i++)
            for (int word = byte[i] / 4; word < byte[i] / 4 + 4; word++)
                words += word % 32 == bank;
        if (words > most) most = words;
    }
    return most;
}

int warp_ldmatrix(double (*x)[8], const double *shared, const int *byte, int trans)
{
    int times = 0;
    for (int j = 0; j < 4; j++) {
        const int *row = byte + 8 * j;
        for (int l = 0; l < LANES; l++)
            for (int h = 0; h < 2; h++) {
                const int r = l / 4, c = l % 4 * 2 + h;
                const int from = trans ? row[c] / 2 + r : row[r] / 2 + c;
                x[l][2 * j + h] = shared[from];
            }
        times += times_read(row);
    }
    return times;
}

/* Row r has eight pieces of 16 bytes. Piece p is stored at position p ^ (r % 8) of the
 * row. */
void warp_tma_load(double *tile, const double *from, int64_t stride, int rows,
                   int columns)
{
    for (int r = 0; r < TILE_ROWS; r++)
        for (int c = 0; c < TILE_COLUMNS; c++) {
            const int place = (c / 8 ^ r % 8) * 8 + c % 8;
            const int there = r < rows && c < columns;
            tile[r * TILE_COLUMNS + place] = there ? from[r * stride + c] : 0;
        }
}

void warp_state(struct fragment_d *tiles, double *S, int wide, int out)
{
    for (int i = 0; i < wide / 8; i++)
        for (int l = 0; l < LANES; l++)
            for (int x = 0; x < 4; x++) {
                const int row = l / 4 + x / 2 * 8, column = 8 * i + l % 4 * 2 + x % 2;
                if (out) S[row * wide + column] = tiles[i].x[l][x];
                else tiles[i].x[l][x] = S[row * wide + column];
            }
}
