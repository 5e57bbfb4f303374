/* run_write.c -- every output appears in --out, or none.
 *
 * Book: chapter 00.  Checked by: tests/cli/run_cli.sh.  Next: run_print.c.
 */
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The directory that holds path: "a/b/" and "a/b" are in "a", "b" is in ".". */
static void parent(const char *path, char *up, size_t n)
{
    size_t m = strlen(path);
    while (m > 1 && path[m - 1] == '/')
        m--;
    while (m > 0 && path[m - 1] != '/')
        m--;
    snprintf(up, n, "%.*s", m ? (int)m : 1, m ? path : ".");
}

/* Before any work, and without leaving a trace: --out is a directory that can be
 * written, or can be made in one. */
int outputs_ready(struct run *x)
{
    struct stat st;
    char up[NPY_NAME];
    if (stat(x->o.in, &st) != 0 || !S_ISDIR(st.st_mode))
        return run_error(x, RUN_BAD, "--in", "found %.200s, expected a directory",
                         x->o.in);
    const int there = stat(x->o.out, &st) == 0;
    if (!there && errno != ENOENT)
        return run_error(x, RUN_BAD, "--out", "found %s, %.200s, expected a directory",
                         strerror(errno), x->o.out);
    if (!there) {
        parent(x->o.out, up, sizeof up);
        if (stat(up, &st) != 0 || !S_ISDIR(st.st_mode))
            return run_error(x, RUN_BAD, "--out", "found no directory %.200s, expected "
                             "one to make %.200s in", up, x->o.out);
    } else if (!S_ISDIR(st.st_mode))
        return run_error(x, RUN_BAD, "--out", "found %.200s, expected a directory",
                         x->o.out);
    if (access(there ? x->o.out : up, W_OK | X_OK) != 0)
        return run_error(x, RUN_BAD, "--out", "found %s, %.200s, expected a directory "
                         "that can be written", strerror(errno), x->o.out);
    return 0;
}

struct pair { char temp[NPY_NAME], path[NPY_NAME]; };

static int stage_one(struct run *x, const struct array *a, struct pair *p)
{
    struct npy out = { NPY_F64, a->nd, { 0 }, a->p };
    memcpy(out.dim, a->dim, sizeof out.dim);
    const int m = snprintf(p->path, sizeof p->path, "%s/%s.npy", x->o.out, a->file);
    if (m < 0 || (size_t)m >= sizeof p->path)
        return run_error(x, RUN_BAD, "--out", "found a name of %d bytes, expected less",
                         m);
    if (npy_stage(p->path, &out, p->temp, x->why, sizeof x->why) != 0)
        return x->exit = RUN_BAD, -1;
    return 0;
}

/* All to temporary names, then all renamed. A failure undoes what is half done. */
int outputs_write(struct run *x)
{
    struct pair *p = calloc((size_t)x->n + 1, sizeof *p);
    int staged = 0, done = 0, bad = p ? 0 : -1;
    if (!p)
        return run_error(x, RUN_FAILED, "--out", "found no memory to write");
    const int made = mkdir(x->o.out, 0777) == 0;
    if (!made && errno != EEXIST)
        bad = run_error(x, RUN_BAD, "--out", "found %s at %.200s, expected to make it",
                        strerror(errno), x->o.out);
    for (int i = 0; i < x->n && !bad; i++)
        if (x->a[i].out && !(bad = stage_one(x, &x->a[i], &p[staged])))
            staged++;
    for (; done < staged && !bad; done++)
        if ((bad = npy_commit(p[done].temp, p[done].path, x->why, sizeof x->why)))
            x->exit = RUN_BAD;
    for (int i = 0; bad && i < staged; i++)
        unlink(i < done ? p[i].path : p[i].temp);
    if (bad && made)
        rmdir(x->o.out);
    free(p);
    return bad;
}
