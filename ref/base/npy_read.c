/* npy_read.c -- .npy files: reads the data into double and int64_t.
 *
 * Book: chapter 00.  Checked by: tests/fuzz/npy.c, tests/cli/run_cli.sh.
 * Next: npy_write.c. */
#include "npy.h"
#include "bf16.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the files are little-endian, and so must this machine be");

enum { HEAD = 1 << 16 };       /* longest accepted header, in bytes */

/* Exponent 31: infinity or NaN. Exponent 0: the value is fraction 2^-24. */
static double from_f16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double x = ldexp(1024 + fraction, exponent - 25);
    if (exponent == 0) x = ldexp(fraction, -24);
    if (exponent == 31) x = fraction ? NAN : INFINITY;
    return bits >> 15 ? -x : x;
}

/* Converts m elements of the file to the types in memory. */
static void from_file(enum npy_kind kind, const unsigned char *raw, size_t m, void *to)
{
    double *x = to;
    int64_t *i = to;
    for (size_t e = 0; e < m; e++) {
        uint16_t half;
        float single;
        int32_t word;
        switch (kind) {
        case NPY_F64: memcpy(x + e, raw + 8 * e, 8); break;
        case NPY_F32: memcpy(&single, raw + 4 * e, 4); x[e] = single; break;
        case NPY_F16: memcpy(&half, raw + 2 * e, 2); x[e] = from_f16(half); break;
        case NPY_BF16: memcpy(&half, raw + 2 * e, 2); x[e] = bf16_value(half); break;
        case NPY_I64: memcpy(i + e, raw + 8 * e, 8); break;
        case NPY_I32: memcpy(&word, raw + 4 * e, 4); i[e] = word; break;
        }
    }
}

/* Reads m bytes. Returns the number read, less than m at the end of the file; -1: error
 * in errno. */
static ssize_t read_all(int fd, void *to, size_t m)
{
    size_t got = 0;
    while (got < m) {
        const ssize_t k = read(fd, (char *)to + got, m - got);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -1;
        if (k == 0)
            break;
        got += (size_t)k;
    }
    return (ssize_t)got;
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

/* Stores elements e to e + m of the file in C order. */
static void put_elements(const struct npy *in, int64_t e, const unsigned char *raw,
                         size_t m)
{
    char *to = in->data, wide[8 * NPY_BLOCK];
    if (!in->fortran || in->nd < 2) {
        from_file(in->kind, raw, m, to + 8 * e);
        return;
    }
    from_file(in->kind, raw, m, wide);
    for (size_t i = 0; i < m; i++)
        memcpy(to + 8 * transposed(in, e + (int64_t)i), wide + 8 * i, 8);
}

static int read_data(int fd, const char *path, struct npy *in, char *why, size_t n)
{
    const int64_t count = npy_count(in->nd, in->dim);
    const int bytes = npy_bytes(in->kind);
    unsigned char raw[8 * NPY_BLOCK];
    in->data = malloc(count ? 8 * (size_t)count : 8);
    if (!in->data)
        return npy_error(why, n, path, "found %" PRId64 " numbers, expected as many as "
                         "fit in memory", count);
    for (int64_t e = 0; e < count; e += NPY_BLOCK) {
        const size_t m = count - e < NPY_BLOCK ? (size_t)(count - e) : NPY_BLOCK;
        const ssize_t got = read_all(fd, raw, m * (size_t)bytes);
        if (got < 0 || (size_t)got < m * (size_t)bytes) {
            npy_free(in);
            return npy_error(why, n, path, "found %s, expected %" PRId64 " numbers",
                             got < 0 ? strerror(errno) : "a file that shrank", count);
        }
        put_elements(in, e, raw, m);
    }
    return 0;
}

/* Reads the first HEAD bytes of the file and parses the header. */
static int read_head(int fd, const char *path, int64_t size, struct npy *in,
                     int64_t *offset, char *why, size_t n)
{
    unsigned char *head = malloc(HEAD);
    if (!head)
        return npy_error(why, n, path, "found no memory to read it");
    const ssize_t got = read_all(fd, head, HEAD);
    const int bad = got < 0
        ? npy_error(why, n, path, "found %s, expected to read it", strerror(errno))
        : npy_head(head, (size_t)got, size, path, in, offset, why, n);
    free(head);
    return bad;
}

static int read_open(int fd, const char *path, struct npy *in, npy_refuse *refuse,
                     void *arg, char *why, size_t n)
{
    struct stat st;
    int64_t offset = 0;
    if (fstat(fd, &st) != 0)
        return npy_error(why, n, path, "found %s, expected to read it",
                         strerror(errno));
    if (!S_ISREG(st.st_mode))
        return npy_error(why, n, path, "found %s, expected a regular file",
                         S_ISDIR(st.st_mode) ? "a directory" : "a special file");
    if (read_head(fd, path, st.st_size, in, &offset, why, n) != 0)
        return -1;
    if (refuse && refuse(in, arg) != 0)
        return -1;
    if (lseek(fd, offset, SEEK_SET) < 0)
        return npy_error(why, n, path, "found %s, expected to seek", strerror(errno));
    return read_data(fd, path, in, why, n);
}

int npy_read_if(const char *path, struct npy *in, npy_refuse *refuse, void *arg,
                char *why, size_t n)
{
    *in = (struct npy){ .data = NULL };
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return npy_error(why, n, path, "found %s, expected a .npy file",
                         errno == ENOENT ? "no such file" : strerror(errno));
    const int bad = read_open(fd, path, in, refuse, arg, why, n);
    close(fd);
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
