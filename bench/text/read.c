/* read.c -- reads the text of make run: files, or README.md and the book. */
#include "text.h"
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int refuse(const char *name, const char *found)
{
    fprintf(stderr, "kcp-text: TEXT=%s: %s; expected files of at least 2 bytes\n",
            name, found);
    return 2;
}

/* Reads the first bytes of a file, at most `most`, as the next sequence. */
static int read_file(struct text *x, const char *path, int64_t most)
{
    FILE *f = fopen(path, "rb");
    const int64_t n = f ? (int64_t)fread(x->byte + x->T, 1, (size_t)most, f) : 0;
    if (n < 2) refuse(path, !f || ferror(f) ? strerror(errno) : "too short");
    else {
        snprintf(x->name[x->N], sizeof x->name[0], "%s", path);
        x->size[x->N] = fseek(f, 0, SEEK_END) ? n : ftell(f);      /* a pipe: n */
        x->cu[++x->N] = x->T += n;
    }
    if (f) fclose(f);
    return n < 2 ? 2 : 0;
}

/* Reads one sequence per file, at most `most` bytes in all. Each file except the last
 * gets at most 5/8 of the remaining bytes, so that sequences differ in length and the
 * first sequence has all tokens of at least one rank. */
static int read_files(struct text *x, char **path, size_t files, int64_t most)
{
    int status = 0;
    for (size_t i = 0; i < files && !status; i++) {
        const int64_t rest = most - x->T, n = i + 1 == files ? rest : rest * 5 / 8;
        if (n >= 2) status = read_file(x, path[i], n);
    }
    return status;
}

/* Reads at most MAX_SEQS files. `paths` is one name, or names separated by spaces. */
static int read_list(struct text *x, const char *paths, int64_t most)
{
    char *list = strdup(paths), *save = NULL, *path[MAX_SEQS];
    struct stat st;
    const char *separator = stat(paths, &st) ? " " : "";
    size_t n = 0;
    for (char *p = list ? strtok_r(list, separator, &save) : NULL; p && n < MAX_SEQS;
         p = strtok_r(NULL, separator, &save))
        path[n++] = p;
    const int status = read_files(x, path, n, most);
    free(list);
    return status || x->N ? status : refuse(paths, "no file name found");
}

/* Reads README.md and the first chapters of the book. */
static int read_own(struct text *x, int64_t most)
{
    glob_t g = { 0 };
    glob("README.md", 0, NULL, &g);
    glob("book/[0-9]*.md", GLOB_APPEND, NULL, &g);
    const int status = read_files(x, g.gl_pathv, g.gl_pathc < 3 ? g.gl_pathc : 3, most);
    globfree(&g);
    if (!status && !x->T)
        fprintf(stderr, "kcp-text: no README.md and book/*.md found: "
                "run kcp-text in the root of the repository, or add --text FILE\n");
    return x->T ? status : 2;
}

int text_read(struct text *x, const char *paths, int64_t most)
{
    memset(x, 0, sizeof *x);
    x->byte = malloc(most);
    if (!x->byte) return 2;
    return paths ? read_list(x, paths, most) : read_own(x, most);
}
