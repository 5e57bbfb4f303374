/* sigmoid.h -- the logistic function.
 *
 * Book: chapters 14, 15.  Checked by: tests/14_conv/checks.c, tests/15_scan/checks.c.
 * Next: ref/14_conv.c.
 *
 * For large negative x, exp(-x) is infinite, and the result is 0 as required. */
#ifndef REF_SIGMOID_H
#define REF_SIGMOID_H

#include <math.h>

static inline double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

#endif
