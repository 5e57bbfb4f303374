/* npy.h -- reads and writes .npy files, NumPy's format for arrays.
 * Book: chapter 00 (the arrays of kcp-run and of kcp-check --emit).
 *
 * npy_read accepts format versions 1.0 to 3.0, and little-endian f8, f4, f2, i8, i4 and
 * u2. It reads a u2 as the bits of a bfloat16, and transposes Fortran order to C order.
 * In memory, every float is a double and every integer an int64_t. A file is untrusted
 * input, so the shape in the header is checked against the file's size. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum npy_kind { NPY_F64, NPY_F32, NPY_F16, NPY_BF16, NPY_I64, NPY_I32 };
enum { NPY_RANK = 8, NPY_NAME = 4096 };
enum { NPY_HEAD = 1024 };      /* internal: maximum bytes of a header */

struct npy {
    enum npy_kind kind;        /* in the file */
    int nd;                    /* 0 to NPY_RANK */
    int64_t dim[NPY_RANK];
    void *data;                /* double *, or int64_t * for NPY_I64 and NPY_I32 */
    int fortran;               /* 1: Fortran order in the file */
};

/* Functions with `why` return 0 on success. On failure they return -1 and write one
 * line to `why`: the file, the value found and the value expected. npy_read allocates
 * in->data (never NULL on success). npy_free frees in->data. */
int  npy_read(const char *path, struct npy *in, char *why, size_t n);
void npy_free(struct npy *a);
/* Like npy_read, but calls refuse(header, arg) before reading the data. If `refuse`
 * returns a value other than 0, npy_read_if returns -1 and does not write to `why`. */
typedef int npy_refuse(const struct npy *head, void *arg);
int  npy_read_if(const char *path, struct npy *in, npy_refuse *refuse, void *arg,
                 char *why, size_t n);

/* Writes a file. out->kind is NPY_F64, NPY_F32 (rounds to nearest, ties to even),
 * NPY_I64 or NPY_I32 (writes only the lower 32 bits of each number). */
int  npy_write(const char *path, const struct npy *out, char *why, size_t n);

/* Returns the number of elements, or -1 if a size is < 0 or the number is >= 2^60. */
int64_t npy_count(int nd, const int64_t *dim);
/* Writes the shape, e.g. "[3,4,5]", to s [n]. Returns s. */
char *npy_shape(int nd, const int64_t *dim, char *s, size_t n);
const char *npy_kind_name(enum npy_kind kind);          /* "float64" */

/* Internal: parses the header in the first `got` bytes of a file of `size` bytes. Sets
 * *offset to the offset of the data. Does not set a->data. */
int  npy_head(const unsigned char *head, size_t got, int64_t size, const char *path,
              struct npy *a, int64_t *offset, char *why, size_t n);
int  npy_bytes(enum npy_kind kind);                     /* per element in the file */
/* Writes "path: text" to `why`, replacing unprintable characters. Returns -1. */
int  npy_error(char *why, size_t n, const char *path, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
