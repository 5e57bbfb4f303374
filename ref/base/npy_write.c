/* npy_write.c -- .npy files: writes the data from double and int64_t.
 *
 * Book: chapter 00.  Checked by: tests/fuzz/npy.c, tests/cli/run_cli.sh.
 * Next: bench/run/write.c, which writes several files at once. */
#include "npy.h"
#include "bf16.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static void to_file(enum npy_kind kind, const void *from, size_t m, unsigned char *raw)
{
    const double *x = from;
    const int64_t *i = from;
    for (size_t e = 0; e < m; e++) {
        const float single = kind == NPY_F32 ? (float)x[e] : 0;
        const uint16_t half = kind == NPY_BF16 ? bf16_of(x[e]) : 0;
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
    /* The data begins at a multiple of 64, as the format requires. */
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
        to_file(out->kind, (const char *)out->data + 8 * e, m, raw);
        if (write_all(fd, raw, m * (size_t)npy_bytes(out->kind)) != 0)
            return -1;
    }
    return 0;
}

/* Checks the shape and the type before any byte is written. */
static int check(const struct npy *out, const char *path, char *why, size_t n)
{
    const int64_t count = npy_count(out->nd, out->dim);
    const int64_t *whole = out->data;
    if (out->kind == NPY_F16 || count < 0)
        return npy_error(why, n, path, "asked for %s, expected a type and shape that "
                         "can be written", npy_kind_name(out->kind));
    for (int64_t e = 0; out->kind == NPY_I32 && e < count; e++)
        if (whole[e] != (int32_t)whole[e])
            return npy_error(why, n, path, "asked for %" PRId64 ", expected an int32",
                             whole[e]);
    return 0;
}

int npy_put(int fd, const char *path, const struct npy *out, char *why, size_t n)
{
    if (check(out, path, why, n) != 0)
        return -1;
    if (write_open(fd, out) != 0)
        return npy_error(why, n, path, "found %s, expected to write it",
                         strerror(errno));
    return 0;
}

/* Opens a file with a unique name in the folder of path. A process number alone is not
 * unique, because containers number their processes separately. */
static int open_temp(const char *path, char temp[NPY_NAME])
{
    for (int tries = 0; tries < 100; tries++) {
        uint64_t random;
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
            return -1;
        const int m = snprintf(temp, NPY_NAME, "%s.%016" PRIx64 ".tmp", path, random);
        if (m < 0 || m >= NPY_NAME) {
            errno = ENAMETOOLONG;
            return -1;
        }
        const int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

int npy_write(const char *path, const struct npy *out, char *why, size_t n)
{
    char temp[NPY_NAME];
    struct stat st;
    if (check(out, path, why, n) != 0)
        return -1;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return npy_error(why, n, path, "found %s, expected a file or none",
                         S_ISDIR(st.st_mode) ? "a directory" : "a special file");
    const int fd = open_temp(path, temp);
    if (fd < 0)
        return npy_error(why, n, path, "found %s, expected to write it",
                         strerror(errno));
    int bad = npy_put(fd, path, out, why, n);
    const int closed = close(fd);
    if (!bad && (closed != 0 || rename(temp, path) != 0))
        bad = npy_error(why, n, path, "found %s, expected to write it",
                        strerror(errno));
    if (bad)
        unlink(temp);
    return bad;
}
