/* npy.c -- reads random bytes as a .npy file, which must be accepted, or rejected with
 * one line.
 *
 * Book: none.
 * An accepted file, written and read again, must have the same shape and bits. */
#include "base/npy.h"
#include "tests/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64], again[64];

static void remove_files(void)
{
    unlink(path);
    unlink(again);
}

static void write_and_read(const struct npy *a)
{
    struct npy out = *a, b;
    char why[200];
    if (out.kind == NPY_F16 || out.kind == NPY_BF16)
        out.kind = NPY_F64;
    MUST(npy_write(again, &out, why, sizeof why) == 0);
    MUST(npy_read(again, &b, why, sizeof why) == 0);
    MUST(b.kind == out.kind && b.nd == a->nd);
    MUST(memcmp(b.dim, a->dim, sizeof *b.dim * (size_t)b.nd) == 0);
    const int64_t n = npy_count(a->nd, a->dim);
    for (int64_t e = 0; e < n; e++) {
        const double x = ((double *)a->data)[e], y = ((double *)b.data)[e];
        const int nan = out.kind <= NPY_BF16 && x != x;
        MUST(nan ? y != y : memcmp(&x, &y, sizeof x) == 0);
    }
    npy_free(&b);
}

/* Parses the header in a block of exactly `size` bytes, so that a read past the block's
 * end is found. After a valid header, the data must fill the block. */
static int head_only(const uint8_t *data, size_t size)
{
    unsigned char *exact = malloc(size ? size : 1);
    struct npy a = { .data = NULL };
    int64_t offset = -1;
    char why[200] = "";
    MUST(exact);
    if (size)
        memcpy(exact, data, size);
    const int bad = npy_head(exact, size, (int64_t)size, "x", &a, &offset, why,
                             sizeof why);
    free(exact);
    if (bad)
        return bad;
    int64_t count = 1, all = npy_count(a.nd, a.dim);
    for (int d = 0; d < a.nd; d++) {
        MUST(a.dim[d] >= 0 && (all == 0 || a.dim[d] <= (int64_t)size));
        count *= all ? a.dim[d] : 0;
    }
    MUST(offset >= 10 && offset + count * npy_bytes(a.kind) == (int64_t)size);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!path[0]) {
        const char *dir = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(path, sizeof path, "%s/fuzz_npy.%ld", dir, (long)getpid());
        snprintf(again, sizeof again, "%s/fuzz_npy.%ld.again", dir, (long)getpid());
        atexit(remove_files);
    }
    FILE *f = fopen(path, "wb");
    MUST(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);

    struct npy a;
    char why[200] = "";
    const int bad = npy_read(path, &a, why, sizeof why);
    MUST(size > 60000 || bad == head_only(data, size));
    if (bad) {
        MUST(bad == -1 && a.data == NULL);
        MUST(strlen(why) > strlen(path) + 2 && memcmp(why, path, strlen(path)) == 0);
        MUST(!strchr(why, '\n') && strstr(why, "found"));
        return 0;
    }
    MUST(a.data && a.nd >= 0 && a.nd <= NPY_RANK);
    MUST(npy_count(a.nd, a.dim) * npy_bytes(a.kind) <= (int64_t)size);
    write_and_read(&a);
    npy_free(&a);
    return 0;
}
