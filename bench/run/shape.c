/* run_shape.c -- shapes in letters, against the shapes of files.
 *
 * Book: chapter 00 (the letters).  Checked by: tests/cli/run_cli.sh.  Next: run_load.c.
 *
 * "T HV K" and [12,4,8] agree when every letter that is known has its number; letters
 * that are not become known. So the first arrays say the sizes and the others obey.
 */
#include "run.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const letters[LETTERS] = {
    "T", "N", "NS", "NC", "R", "H", "HV", "K", "V", "C", "D", "Wc",
};

/* One word of a shape: letter + more, or a plain number (letter -1). */
struct word { int letter, plus; int64_t more; };

static struct word word(const struct sizes *z, const char *s, size_t n)
{
    struct word w = { -1, -1, 0 };
    if (n == 1 && (*s == '1' || *s == '2'))
        w.more = *s - '0';
    else if (n == 2 && memcmp(s, "KG", 2) == 0) {
        w.letter = z->gdn ? -1 : LK;
        w.more = z->gdn;
    } else if (n == 3 && memcmp(s, "V+K", 3) == 0)
        w.letter = LV, w.plus = LK;
    else {
        const size_t m = n > 2 && memcmp(s + n - 2, "+1", 2) == 0 ? n - 2 : n;
        w.more = m < n;
        for (int i = 0; i < LETTERS; i++)
            if (strlen(letters[i]) == m && memcmp(letters[i], s, m) == 0)
                w.letter = i;
    }
    return w;
}

/* The number a word stands for; -1 while a letter of it is unknown. */
static int64_t number(const struct sizes *z, struct word w)
{
    if (w.letter < 0)
        return w.more;
    if (z->of[w.letter] < 0 || (w.plus >= 0 && z->of[w.plus] < 0))
        return -1;
    return z->of[w.letter] + w.more + (w.plus >= 0 ? z->of[w.plus] : 0);
}

/* Counts may be 0 and long; sizes are at least 1, and their products stay far from the
 * end of 64 bits. */
static int in_range(int letter, int64_t x)
{
    const int count = letter <= LNC, chunk = letter == LC;
    const int64_t most = count || letter == LD ? INT_MAX - 1 : MOST_SIZE;
    return x >= !count && x <= (chunk ? MOST_CHUNK : most);
}

int sizes_bind(struct sizes *z, const char *shape, int nd, const int64_t *dim)
{
    struct sizes y = *z;
    int d = 0;
    for (const char *s = shape; *s; d++) {
        const size_t n = strcspn(s, " ");
        const struct word w = word(&y, s, n);
        const int64_t want = number(&y, w);
        if (d == nd || (want >= 0 && want != dim[d]))
            return -1;
        if (want < 0) {
            const int64_t rest = w.plus >= 0 ? y.of[w.plus] : w.more;
            if (rest < 0 || !in_range(w.letter, dim[d] - rest))
                return -1;
            y.of[w.letter] = dim[d] - rest;
        }
        s += n + (s[n] == ' ');
    }
    if (d != nd)
        return -1;
    *z = y;
    return 0;
}

/* The numbers of a shape whose letters are all known; returns how many. */
int sizes_dims(const struct sizes *z, const char *shape, int64_t *dim)
{
    int nd = 0;
    for (const char *s = shape; *s; nd++) {
        const size_t n = strcspn(s, " ");
        dim[nd] = number(z, word(z, s, n));
        s += n + (s[n] == ' ');
    }
    return nd;
}

/* "[T,H,K] = [12,?,8]" */
char *sizes_text(const struct sizes *z, const char *shape, char *s, size_t n)
{
    char found[160] = "";
    int64_t dim[NPY_RANK];
    const int nd = sizes_dims(z, shape, dim);
    size_t at = 0;
    for (int d = 0; d < nd && at < sizeof found; d++) {
        const size_t left = sizeof found - at;
        const char *comma = d ? "," : "";
        at += (size_t)(dim[d] < 0 ? snprintf(found + at, left, "%s?", comma)
                       : snprintf(found + at, left, "%s%" PRId64, comma, dim[d]));
    }
    char in_letters[64];
    snprintf(in_letters, sizeof in_letters, "%s", shape);
    for (char *c = in_letters; *c; c++)
        if (*c == ' ')
            *c = ',';
    snprintf(s, n, "[%s] = [%s]", in_letters, found);
    return s;
}
