/* digest.h -- what kcp-digest reads of an object of nvcc, and of the table of paths.
 *
 * Book: chapter 18.  Checked by: tests/cli/digest.sh.  Next: object.c.
 */
#ifndef KCP_BENCH_DIGEST_H
#define KCP_BENCH_DIGEST_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define DIGEST_SEED UINT64_C(0xcbf29ce484222325)
uint64_t digest_bytes(uint64_t h, const void *p, size_t n);

struct registered { const char *stage, *variant; };
struct gpu_function { uint64_t hash; size_t bytes; };

struct object {
    const char *path;
    char *bytes;
    char nvcc[24];                     /* "13.0.88", "-" where there is no GPU code */
    char compiler[32];                 /* of the host code */
    uint64_t *host;                    /* a digest of each of its functions */
    size_t hosts;
    struct registered *variant;        /* KCP_VARIANT's, by the linker section */
    struct gpu_function *function;     /* of one architecture */
    const char **want, **define;       /* host symbols */
    int variants, wanted, defined;
    int old;                           /* its sources are newer */
    size_t functions;
};

/* 0, or 2 with a line on stderr. The object's memory lives as long as the program. */
int object_read(struct object *o, const char *path, int arch);
int object_defines(const struct object *o, const char *symbol);

/* The whole file, a 0 behind it; NULL with a line on stderr. The caller frees. */
char *file_text(const char *path, size_t *bytes);
/* Each KCP_PATH("name", ...) of a preprocessed table: name and digest; 2: a cut row.
 * Blanks, line breaks and how a text is cut into literals do not count. */
int paths_print(const char *table, FILE *to);

#endif
