/* answers.h -- prints a number, or exits if a second computation gives another.
 * Book: the exercises. */
#ifndef BOOK_ANSWERS_H
#define BOOK_ANSWERS_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline void agree(const char *where, const char *format, double x, double again,
                         double tolerance)
{
    char text[64];
    snprintf(text, sizeof text, format, x);
    printf("@answer/%s %s\n", where, text);
    if (!(fabs(x - again) <= tolerance * fabs(again))) {
        fprintf(stderr, "answer %s: found %.17g, expected %.17g\n", where, x, again);
        exit(1);
    }
}

static inline void say(const char *where, const char *format, double x, double again)
{
    agree(where, format, x, again, 1e-9);
}

#endif
