/* npy_head.c -- parses the header of a .npy file, which is untrusted input.
 * Book: chapter 00.
 *
 *     "\x93NUMPY" major minor length  {'descr': '<f8', 'fortran_order': False,
 *                                      'shape': (3, 4), }  spaces, newline
 * `length` has two bytes in version 1, and four bytes in versions 2 and 3. */
#include "npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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
    if (n == 0) return -1;
    int at = snprintf(why, n, "%.300s: ", path);
    if (at >= 0 && (size_t)at < n) {
        va_list args;
        va_start(args, format);
        vsnprintf(why + at, n - (size_t)at, format, args);
        va_end(args);
    }
    for (char *c = why; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127) *c = '?';
    return -1;
}

int64_t npy_count(int nd, const int64_t *dim)
{
    int64_t count = 1;
    for (int d = 0; d < nd; d++)
        if (dim[d] == 0) return 0;
    /* An element has at most 8 bytes in memory. */
    for (int d = 0; d < nd; d++)
        if (dim[d] < 0 || dim[d] > INT64_MAX / 8 / count) return -1;
        else count *= dim[d];
    return count;
}

char *npy_shape(int nd, const int64_t *dim, char *s, size_t n)
{
    size_t at = (size_t)snprintf(s, n, "[");
    for (int d = 0; d < nd && at < n; d++)
        at += (size_t)snprintf(s + at, n - at, "%s%" PRId64, d ? "," : "", dim[d]);
    if (at < n) snprintf(s + at, n - at, "]");
    return s;
}

/* Returns the text that follows "'KEY':" and blanks, or "" if there is no such key. */
static const char *value_of(const char *dictionary, const char *key)
{
    char word[24];
    snprintf(word, sizeof word, "'%s':", key);
    const char *at = strstr(dictionary, word);
    at = at ? at + strlen(word) : "";
    return at + strspn(at, " ");
}

static int take_descr(const char *s, struct npy *a)
{
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        if (s[0] == '\'' && !strncmp(s + 1, kinds[kind].descr, 3) && s[4] == '\'') {
            a->kind = (enum npy_kind)kind;
            return 1;
        }
    return 0;
}

static int take_order(const char *s, struct npy *a)
{
    a->fortran = !strncmp(s, "True", 4);
    return a->fortran || !strncmp(s, "False", 5);
}

/* Reads a shape, for example (), (3,) or (3, 4). Returns 0 if `s` is not a shape or
 * has more than NPY_RANK dimensions. */
static int take_shape(const char *s, struct npy *a)
{
    if (*s++ != '(')
        return 0;
    for (a->nd = 0; *s != ')'; a->nd++) {
        char *end;
        errno = 0;
        const int64_t x = strtoll(s, &end, 10);
        if (end == s || errno || x < 0 || a->nd == NPY_RANK) return 0;
        a->dim[a->nd] = x;
        s = end + strspn(end, " ");
        if (*s != ',' && (*s != ')' || a->nd == 0))
            return 0;
        s += *s == ',';
        s += strspn(s, " ");
    }
    return 1;
}

/* Reads the dictionary. Returns NULL, or an error message. */
static const char *take_dictionary(const char *text, struct npy *a)
{
    if (*text != '{' || !strchr(text, '}')) return "no dictionary";
    if (!take_descr(value_of(text, "descr"), a))
        return "a dtype that is not <f8, <f4, <f2, <u2, <i8 or <i4";
    if (!take_order(value_of(text, "fortran_order"), a))
        return "a fortran_order that is not True or False";
    if (!take_shape(value_of(text, "shape"), a))
        return "a shape that is not a tuple of at most 8 sizes";
    return NULL;
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
    char text[NPY_HEAD] = "";
    if (got < start || length > got - start || length >= sizeof text)
        return npy_error(why, n, path, "found a header of %zu bytes, expected at most "
                         "%zu (the header is too long, or the file is truncated)",
                         length, got < start ? 0 : got - start);
    memcpy(text, head + start, length);
    const char *bad = take_dictionary(text, a);
    if (bad) return npy_error(why, n, path, "found %s in the header %s", bad, text);
    const int64_t count = npy_count(a->nd, a->dim);
    char shape[200];
    npy_shape(a->nd, a->dim, shape, sizeof shape);
    if (count < 0)
        return npy_error(why, n, path, "found shape %s, expected a shape that fits "
                         "in memory", shape);
    *offset = (int64_t)(start + length);
    if (size - *offset != count * npy_bytes(a->kind))
        return npy_error(why, n, path, "found %" PRId64 " bytes of data, expected %"
                         PRId64 " for %s %s", size - *offset,
                         count * npy_bytes(a->kind), npy_kind_name(a->kind), shape);
    return 0;
}
