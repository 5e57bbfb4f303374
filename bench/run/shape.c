/* shape.c -- matches the shapes of files with shapes in symbols, e.g. "T HV K".
 *
 * Book: chapter 00 (the letters).  Checked by: tests/cli/run_cli.sh.  Next: load.c.
 *
 * "T HV K" matches [12,4,8] if T, HV and K have these sizes or are unknown; then
 * unknown sizes are set. So the first arrays define the sizes of later arrays. / */
#include "run.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Returns the value of a word of a shape, e.g. "NS+1", or -1 if it is not known yet. KG
 * equals K, except in GDN. */
static int64_t size_of(const struct kcp_call *z, const char *word, size_t n)
{
    const int is_K = n == 2 && !memcmp(word, "KG", 2) && z->model != KCP_GDN;
    return is_K ? z->K : shape_letter(z, word, n);
}

/* Sets the word's value to `size` if unknown. Returns 1 if the value equals `size`. */
static int bind(struct kcp_call *z, const char *word, size_t n, int64_t size)
{
    const int may_be_0 = *word == 'T' || *word == 'N';
    const int64_t known = size_of(z, word, n);
    if (known >= 0)
        return known == size;
    shape_set(z, word, 1);
    const int64_t more = size_of(z, word, n) - 1;      /* "Wc-1": -1 */
    const int64_t value = size - more;
    if (more < -1 || value < !may_be_0 || value >= INT_MAX)
        return 0;
    shape_set(z, word, value);
    return 1;
}

int sizes_bind(struct kcp_call *z, const char *shape, int nd, const int64_t *dim,
               char *expected, size_t n)
{
    struct kcp_call y = *z;
    int d = 0, fits = 1;
    for (const char *s = shape; *s && fits; d++) {
        const size_t m = strcspn(s, " ");
        fits = d < nd && bind(&y, s, m, dim[d]);
        s += m + (s[m] == ' ');
    }
    if (!fits || d != nd) {
        sizes_text(z, shape, expected, n);
        if (!fits && d <= nd && dim[d - 1] == 0)
            snprintf(expected + strlen(expected), n - strlen(expected),
                     ", sizes of 1 or more");
        return -1;
    }
    *z = y;
    return 0;
}

/* Writes the sizes of a shape to `dim`, -1 if unknown. Returns the number of sizes. */
int sizes_dims(const struct kcp_call *z, const char *shape, int64_t *dim)
{
    int nd = 0;
    for (const char *s = shape; *s; nd++) {
        const size_t n = strcspn(s, " ");
        dim[nd] = size_of(z, s, n);
        s += n + (s[n] == ' ');
    }
    return nd;
}

/* Writes a shape and its sizes, as "[T,H,K] = [12,?,8]". */
char *sizes_text(const struct kcp_call *z, const char *shape, char *s, size_t n)
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
