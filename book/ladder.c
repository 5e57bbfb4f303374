/* ladder.c -- prints counts and layouts for the kernels of chapter 17.
 * Book: chapter 17. */
#include "ref/17_warp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { K = 128, V = 128, C = 64, CHUNKS = 128, HEADS = 96 };

/* Prints an answer to an exercise, or exits if a second computation gives another. */
static void say(const char *where, double x, double again)
{
    printf("@answer/%s %.0f\n", where, x);
    if (!(fabs(x - again) <= 1e-9 * fabs(again))) {
        fprintf(stderr, "answer %s: found %.17g, expected %.17g\n", where, x, again);
        exit(1);
    }
}

/* Returns how many reads of shared memory one load of a warp takes. Lane l loads 4
 * bytes at byte[l]; lanes that load the same word share a read. */
static int reads(const int *byte)
{
    int most = 1;
    for (int bank = 0; bank < 32; bank++) {
        int words = 0;
        for (int l = 0; l < 32; l++) {
            int known = byte[l] / 4 % 32 != bank;
            for (int m = 0; m < l; m++) known |= byte[m] / 4 == byte[l] / 4;
            words += !known;
        }
        if (words > most) most = words;
    }
    return most;
}

/* Counts bank conflicts per chunk in the third kernel (rows of 256 bytes, eight warps).
 * In a load, a lane reads two adjacent numbers of a row of w, or one number of kg. */
static void by_hand(void)
{
    int w[32], kg[32];
    for (int l = 0; l < 32; l++) {
        w[l] = 256 * (l / 4) + 4 * (l % 4);
        kg[l] = 256 * (l % 4 * 2) + 2 * (l / 4);
    }
    const double of_w = 8.0 * (K / 16) * (C / 8) * 2,
                 of_kg = 8.0 * (C / 16) * (K / 8) * 4;
    say("17.w", reads(w), 8);
    say("17.kg", reads(kg), 4);
    say("17.conflicts3", of_w * (reads(w) - 1) + of_kg * (reads(kg) - 1),
        1024 * 7 + 2048 * 3);
}

/* Counts bank conflicts per chunk in the fourth kernel (ldmatrix, 256-byte rows). */
static void by_ldmatrix(void)
{
    static double tile[64 * 128], r[LANES][8];
    int byte[LANES];
    for (int l = 0; l < LANES; l++)
        byte[l] = 256 * (l % 8 + l / 16 * 8) + l / 8 % 2 * 16;
    const int times = warp_ldmatrix(r, tile, byte, 0);
    const double blocks = 8 * (2.0 * (K / 16) * (C / 16) + C / 16);
    say("17.conflicts4", blocks * (times - 4), 8 * 68 * 28);
    say("17.reads6", blocks * 4 + 3 * C * 256 / 128, 2176 + 384);
}

/* Prints lane, register, row and column of all numbers of A (if `of` is 0) or B (1).
 * To find a number's row and column, sets it to 1 and the rest of its matrix to 0. In
 * the other matrix, only column 0 of B or row 0 of A is not 0: its element p is p + 1.
 * So the product's only nonzero element is 1 + the number's column (A) or row (B). */
static void factor(int of)
{
    const int numbers = of ? 4 : 8;                     /* per lane */
    for (int i = 0; i < LANES * numbers; i++) {
        struct fragment_a a = { 0 };
        struct fragment_b b = { 0 };
        struct fragment_d d = { 0 };
        for (int p = 0; p < 16; p++) {
            a.x[p % 8 / 2][p % 2 + p / 8 * 4] = of ? p + 1 : 0;
            b.x[p % 8 / 2][p % 2 + p / 8 * 2] = of ? 0 : p + 1;
        }
        if (of) b.x[i / numbers][i % numbers] = 1;
        else a.x[i / numbers][i % numbers] = 1;
        warp_mma(&d, &a, &b);
        for (int l = 0; l < LANES; l++)
            for (int n = 0; n < 4; n++) {
                const int row = l / 4 + n / 2 * 8, column = l % 4 * 2 + n % 2;
                const int key = (int)d.x[l][n] - 1;
                if (key >= 0 && (of ? row : column) == 0)
                    printf("%d %d %d %d %d\n", of, i / numbers, i % numbers / 2,
                           of ? key : row, of ? column : key);
            }
    }
}

/* Prints lane, register, row and column of each number of A, B and D = A * B. D[r][c]
 * is (r + 1) * (1 + 100 c), because A[r][0] = r + 1 and B[0][c] = 1 + 100 c. */
static void fragments(void)
{
    struct fragment_a a = { 0 };
    struct fragment_b b = { 0 };
    struct fragment_d d = { 0 };
    printf("== points-fragments\n");
    factor(0);
    factor(1);
    for (int l = 0; l < LANES; l += 4) {
        a.x[l][0] = l / 4 + 1;
        a.x[l][2] = l / 4 + 9;
        b.x[l][0] = 1 + 100 * (l / 4);
    }
    warp_mma(&d, &a, &b);
    for (int i = 0; i < LANES * 4; i++) {
        const int number = (int)d.x[i / 4][i % 4], row = number % 100 - 1;
        printf("2 %d %d %d %d\n", i / 4, i % 4 / 2, row, number / (row + 1) / 100);
    }
}

/* Prints, for ldmatrix without and with transposition, the lane and the register that
 * receive each of 16 x 16 numbers. Then prints the addresses of lanes 0, 8, 16 and 24.
 * To identify the numbers, each number in shared memory has the value of its index. */
static void ldmatrix(void)
{
    printf("== points-ldmatrix\n");
    for (int trans = 0; trans < 2; trans++) {
        double shared[256], r[LANES][8];
        int byte[LANES], lane_of[256], number_of[256];
        for (int i = 0; i < 256; i++) shared[i] = i;
        for (int l = 0; l < LANES; l++)
            byte[l] = 32 * (trans ? l % 16 : l % 8 + l / 16 * 8)
                      + 16 * (trans ? l / 16 : l / 8 % 2);
        warp_ldmatrix(r, shared, byte, trans);
        for (int i = 0; i < LANES * 8; i++) {
            lane_of[(int)r[i / 8][i % 8]] = i / 8;
            number_of[(int)r[i / 8][i % 8]] = i % 8 / 2;
        }
        for (int i = 0; i < 256; i++)
            printf("%d %d\n", lane_of[i], number_of[i]);
        printf("%d %d %d %d\n", byte[0], byte[8], byte[16], byte[24]);
    }
}

int main(void)
{
    fragments();
    ldmatrix();
    const double flops = 4.0 * C * K * V, bytes = 2.0 * C * (2 * K + 2 * V) + 4 * K;
    printf("@ladder/flops %.1f\n@ladder/bytes %.1f\n@ladder/intensity %.0f\n",
           flops / 1e6, bytes / 1024, flops / bytes);
    say("17.fma", flops / 2 / 128, 16384);
    say("17.tensor", flops / 4096, 1024);
    by_hand();
    by_ldmatrix();
    say("17.local", 4.0 * 2 * C * K * 128 * CHUNKS * HEADS / 1e9,
        4 * 16384 * 128.0 * 12288 / 1e9);
    say("17.announced", 3 * 64 * 128 * 2 + 4 * K, 49664);
    say("17.stages", floor(227 * 1024 / 49664.0), 4);
    /* Prints what keys 96 .. 111 of w (step 2 of tile 1) add to the descriptor. */
    say("17.descriptor", 8192 / 16 + 2 * 32 / 16, 516);
    return 0;
}
