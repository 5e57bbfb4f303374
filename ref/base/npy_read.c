/* npy_read.c -- reads the data of .npy files into double and int64_t.
 * Book: chapter 00. */
#include "npy.h"
#include "bf16.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               ".npy files are little-endian, so the machine must be little-endian");

/* Converts m elements of the file to the types in memory. `raw` may be the last bytes
 * of `to`, because converted element e does not overlap element e + 1 of `raw`. */
static void from_file(enum npy_kind kind, const unsigned char *raw, size_t m, void *to)
{
    double *x = to;
    int64_t *i = to;
    for (size_t e = 0; e < m; e++) {
        uint16_t half;
        float single;
        int32_t word;
        switch (kind) {
        case NPY_F64: memmove(x + e, raw + 8 * e, 8); break;
        case NPY_F32: memcpy(&single, raw + 4 * e, 4); x[e] = single; break;
        case NPY_F16: memcpy(&half, raw + 2 * e, 2); x[e] = f16_value(half); break;
        case NPY_BF16: memcpy(&half, raw + 2 * e, 2); x[e] = bf16_value(half); break;
        case NPY_I64: memmove(i + e, raw + 8 * e, 8); break;
        case NPY_I32: memcpy(&word, raw + 4 * e, 4); i[e] = word; break;
        }
    }
}

/* Returns the index in C order of element e of a file in Fortran order. */
static int64_t transposed(const struct npy *in, int64_t e)
{
    int64_t at = 0, stride[NPY_RANK];
    for (int64_t d = in->nd - 1, all = 1; d >= 0; d--) {
        stride[d] = all;
        all *= in->dim[d];
    }
    for (int d = 0; d < in->nd; d++) {
        at += e % in->dim[d] * stride[d];
        e /= in->dim[d];
    }
    return at;
}

/* Converts the data from Fortran order to C order. Returns -1 if out of memory. */
static int transpose(struct npy *in, size_t count)
{
    char *to = malloc(8 * count + 8);
    for (size_t e = 0; to && e < count; e++)
        memcpy(to + 8 * transposed(in, (int64_t)e), (char *)in->data + 8 * e, 8);
    if (!to) return -1;
    free(in->data);
    in->data = to;
    return 0;
}

static int read_data(FILE *f, const char *path, struct npy *in, char *why, size_t n)
{
    const size_t count = (size_t)npy_count(in->nd, in->dim);
    const size_t bytes = (size_t)npy_bytes(in->kind);
    in->data = malloc(8 * count + 8);
    if (!in->data)
        return npy_error(why, n, path, "out of memory for the %zu numbers of the array",
                         count);
    unsigned char *raw = (unsigned char *)in->data + (8 - bytes) * count;
    const int lost = fread(raw, bytes, count, f) != count;
    if (!lost) from_file(in->kind, raw, count, in->data);
    if (!lost && (!in->fortran || transpose(in, count) == 0)) return 0;
    npy_free(in);
    return npy_error(why, n, path, "%s the %zu numbers of the array",
                     lost ? "cannot read" : "out of memory for", count);
}

static int read_open(FILE *f, const char *path, int64_t size, struct npy *in,
                     npy_refuse *refuse, void *arg, char *why, size_t n)
{
    unsigned char head[NPY_HEAD];
    int64_t offset = 0;
    const size_t got = fread(head, 1, sizeof head, f);
    if (npy_head(head, got, size, path, in, &offset, why, n) != 0) return -1;
    if (refuse && refuse(in, arg) != 0) return -1;
    if (fseek(f, (long)offset, SEEK_SET) != 0)
        return npy_error(why, n, path, "cannot seek to the data: %s", strerror(errno));
    return read_data(f, path, in, why, n);
}

int npy_read_if(const char *path, struct npy *in, npy_refuse *refuse, void *arg,
                char *why, size_t n)
{
    struct stat st;
    *in = (struct npy){ .data = NULL };
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return npy_error(why, n, path, "found %s, expected a regular file",
                         S_ISDIR(st.st_mode) ? "a directory" : "a special file");
    FILE *f = fopen(path, "rb");
    if (!f)
        return npy_error(why, n, path, "found %s, expected a .npy file",
                         errno == ENOENT ? "no such file" : strerror(errno));
    const int bad = read_open(f, path, st.st_size, in, refuse, arg, why, n);
    fclose(f);
    return bad;
}

int npy_read(const char *path, struct npy *in, char *why, size_t n)
{
    return npy_read_if(path, in, NULL, NULL, why, n);
}

void npy_free(struct npy *a)
{
    free(a->data);
    a->data = NULL;
}
