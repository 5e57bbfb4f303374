/* write.c -- every output appears in --out, or none.
 *
 * Book: chapters 00 and 20.  Checked by: tests/cli/run_cli.sh, tests/cli/results.sh.
 * Next: print.c.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Before any work, and without leaving a trace: --out is a directory that can be
 * written and switched, or can be made. */
int outputs_ready(struct run *x)
{
    struct stat st;
    char found[500];
    if (stat(x->o.in, &st) != 0 || !S_ISDIR(st.st_mode))
        return run_error(x, RUN_BAD, "--in", "found %.200s, expected a directory",
                         x->o.in);
    if (folder_open(&x->folder, x->o.out, found, sizeof found) != 0)
        return run_error(x, RUN_BAD, "--out", "%s", found);
    return 0;
}

static int write_one(struct run *x, const struct tensor *a, const char *name)
{
    struct npy out = { .kind = NPY_F64, .nd = a->nd, .data = a->p };
    memcpy(out.dim, a->dim, sizeof out.dim);
    const int fd = openat(x->folder.new, name,
                          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return run_error(x, RUN_BAD, name, "found %s, expected to write it",
                         strerror(errno));
    int bad = npy_put(fd, name, &out, x->why, sizeof x->why);
    if (bad)
        x->exit = RUN_BAD;
    const int synced = fsync(fd);
    const int closed = close(fd);
    if (!bad && (synced != 0 || closed != 0))
        bad = run_error(x, RUN_BAD, name, "found %s, expected to write it",
                        strerror(errno));
    return bad;
}

/* All into a folder of their own, then that takes the name at once. */
int outputs_write(struct run *x)
{
    const char *names[FOLDER_FILES + 1] = { NULL };
    const struct tensor *of[FOLDER_FILES + 1];
    char text[FOLDER_FILES + 1][32], found[500];
    int n = 0;
    for (int i = 0; i < x->a.n && n <= FOLDER_FILES; i++) {
        if (!x->a.t[i].out)
            continue;
        snprintf(text[n], sizeof text[n], "%.23s.npy", x->a.t[i].file);
        names[n] = text[n];
        of[n++] = &x->a.t[i];
    }
    if (folder_stage(&x->folder, names, n, found, sizeof found) != 0)
        return run_error(x, RUN_BAD, "--out", "%s", found);
    for (int i = 0; i < n; i++)
        if (write_one(x, of[i], names[i]) != 0)
            return -1;
    if (folder_commit(&x->folder, found, sizeof found) != 0)
        return run_error(x, RUN_BAD, "--out", "%s", found);
    return 0;
}
