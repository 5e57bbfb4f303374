/* npy_write.c -- .npy files: the data, written from double and int64_t.
 *
 * Book: chapter 00.  Checked by: tests/fuzz/npy.c, tests/cli/run_cli.sh.
 * Next: check.c, which judges what was read.
 */
#include "npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the files are little-endian, and so must this machine be");

/* To nearest even, once: eight bits of fraction are left of the double's 53. */
static uint16_t to_bf16(double x)
{
    int e;
    if (isnan(x))
        return 0x7fc0;
    if (isfinite(x) && x != 0) {
        frexp(x, &e);
        const int last = e < -125 ? -133 : e - 8;     /* weight of the last bit kept */
        x = ldexp(nearbyint(ldexp(x, -last)), last);
    }
    const float narrow = (float)x;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void encode(enum npy_kind kind, const void *from, size_t m, unsigned char *raw)
{
    const double *x = from;
    const int64_t *i = from;
    for (size_t e = 0; e < m; e++) {
        const float single = kind == NPY_F32 ? (float)x[e] : 0;
        const uint16_t half = kind == NPY_BF16 ? to_bf16(x[e]) : 0;
        const int32_t word = kind == NPY_I32 ? (int32_t)i[e] : 0;
        switch (kind) {
        case NPY_F64: memcpy(raw + 8 * e, x + e, 8); break;
        case NPY_F32: memcpy(raw + 4 * e, &single, 4); break;
        case NPY_F16: break;
        case NPY_BF16: memcpy(raw + 2 * e, &half, 2); break;
        case NPY_I64: memcpy(raw + 8 * e, i + e, 8); break;
        case NPY_I32: memcpy(raw + 4 * e, &word, 4); break;
        }
    }
}

static int write_all(int fd, const void *from, size_t m)
{
    for (size_t put = 0; put < m; ) {
        const ssize_t k = write(fd, (const char *)from + put, m - put);
        if (k < 0 && errno != EINTR)
            return -1;
        put += k < 0 ? 0 : (size_t)k;
    }
    return 0;
}

static int write_open(int fd, const struct npy *out)
{
    static const char *descr[] = {
        [NPY_F64] = "<f8", [NPY_F32] = "<f4", [NPY_BF16] = "<u2",
        [NPY_I64] = "<i8", [NPY_I32] = "<i4",
    };
    /* The data begins at a multiple of 64, as the format asks. */
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
    if (write_all(fd, head, (size_t)whole) != 0)
        return -1;

    const int64_t count = npy_count(out->nd, out->dim);
    unsigned char raw[8 * NPY_BLOCK];
    for (int64_t e = 0; e < count; e += NPY_BLOCK) {
        const size_t m = count - e < NPY_BLOCK ? (size_t)(count - e) : NPY_BLOCK;
        encode(out->kind, (const char *)out->data + 8 * e, m, raw);
        if (write_all(fd, raw, m * (size_t)npy_bytes(out->kind)) != 0)
            return -1;
    }
    return 0;
}

int npy_stage(const char *path, const struct npy *out, char *temp, char *why, size_t n)
{
    if (out->kind == NPY_F16 || npy_count(out->nd, out->dim) < 0)
        return npy_error(why, n, path, "asked for %s, expected a type and shape that "
                         "can be written", npy_kind_name(out->kind));
    for (int64_t e = 0; out->kind == NPY_I32 && e < npy_count(out->nd, out->dim); e++)
        if (((const int64_t *)out->data)[e] != (int32_t)((const int64_t *)out->data)[e])
            return npy_error(why, n, path, "asked for %" PRId64 ", expected an int32",
                             ((const int64_t *)out->data)[e]);
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return npy_error(why, n, path, "found %s, expected a file or none",
                         S_ISDIR(st.st_mode) ? "a directory" : "a special file");
    const int m = snprintf(temp, NPY_NAME, "%s.%ld.tmp", path, (long)getpid());
    if (m < 0 || m >= NPY_NAME)
        return npy_error(why, n, path, "found a name of %zu bytes, expected fewer than "
                         "%d", strlen(path), NPY_NAME - 32);
    const int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return npy_error(why, n, path, "found %s, expected to write it",
                         strerror(errno));
    const int bad = write_open(fd, out);
    const int found = errno;
    if ((close(fd) != 0) | (bad != 0)) {
        const int error = bad ? found : errno;
        unlink(temp);
        return npy_error(why, n, path, "found %s, expected to write it",
                         strerror(error));
    }
    return 0;
}

int npy_commit(const char *temp, const char *path, char *why, size_t n)
{
    if (rename(temp, path) == 0)
        return 0;
    const int found = errno;
    unlink(temp);
    return npy_error(why, n, path, "found %s, expected to write it", strerror(found));
}

int npy_write(const char *path, const struct npy *out, char *why, size_t n)
{
    char temp[NPY_NAME];
    if (npy_stage(path, out, temp, why, n) != 0)
        return -1;
    return npy_commit(temp, path, why, n);
}
