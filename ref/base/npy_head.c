/* npy_head.c -- the header of a .npy file, which is untrusted input.
 *
 * Book: chapter 00.  Checked by: tests/fuzz/npy.c, tests/cli/run_cli.sh.
 * Next: npy_read.c.
 *
 *     "\x93NUMPY" major minor length  {'descr': '<f8', 'fortran_order': False,
 *                                      'shape': (3, 4), }  spaces, newline
 * The length has two bytes in version 1, four in 2 and 3. */
#include "npy.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct { const char *descr, *name; int bytes; } kinds[] = {
    [NPY_F64]  = { "<f8", "float64", 8 },  [NPY_F32] = { "<f4", "float32", 4 },
    [NPY_F16]  = { "<f2", "float16", 2 },  [NPY_BF16] = { "<u2", "uint16", 2 },
    [NPY_I64]  = { "<i8", "int64", 8 },    [NPY_I32] = { "<i4", "int32", 4 },
};

const char *npy_kind_name(enum npy_kind kind)
{
    return kinds[kind].name;
}

int npy_bytes(enum npy_kind kind)
{
    return kinds[kind].bytes;
}

int npy_error(char *why, size_t n, const char *path, const char *format, ...)
{
    if (n == 0)
        return -1;
    int at = snprintf(why, n, "%.300s: ", path);
    if (at >= 0 && (size_t)at < n) {
        va_list args;
        va_start(args, format);
        vsnprintf(why + at, n - (size_t)at, format, args);
        va_end(args);
    }
    for (char *c = why; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127)
            *c = '?';
    return -1;
}

int64_t npy_count(int nd, const int64_t *dim)
{
    int64_t count = 1;
    for (int d = 0; d < nd; d++)
        if (dim[d] == 0)
            return 0;
    /* Each element is at most 8 bytes in memory. */
    for (int d = 0; d < nd; d++)
        if (dim[d] < 0 || dim[d] > INT64_MAX / 8 / count)
            return -1;
        else
            count *= dim[d];
    return count;
}

char *npy_shape(int nd, const int64_t *dim, char *s, size_t n)
{
    size_t at = (size_t)snprintf(s, n, "[");
    for (int d = 0; d < nd && at < n; d++)
        at += (size_t)snprintf(s + at, n - at, "%s%" PRId64, d ? "," : "", dim[d]);
    if (at < n)
        snprintf(s + at, n - at, "]");
    return s;
}

/* ---- the dictionary: a cursor over [at, end) that never moves past end, and the dtype
 * that it has read */
struct cursor { const char *at, *end; char descr[32]; };

static void blanks(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n'))
        c->at++;
}

static int take(struct cursor *c, const char *word)
{
    blanks(c);
    size_t m = strlen(word);
    if ((size_t)(c->end - c->at) < m || memcmp(c->at, word, m) != 0)
        return 0;
    c->at += m;
    return 1;
}

/* Reads a quoted string without escapes, shorter than n, into s. */
static int take_string(struct cursor *c, char *s, size_t n)
{
    blanks(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
        return 0;
    const char quote = *c->at++;
    size_t m = 0;
    while (c->at < c->end && *c->at != quote && *c->at && m + 1 < n)
        s[m++] = *c->at++;
    s[m] = 0;
    return c->at < c->end && *c->at++ == quote;
}

/* Reads decimal digits into an int64_t. -1: not a number; -2: overflow. */
static int64_t take_number(struct cursor *c)
{
    blanks(c);
    int64_t x = -1;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        const int digit = *c->at - '0';
        if (x > (INT64_MAX - digit) / 10)
            return -2;
        x = (x < 0 ? 0 : x) * 10 + digit;
    }
    return x;
}

/* Reads (), (3,), (3, 4) or (3, 4,). Returns NULL or a message. */
static const char *take_shape(struct cursor *c, struct npy *a)
{
    if (!take(c, "("))
        return "a shape that is not a tuple";
    a->nd = 0;
    while (!take(c, ")")) {
        if (a->nd == NPY_RANK)
            return "a shape of more than 8 dimensions";
        if (take(c, "-"))
            return "a negative dimension";
        const int64_t x = take_number(c);
        if (x < 0)
            return x == -2 ? "a dimension that overflows" : "a broken shape";
        a->dim[a->nd++] = x;
        if (!take(c, ",") && (a->nd == 1 || c->at == c->end || *c->at != ')'))
            return "a broken shape";
    }
    return NULL;
}

static const char *take_descr(struct cursor *c, struct npy *a)
{
    if (take(c, "["))
        return "a structured dtype";
    if (!take_string(c, c->descr, sizeof c->descr))
        return "a broken dtype";
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        if (strcmp(c->descr, kinds[kind].descr) == 0) {
            a->kind = (enum npy_kind)kind;
            return NULL;
        }
    return c->descr[0] == '>' ? "a big-endian dtype" : "a dtype that is not taken";
}

static const char *take_order(struct cursor *c, struct npy *a)
{
    a->fortran = take(c, "True");
    return a->fortran || take(c, "False") ? NULL : "a broken fortran_order";
}

static const struct {
    const char *name;
    const char *(*take)(struct cursor *c, struct npy *a);
} keys[] = {
    { "descr", take_descr }, { "fortran_order", take_order }, { "shape", take_shape },
};
enum { KEYS = sizeof keys / sizeof *keys };

/* Reads the three keys of the dictionary, each once, in any order. */
static const char *take_dictionary(struct cursor *c, struct npy *a)
{
    int seen = 0;
    if (!take(c, "{"))
        return "a header that is not a dictionary";
    while (!take(c, "}")) {
        char word[24];
        int key = 0;
        if (!take_string(c, word, sizeof word) || !take(c, ":"))
            return "a broken header";
        while (key < KEYS && strcmp(word, keys[key].name))
            key++;
        if (key == KEYS)
            return "an unknown key";
        if (seen & 1 << key)
            return "a key given twice";
        seen |= 1 << key;
        const char *bad = keys[key].take(c, a);
        if (bad)
            return bad;
        if (!take(c, ",") && (c->at == c->end || *c->at != '}'))
            return "a broken header";
    }
    blanks(c);
    if (c->at != c->end)
        return "text after the header's dictionary";
    return seen == (1 << KEYS) - 1 ? NULL : "a header with a key missing";
}

int npy_head(const unsigned char *head, size_t got, int64_t size, const char *path,
             struct npy *a, int64_t *offset, char *why, size_t n)
{
    if (got < 10 || memcmp(head, "\x93NUMPY", 6) != 0)
        return npy_error(why, n, path, "found %s, expected a .npy file", got == 0
                         ? "an empty file" : "no .npy magic number");
    const int major = head[6], minor = head[7];
    if (major < 1 || major > 3 || minor != 0)
        return npy_error(why, n, path, "found .npy version %d.%d, expected 1.0, 2.0 or "
                         "3.0", major, minor);
    const size_t start = major == 1 ? 10 : 12;
    size_t length = head[8] | (size_t)head[9] << 8;
    if (major > 1 && got >= 12)
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    if (got < start || length > got - start)
        return npy_error(why, n, path, "found a header of %zu bytes, expected at most "
                         "%zu (the file is truncated, or the header is absurd)",
                         length, got < start ? 0 : got - start);

    const char *text = (const char *)head + start;
    struct cursor c = { text, text + length, "" };
    const char *bad = take_dictionary(&c, a);
    if (bad)
        return npy_error(why, n, path, "found %s%s%s, expected one of <f8 <f4 <f2 "
                         "<i8 <i4", bad, *c.descr ? ", dtype " : "", c.descr);
    const int64_t count = npy_count(a->nd, a->dim);
    char shape[200];
    npy_shape(a->nd, a->dim, shape, sizeof shape);
    if (count < 0)
        return npy_error(why, n, path, "found shape %s, expected one that fits in "
                         "memory", shape);
    *offset = (int64_t)(start + length);
    if (size - *offset != count * npy_bytes(a->kind))
        return npy_error(why, n, path, "found %" PRId64 " bytes of data, expected %"
                         PRId64 " for %s %s", size - *offset,
                         count * npy_bytes(a->kind), npy_kind_name(a->kind), shape);
    return 0;
}
