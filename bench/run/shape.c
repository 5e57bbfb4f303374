/* shape.c -- compares the shapes of files with symbolic shapes such as "T HV K".
 * Book: chapter 00 (the letters).
 *
 * "T HV K" matches [12,4,8] if T, HV and K have these sizes or are unknown; then
 * unknown sizes are set. So arrays that are loaded first set sizes of later arrays. */
#include "run.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Sets symbol `word`, if unknown, to `size`. Returns 1 if `word` now has `size`. */
static int bind(struct kcp_call *z, const char *word, size_t n, int64_t size)
{
    const int may_be_0 = *word == 'T' || *word == 'N';
    const int64_t known = shape_letter(z, word, n);
    if (known >= 0) return known == size;
    shape_set(z, word, 1);
    const int64_t more = shape_letter(z, word, n) - 1; /* "Wc-1": -1 */
    const int64_t value = size - more;
    if (more < -1 || value < !may_be_0 || value >= INT_MAX) return 0;
    shape_set(z, word, value);
    return 1;
}

/* Writes a shape and its sizes, e.g. "[T,H,K] = [12,?,8]". */
static void sizes_text(const struct kcp_call *z, const char *shape, char *s, size_t n)
{
    char found[160] = "";
    size_t at = 0;
    for (const char *word = shape; *word && at < sizeof found;) {
        const size_t left = sizeof found - at, m = strcspn(word, " ");
        const int64_t size = shape_letter(z, word, m);
        const char *comma = at ? "," : "";
        at += (size_t)(size < 0 ? snprintf(found + at, left, "%s?", comma)
                       : snprintf(found + at, left, "%s%" PRId64, comma, size));
        word += m + (word[m] == ' ');
    }
    char in_letters[64];
    snprintf(in_letters, sizeof in_letters, "%s", shape);
    for (char *c = in_letters; *c; c++)
        if (*c == ' ') *c = ',';
    snprintf(s, n, "[%s] = [%s]", in_letters, found);
}

int sizes_bind(struct kcp_call *z, const char *shape, int nd, const int64_t *dim,
               char *expected, size_t n)
{
    struct kcp_call y = *z;
    const int per_channel = kcp_models[y.model].gates == KCP_CHANNEL;
    int d = 0, fits = 1;
    for (const char *s = shape; *s && fits; d++) {
        const size_t m = strcspn(s, " ");
        const int is_K = m == 2 && !memcmp(s, "KG", 2) && per_channel;
        fits = d < nd && bind(&y, is_K ? "K" : s, is_K ? 1 : m, dim[d]);
        s += m + (s[m] == ' ');
    }
    if (!fits || d != nd) {
        sizes_text(z, shape, expected, n);
        if (!fits && d <= nd && dim[d - 1] == 0)
            snprintf(expected + strlen(expected), n - strlen(expected),
                     ", sizes of 1 or more");
        return -1;
    }
    if (per_channel) y.KG = y.K;
    *z = y;
    return 0;
}
