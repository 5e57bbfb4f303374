/* sigmoid.h -- the logistic function, where its argument is moderate.
 *
 * Book: chapters 14, 15.  Checked by: tests/14_conv/checks.c, tests/15_scan/checks.c.
 * Next: ref/14_conv.c.
 *
 * Far below zero exp overflows to infinity, and the result, 0, is right. The gate of
 * chapter 02 has a form of its own in which nothing overflows.
 */
#ifndef REF_SIGMOID_H
#define REF_SIGMOID_H

#include <math.h>

static inline double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

#endif
