/* family_batch.h -- sizes, cuts and comparisons for the test batches of 13, 15 and 16.
 *
 * Book: chapters 13, 15, 16.  Checked by: what includes it.
 * Next: tests/judge/family_cuts.h.
 * The batch has six sequences, of which two are empty and one has one token, and two
 * value heads per key head. */
#ifndef KCP_TEST_FAMILY_BATCH_H
#define KCP_TEST_FAMILY_BATCH_H

#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 6, T = 421, H = 2, HV = 4, C = 16, MOST = 12 };
static const int64_t cu[N + 1] = { 0, 260, 260, 261, 330, 421, 421 };
/* `uneven` has the cuts of seven ranks, of which one is empty; `late` the cuts of six
 * ranks, with empty ranks at both ends. */
static const int64_t uneven[] = { 0, 3, 3, 130, 131, 205, 263, 421 };
static const int64_t late[] = { 0, 0, 0, 64, 400, 421, 421 };

/* Allocates n outputs and sets all bits to 1, which means unwritten. */
static inline int outputs_add(double **out, const int *size, int n)
{
    for (int j = 0; j < n; j++) {
        out[j] = malloc(sizeof(double) * (size_t)size[j]);
        if (!out[j]) return KCP_NO_MEMORY;
        memset(out[j], 0xff, sizeof(double) * (size_t)size[j]);
    }
    return KCP_OK;
}

static inline void arrays_free(double **array, int n)
{
    for (int j = 0; j < n; j++)
        free(array[j]);
}

/* Returns RMS(a - b) / RMS(b). */
static inline double rms_apart(const double *a, const double *b, int n)
{
    double d = 0, r = 0;
    for (int e = 0; e < n; e++) {
        d += (a[e] - b[e]) * (a[e] - b[e]);
        r += b[e] * b[e];
    }
    return r > 0 ? sqrt(d / r) : NAN;
}

/* Compares the outputs of two runs. Returns the largest relative RMS error, with the
 * output's index in *worst; or -1 if all bits are equal. */
static inline double outputs_apart(double *const *a, double *const *b, const int *size,
                                   int n, int *worst)
{
    double most = -1;
    for (int j = 0; j < n; j++) {
        if (memcmp(a[j], b[j], sizeof(double) * (size_t)size[j]) == 0)
            continue;
        const double err = rms_apart(a[j], b[j], size[j]);
        if (!(err <= most)) {
            most = err;
            *worst = j;
        }
    }
    return most;
}

/* Returns the derivative of the loss with respect to *at by central differences at four
 * points. The result is exact up to rounding for polynomials of degree at most 4. */
struct batch;
static inline double slope(double (*loss)(struct batch *), struct batch *x, double *at)
{
    const double h = 1e-2, here = *at;
    double f[4];
    for (int j = 0; j < 4; j++) {
        *at = here + h * (j < 2 ? j - 2 : j - 1);
        f[j] = loss(x);
    }
    *at = here;
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
}

#endif
