/* must.h -- defines MUST(x), which aborts a fuzz target if x is false.
 *
 * Book: none. */
#ifndef TESTS_MUST_H
#define TESTS_MUST_H

#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                               \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s, line %d: %s\n", __FILE__, __LINE__, #condition);     \
            abort();                                                                  \
        }                                                                             \
    } while (0)

#endif
