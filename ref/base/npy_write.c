/* npy_write.c -- writes .npy files from double and int64_t.
 * Book: chapter 00. */
#include "npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void write_head(FILE *f, const struct npy *out)
{
    static const char *descr[] = {
        [NPY_F64] = "<f8", [NPY_F32] = "<f4", [NPY_I64] = "<i8", [NPY_I32] = "<i4",
    };
    /* The format requires that the data begins at a multiple of 64 bytes. */
    char head[321];
    int at = 10 + snprintf(head + 10, 300, "{'descr': '%s', 'fortran_order': False, "
                           "'shape': (", descr[out->kind]);
    for (int d = 0; d < out->nd; d++)
        at += snprintf(head + at, 24, "%" PRId64 ", ", out->dim[d]);
    at -= out->nd > 1 ? 2 : out->nd;           /* (), (3,), (3, 4) */
    at += snprintf(head + at, 6, "), }");
    const int whole = (at + 1 + 63) / 64 * 64;
    memset(head + at, ' ', (size_t)(whole - at));
    head[whole - 1] = '\n';
    memcpy(head, "\x93NUMPY\1\0", 8);
    head[8] = (char)((whole - 10) & 255);
    head[9] = (char)((whole - 10) >> 8);
    fwrite(head, 1, (size_t)whole, f);
}

static void write_data(FILE *f, const struct npy *out)
{
    const int64_t count = npy_count(out->nd, out->dim);
    const double *x = out->data;
    const int64_t *i = out->data;
    for (int64_t e = 0; e < count; e++) {
        const float single = out->kind == NPY_F32 ? (float)x[e] : 0;
        const int32_t word = out->kind == NPY_I32 ? (int32_t)i[e] : 0;
        if (out->kind == NPY_F32) fwrite(&single, sizeof single, 1, f);
        else if (out->kind == NPY_I32) fwrite(&word, sizeof word, 1, f);
        else fwrite(x + e, 8, 1, f);
    }
}

int npy_write(const char *path, const struct npy *out, char *why, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (f) {
        write_head(f, out);
        write_data(f, out);
    }
    const int lost = !f || ferror(f);
    if ((!f || fclose(f) == 0) && !lost) return 0;
    return npy_error(why, n, path, "cannot write the file: %s", strerror(errno));
}
