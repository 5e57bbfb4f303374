/* frame.h -- prints a failure that a frame (a file that runs a student's code) finds.
 * Book: staff.md.  Used by: {block,orders,threads,tree,warp}.c. */
#pragma once

#include "kcp.h"

#include <stdarg.h>
#include <stdio.h>

/* Prints one line, which the grader shows, and returns KCP_BAD. */
__attribute__((format(printf, 1, 2)))
static inline int failed(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    printf("  FAIL  ");
    vprintf(format, ap);
    printf("\n");
    fflush(stdout);
    va_end(ap);
    return KCP_BAD;
}
