/* read.c -- the text of make run: files, or README.md and the book.
 *
 * Book: none.  Checked by: tests/cli/text.sh.  Next: model.c.
 */
#include "text.h"
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MOST = 1 << 24 };

static int refuse(const char *name, const char *found)
{
    fprintf(stderr, "kcp-text: TEXT=%s: %s; name files of at least 2 bytes\n",
            name, found);
    return 2;
}

/* A regular file, or NULL and why; opening a pipe could block. */
static FILE *open_file(const char *path, const char **why)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    *why = fd < 0 ? strerror(errno) : NULL;
    if (fd >= 0 && fstat(fd, &st) != 0)
        *why = strerror(errno);
    else if (fd >= 0 && S_ISDIR(st.st_mode))
        *why = "it is a directory";
    else if (fd >= 0 && !S_ISREG(st.st_mode))
        *why = "it is a special file";
    FILE *f = *why ? NULL : fdopen(fd, "rb");
    if (!f && fd >= 0)
        close(fd);
    return f;
}

/* The bytes of a file, *n of them; or NULL and why. */
static unsigned char *slurp(const char *path, int64_t *n, const char **why)
{
    FILE *f = open_file(path, why);
    unsigned char *buf = f ? malloc(FILE_MOST) : NULL;
    if (f)
        *why = buf ? "it is empty" : "out of memory";
    if (buf)
        *n = (int64_t)fread(buf, 1, FILE_MOST, f);
    if (f)
        fclose(f);
    if (buf && *n >= 2)
        return buf;
    free(buf);
    return NULL;
}

/* The bytes of a file that are used: at most 5/8 of the rest, so that the first
 * sequence covers a whole rank and lengths are uneven. The end is at a line or word. */
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

static void append(struct text *x, const char *path, const unsigned char *s, int64_t n,
                   int64_t size, int64_t most, int last)
{
    const int64_t m = take(s, n, most - x->T, last);
    if (x->N == MAX_SEQS || m < 2)
        return;
    memcpy(x->byte + x->T, s, m);
    snprintf(x->name[x->N], sizeof x->name[0], "%s", path);
    x->size[x->N] = size;
    x->cu[++x->N] = x->T += m;
}

/* Names separated by spaces, or one name with spaces. */
static int read_list(struct text *x, const char *paths, int64_t most)
{
    char *list = strdup(paths), *save = NULL;
    struct stat st;
    const char *separator = stat(paths, &st) ? " " : "";
    int left = 0, status = 0;
    for (const char *p = paths; *p; p++)
        left += *separator ? *p != ' ' && (p[1] == ' ' || !p[1]) : !p[1];
    for (char *p = list ? strtok_r(list, separator, &save) : NULL; p && !status;
         p = strtok_r(NULL, separator, &save)) {
        int64_t n;
        const char *why;
        unsigned char *s = slurp(p, &n, &why);
        if (s)
            append(x, p, s, n, n, most, --left == 0);
        else
            status = refuse(p, why);
        free(s);
    }
    free(list);
    if (!status && !x->N)
        return refuse(paths, "it has no name");
    return status;
}

/* README.md and the first chapters of the book. */
static int read_own(struct text *x, int64_t most)
{
    glob_t g = { 0 };
    glob("README.md", 0, NULL, &g);
    glob("book/[0-9]*.md", GLOB_APPEND, NULL, &g);
    for (size_t i = 0; i < g.gl_pathc && x->N < 3; i++) {
        int64_t n;
        const char *why;
        unsigned char *s = slurp(g.gl_pathv[i], &n, &why);
        if (s)
            append(x, g.gl_pathv[i], s, n, n, most, x->N == 2);
        free(s);
    }
    globfree(&g);
    if (!x->T)
        fprintf(stderr, "kcp-text: no README.md and book/*.md found: run it in the "
                "root of the repository, or add TEXT=\n");
    return x->T ? 0 : 2;
}

int text_read(struct text *x, const char *paths, int64_t most)
{
    memset(x, 0, sizeof *x);
    x->byte = malloc(most);
    if (!x->byte)
        return 2;
    return paths ? read_list(x, paths, most) : read_own(x, most);
}
