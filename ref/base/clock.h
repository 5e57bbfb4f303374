/* clock.h -- the clock of programs, the judge and communicators' time limits. */
#pragma once

#include <time.h>

/* Returns seconds since a fixed time. The clock never goes back. */
static inline double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
