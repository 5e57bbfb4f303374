/* write.c -- writes all results to a new folder, then renames that folder to --out.
 * Book: chapter 20.
 *
 * A reader of --out finds all results of one run or no result. With --force the earlier
 * folder is first renamed to OUT.old. If the run is killed between the two renames,
 * OUT.old has all earlier results and OUT.XXXXXX has all new results. */
#define _XOPEN_SOURCE 700              /* realpath */
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sets x->target to --out without final slash. Resolves links if --out exists. */
static int target_path(struct run *x, int exists)
{
    char *whole = exists ? realpath(x->o.out, NULL) : strdup(x->o.out);
    size_t n = whole ? strlen(whole) : 0;
    while (n > 1 && whole[n - 1] == '/') whole[--n] = 0;
    const int fits = whole && n + 16 < sizeof x->target;
    if (fits) strcpy(x->target, whole);
    free(whole);
    return fits ? 0 : run_error(x, RUN_BAD, "--out", "the path %s is too long or "
                                "cannot be resolved: choose another folder", x->o.out);
}

static int is_empty(const char *path)
{
    int entries = 0;
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        entries += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d) closedir(d);
    return d && entries == 0;
}

static void old_name(const struct run *x, char old[NPY_NAME + 8])
{
    snprintf(old, NPY_NAME + 8, "%s.old", x->target);
}

/* Checks that an existing target is an empty folder or, with --force, any folder. */
static int check_target(struct run *x, const struct stat *in, const struct stat *out)
{
    char old[NPY_NAME + 8];
    struct stat st;
    if (!S_ISDIR(out->st_mode))
        return run_error(x, RUN_BAD, "--out", "%s is not a folder", x->o.out);
    if (in->st_dev == out->st_dev && in->st_ino == out->st_ino)
        return run_error(x, RUN_BAD, "--out", "%s is also the folder of --in: "
                         "choose another folder",
                         x->o.out);
    if (is_empty(x->target)) return 0;
    if (!x->o.force)
        return run_error(x, RUN_BAD, "--out", "%s is not empty: "
                         "choose another folder, or use --force to rename it to %s.old",
                         x->o.out, x->o.out);
    old_name(x, old);
    if (lstat(old, &st) == 0)
        return run_error(x, RUN_BAD, "--force", "%s exists: move or remove it", old);
    return 0;
}

/* Checks before the run that the results can be written. Creates no file. */
int outputs_ready(struct run *x)
{
    struct stat in, out;
    char parent[NPY_NAME];
    if (stat(x->o.in, &in) != 0 || !S_ISDIR(in.st_mode))
        return run_error(x, RUN_BAD, "--in", "%s is not a folder", x->o.in);
    const int exists = stat(x->o.out, &out) == 0;
    if (target_path(x, exists) != 0 || (exists && check_target(x, &in, &out) != 0))
        return -1;
    strcpy(parent, x->target);
    if (access(dirname(parent), W_OK | X_OK) != 0)
        return run_error(x, RUN_BAD, "--out", "cannot make %s: %s", x->o.out,
                         strerror(errno));
    return 0;
}

static int file_error(struct run *x, const char *path)
{
    return run_error(x, RUN_BAD, "--out", "cannot write %s: %s", path, strerror(errno));
}

static int write_all(struct run *x, const char *folder)
{
    char path[NPY_NAME + 40];
    for (int i = 0; i < x->a.n; i++) {
        const struct tensor *a = &x->a.t[i];
        struct npy out = { .kind = NPY_F64, .nd = a->nd, .data = a->p };
        if (!a->out) continue;
        memcpy(out.dim, a->dim, sizeof out.dim);
        snprintf(path, sizeof path, "%s/%s.npy", folder, a->file);
        if (npy_write(path, &out, x->why, sizeof x->why) == 0) continue;
        x->exit = RUN_BAD;
        return -1;
    }
    return 0;
}

static void remove_all(const struct run *x, const char *folder)
{
    char path[NPY_NAME + 40];
    for (int i = 0; i < x->a.n; i++) {
        snprintf(path, sizeof path, "%s/%s.npy", folder, x->a.t[i].file);
        if (x->a.t[i].out) unlink(path);
    }
    rmdir(folder);
}

/* Renames the complete folder to the target. The target may be an empty folder. Only
 * --force replaces a target with files, because another run may have written them. */
static int take_name(struct run *x, const char *folder)
{
    char old[NPY_NAME + 8];
    old_name(x, old);
    int bad = rename(folder, x->target);
    const int full = bad && (errno == ENOTEMPTY || errno == EEXIST);
    if (full && x->o.force) {
        bad = rename(x->target, old);
        bad = bad ? bad : rename(folder, x->target);
    }
    return !bad ? 0 : run_error(x, RUN_BAD, "--out", "cannot rename %s to %s: %s; "
                                "the complete results are in the first folder", folder,
                                x->target, strerror(errno));
}

int outputs_write(struct run *x)
{
    char folder[NPY_NAME + 8];
    snprintf(folder, sizeof folder, "%s.XXXXXX", x->target);
    if (!mkdtemp(folder)) return file_error(x, folder);
    const mode_t mask = umask(0);
    umask(mask);
    if (write_all(x, folder) != 0) {
        remove_all(x, folder);
        return -1;
    }
    if (chmod(folder, 0777 & ~mask) != 0) return file_error(x, folder);
    return take_name(x, folder);
}
