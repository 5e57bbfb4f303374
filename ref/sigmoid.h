/* sigmoid.h -- the logistic function.
 * Book: chapters 14, 15.
 *
 * For large negative x, exp(-x) is infinite, and the result is 0 as required. */
#pragma once

#include <math.h>

static inline double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
