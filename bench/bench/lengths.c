/* lengths.c -- converts a list of lengths of sequences from text to boundaries.
 *
 * Book: chapter 18.  Checked by: tests/cli/cases.tsv.  Next: setup.c. */
#include "bench.h"

/* Reads digits at s into *to, 1 to most. Returns the text after the digits, or NULL. */
static const char *number(const char *s, int64_t most, int64_t *to)
{
    int64_t n = 0;
    if (*s < '1' || *s > '9') return NULL;
    for (; *s >= '0' && *s <= '9'; s++) {
        n = 10 * n + (*s - '0');
        if (n > most) return NULL;
    }
    *to = n;
    return s;
}

int lengths_read(const char *text, int64_t *cu)
{
    const char *s = text;
    int64_t tokens = 0;
    int N = 0;
    if (cu) cu[0] = 0;
    for (;; s++) {
        int64_t times = 1, length;
        s = number(s, LENGTHS_TOKENS, &length);
        if (s && *s == 'x') {
            times = length;
            s = number(s + 1, LENGTHS_TOKENS, &length);
        }
        if (!s || times > LENGTHS_MOST - N) return 0;
        for (int64_t i = 0; i < times; i++) {
            tokens += length;
            if (cu) cu[++N] = tokens;
            else N++;
        }
        if (tokens > LENGTHS_TOKENS) return 0;
        if (*s != ',') return *s ? 0 : N;
    }
}
