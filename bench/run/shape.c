/* shape.c -- shapes in letters, compared with the shapes of files.
 *
 * Book: chapter 00 (the letters).  Checked by: tests/cli/run_cli.sh.  Next: load.c.
 *
 * "T HV K" and [12,4,8] match if every known letter has its size; unknown letters
 * become known. So the first arrays define the sizes of the others.
 */
#include "run.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const letters[LETTERS] = {
    "T", "N", "NS", "NC", "R", "H", "HV", "K", "V", "C", "D", "Wc",
};

/* A word means letter + plus + more (-1: no letter): "Wc-1" has more = -1. */
struct word { int letter, plus; int64_t more; };

static struct word word(const struct sizes *z, const char *s, size_t n)
{
    struct word w = { -1, -1, 0 };
    if (n == 1 && (*s == '1' || *s == '2'))
        w.more = *s - '0';
    else if (n == 2 && memcmp(s, "KG", 2) == 0) {
        w.letter = z->gdn ? -1 : LK;
        w.more = z->gdn;
    } else if (n == 3 && memcmp(s, "V+K", 3) == 0) {
        w.letter = LV;
        w.plus = LK;
    } else {
        const char *end = n > 2 ? s + n - 2 : "";
        if (memcmp(end, "+1", 2) == 0)
            w.more = 1;
        else if (memcmp(end, "-1", 2) == 0)
            w.more = -1;
        const size_t m = w.more ? n - 2 : n;
        for (int i = 0; i < LETTERS; i++)
            if (strlen(letters[i]) == m && memcmp(letters[i], s, m) == 0)
                w.letter = i;
    }
    return w;
}

/* Returns the size of a word; -1: one of its letters is unknown. */
static int64_t number(const struct sizes *z, struct word w)
{
    if (w.letter < 0)
        return w.more;
    if (z->of[w.letter] < 0 || (w.plus >= 0 && z->of[w.plus] < 0))
        return -1;
    return z->of[w.letter] + w.more + (w.plus >= 0 ? z->of[w.plus] : 0);
}

/* Return limits. A count may be 0, a size is at least 1; products fit in 64 bits. */
static int64_t least(int letter) { return letter <= LNC ? 0 : 1; }

static int64_t most(int letter)
{
    if (letter == LC)
        return MOST_CHUNK;
    return letter <= LNC || letter == LD ? INT_MAX - 1 : MOST_SIZE;
}

/* Writes "[T,H,K] = [12,?,8]" and the limits of `letter` to `want`. Returns -1. */
static int refuse(const struct sizes *z, const char *shape, int letter, char *want,
                  size_t n)
{
    char range[80] = "";
    if (letter >= 0)
        snprintf(range, sizeof range, ", %s from %" PRId64 " to %" PRId64,
                 letters[letter], least(letter), most(letter));
    sizes_text(z, shape, want, n);
    const size_t at = strlen(want);
    snprintf(want + at, n - at, "%s", range);
    return -1;
}

int sizes_bind(struct sizes *z, const char *shape, int nd, const int64_t *dim,
               char *want, size_t n)
{
    struct sizes y = *z;
    int d = 0;
    for (const char *s = shape; *s; d++) {
        const size_t m = strcspn(s, " ");
        const struct word w = word(&y, s, m);
        const int64_t known = number(&y, w);
        if (d == nd || (known >= 0 && known != dim[d]))
            return refuse(z, shape, -1, want, n);
        if (known < 0) {
            const int64_t rest = w.plus >= 0 ? y.of[w.plus] : w.more;
            const int64_t is = dim[d] - rest;
            const int unknown = w.plus >= 0 && rest < 0;
            if (unknown || is < least(w.letter) || is > most(w.letter))
                return refuse(z, shape, w.letter, want, n);
            y.of[w.letter] = is;
        }
        s += m + (s[m] == ' ');
    }
    if (d != nd)
        return refuse(z, shape, -1, want, n);
    *z = y;
    return 0;
}

/* Sets dim to the sizes of a shape, -1 if unknown. Returns the number of sizes. */
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

/* Writes a shape and its sizes, as "[T,H,K] = [12,?,8]". */
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
