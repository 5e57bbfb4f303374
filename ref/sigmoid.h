/* sigmoid.h -- the logistic function for moderate arguments.
 *
 * Book: chapters 14, 15.  Checked by: tests/14_conv/checks.c, tests/15_scan/checks.c.
 * Next: ref/14_conv.c.
 *
 * For large negative arguments exp overflows to infinity and the result, 0, is correct.
 * The gate of chapter 02 has a separate form without overflow. */
#ifndef REF_SIGMOID_H
#define REF_SIGMOID_H

#include <math.h>

static inline double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

#endif
