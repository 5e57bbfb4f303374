/* read.c -- reads the text of make run: files, or README.md and the book.
 *
 * Book: none.  Checked by: tests/cli/text.sh.  Next: model.c. */
#include "text.h"
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MOST = 1 << 24 };

static int refuse(const char *name, const char *found)
{
    fprintf(stderr, "kcp-text: TEXT=%s: %s; name files of at least 2 bytes\n",
            name, found);
    return 2;
}

/* Returns a file's *n bytes. If *n < 2, returns NULL and sets *why to the reason. */
static unsigned char *slurp(const char *path, int64_t *n, const char **why)
{
    FILE *f = fopen(path, "rb");
    unsigned char *buf = f ? malloc(FILE_MOST) : NULL;
    *n = buf ? (int64_t)fread(buf, 1, FILE_MOST, f) : 0;
    *why = !buf || ferror(f) ? strerror(errno) : "it is empty";
    if (f)
        fclose(f);
    if (*n >= 2)
        return buf;
    free(buf);
    return NULL;
}

/* Returns how many of a file's n bytes to use, so that a line or word ends there.
 * The last file may use all `rest` free bytes. Other files use at most 5/8 of `rest`,
 * so that sequences differ in length and the first one covers at least one rank. */
static int64_t take(const unsigned char *s, int64_t n, int64_t rest, int last)
{
    int64_t most = last ? rest : rest * 5 / 8;
    if (n <= most)
        return n;
    for (int64_t i = most; i > most - 80 && i > 1; i--)
        if (s[i - 1] == '\n')
            return i;
    for (int64_t i = most; i > most - 40 && i > 1; i--)
        if (s[i - 1] == ' ')
            return i;
    return most;
}

/* Reads one sequence per file. */
static int read_files(struct text *x, char **path, size_t files, int64_t most)
{
    for (size_t i = 0; i < files; i++) {
        int64_t n;
        const char *why;
        unsigned char *s = slurp(path[i], &n, &why);
        if (!s)
            return refuse(path[i], why);
        const int64_t m = take(s, n, most - x->T, i + 1 == files);
        if (m >= 2) {
            memcpy(x->byte + x->T, s, m);
            snprintf(x->name[x->N], sizeof x->name[0], "%s", path[i]);
            x->size[x->N] = n;
            x->cu[++x->N] = x->T += m;
        }
        free(s);
    }
    return 0;
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
    return status || x->N ? status : refuse(paths, "it has no name");
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
        fprintf(stderr, "kcp-text: no README.md and book/*.md found: run kcp-text in "
                "the root of the repository, or name other files with --text\n");
    return x->T ? status : 2;
}

int text_read(struct text *x, const char *paths, int64_t most)
{
    memset(x, 0, sizeof *x);
    x->byte = malloc(most);
    if (!x->byte)
        return 2;
    return paths ? read_list(x, paths, most) : read_own(x, most);
}
