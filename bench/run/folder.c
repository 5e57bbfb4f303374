/* folder.c -- can a folder of results be switched? Asked before any work, under a lock.
 *
 * Book: chapter 20, what is promised.  Checked by: tests/cli/results.sh.
 * Next: switch.c, which does it.
 */
#define _GNU_SOURCE                    /* renameat2 and statx, which are Linux's own */
#include "folder.h"
#include "switch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

int folder_error(char *why, size_t n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, n, format, args);
    va_end(args);
    return -1;
}

/* A name that nobody can foresee, and that says whose it is: the part before the random
 * digits is the same for every run into the folder. */
int folder_side(const struct folder *f, char side[FOLDER_NAME])
{
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return -1;
    snprintf(side, FOLDER_NAME, ".kcp-%.200s-%016llx", f->base,
             (unsigned long long)random);
    return 0;
}

/* The parent of a path and its last name, links followed: what is renamed is the folder
 * itself, not a link to it. */
static int split(struct folder *f, char parent[NPY_NAME], char *why, size_t n)
{
    struct stat st;
    const int there = stat(f->asked, &st) == 0;
    if (!there && errno != ENOENT)
        return folder_error(why, n, "found %s, %.200s, expected a directory",
                            strerror(errno), f->asked);
    if (there && !S_ISDIR(st.st_mode))
        return folder_error(why, n, "found %.200s, expected a directory", f->asked);
    char *whole = there ? realpath(f->asked, NULL) : strdup(f->asked);
    if (!whole)
        return folder_error(why, n, "found %s, %.200s, expected a directory",
                            strerror(errno), f->asked);
    size_t end = strlen(whole);
    while (end > 1 && whole[end - 1] == '/')
        whole[--end] = 0;
    const char *slash = strrchr(whole, '/');
    const char *base = slash ? slash + 1 : whole;
    if (!*base) {
        free(whole);
        return folder_error(why, n, "found /, a mount point, which cannot be switched, "
                            "expected a folder in it");
    }
    const int fits = strlen(base) < sizeof f->base && end < NPY_NAME;
    if (fits) {
        strcpy(f->base, base);
        const int up = slash ? (int)(slash - whole) : 1;
        snprintf(parent, NPY_NAME, "%.*s", up ? up : 1, slash ? whole : ".");
    }
    free(whole);
    return fits ? there : folder_error(why, n, "found a name of %zu bytes, expected "
                                       "fewer", end);
}

/* Only the folder's and its parent's owner may rename it there, as in /tmp. */
static int is_sticky(const struct folder *f)
{
    struct stat up, own;
    if (fstat(f->parent, &up) != 0 || fstat(f->old, &own) != 0)
        return 1;
    const uid_t me = geteuid();
    return (up.st_mode & S_ISVTX) && me != 0 && me != up.st_uid && me != own.st_uid;
}

static int is_mount_point(const struct folder *f)
{
    struct stat up, own;
    struct statx more;
    if (fstat(f->parent, &up) != 0 || fstat(f->old, &own) != 0)
        return 1;
    if (up.st_dev != own.st_dev || up.st_ino == own.st_ino)
        return 1;
    const int asked = statx(f->old, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &more);
    return asked == 0 && (more.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) &&
           (more.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

/* Two empty folders beside it exchange their names, and a file in one is linked into
 * the other: what the commit will ask of this file system. */
static int try_exchange(struct folder *f, char *why, size_t n)
{
    char a[FOLDER_NAME], b[FOLDER_NAME];
    int bad = folder_side(f, a) || folder_side(f, b) ||
              mkdirat(f->parent, a, 0700) != 0;
    if (bad)
        return folder_error(why, n, "found %s beside %.200s, expected to make a folder "
                            "there", strerror(errno), f->asked);
    const char *what = "exchange two names at once";
    bad = mkdirat(f->parent, b, 0700) != 0 ||
          renameat2(f->parent, a, f->parent, b, RENAME_EXCHANGE) != 0;
    int found = errno;
    if (!bad) {
        const int in_a = openat(f->parent, a, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const int in_b = openat(f->parent, b, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const int file = openat(in_a, NOTE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                                0600);
        bad = file < 0 || linkat(in_a, NOTE, in_b, NOTE, 0) != 0;
        found = errno;
        what = "link a file into two folders";
        unlinkat(in_a, NOTE, 0);
        unlinkat(in_b, NOTE, 0);
        close(file);
        close(in_a);
        close(in_b);
    }
    unlinkat(f->parent, a, AT_REMOVEDIR);
    unlinkat(f->parent, b, AT_REMOVEDIR);
    return !bad ? 0 : folder_error(why, n, "found %s: this file system cannot %s; "
                                   "expected a folder that is not there yet, or "
                                   "another place", strerror(found), what);
}

/* The folder under its name now, locked; a run that ends may change it while we wait
 * for nothing: look again then. */
int folder_lock(struct folder *f, char *why, size_t n)
{
    struct stat held, named;
    for (int times = 0; times < 100; times++) {
        f->old = openat(f->parent, f->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (f->old < 0)
            return errno == ENOENT ? 0
                 : folder_error(why, n, "found %s, %.200s, expected a directory",
                                strerror(errno), f->asked);
        if (flock(f->old, LOCK_EX | LOCK_NB) != 0)
            return folder_error(why, n, errno == EWOULDBLOCK ? "found another run that "
                                "writes to %.200s, expected none" : "found no lock on "
                                "%.200s, expected a file system that has locks",
                                f->asked);
        if (fstat(f->old, &held) == 0 &&
            fstatat(f->parent, f->base, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            held.st_ino == named.st_ino && held.st_dev == named.st_dev)
            return 0;
        close(f->old);
        f->old = -1;
    }
    return folder_error(why, n, "found other runs that write to %.200s, expected none",
                        f->asked);
}

static int check(struct folder *f, char *why, size_t n)
{
    const int there = f->old >= 0;
    if (faccessat(f->parent, there ? f->base : ".", W_OK | X_OK, AT_EACCESS) != 0)
        return folder_error(why, n, "found %s, %.200s, expected a directory that can "
                            "be written", strerror(errno), f->asked);
    if (!there)
        return 0;
    if (is_mount_point(f))
        return folder_error(why, n, "found %.200s, a mount point, which cannot be "
                            "switched, expected a folder in it", f->asked);
    if (is_sticky(f))
        return folder_error(why, n, "found %.200s, another user's in a sticky folder, "
                            "expected one that can be renamed", f->asked);
    if (faccessat(f->parent, ".", W_OK | X_OK, AT_EACCESS) != 0)
        return folder_error(why, n, "found %s at the parent of %.200s, expected one "
                            "where it can be renamed", strerror(errno), f->asked);
    folder_hold_signals(1);
    const int bad = try_exchange(f, why, n);
    folder_hold_signals(0);
    return bad;
}

int folder_open(struct folder *f, const char *path, char *why, size_t n)
{
    char parent[NPY_NAME];
    *f = (struct folder){ .asked = path, .parent = -1, .old = -1, .new = -1 };
    const int there = split(f, parent, why, n);
    if (there < 0)
        return -1;
    f->parent = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->parent < 0 && !there)
        return folder_error(why, n, "found no directory %.200s, expected one to make "
                            "%.200s in", parent, path);
    if (f->parent < 0)
        return folder_error(why, n, "found %s at the parent of %.200s, expected one "
                            "where it can be renamed", strerror(errno), path);
    if (folder_lock(f, why, n) != 0 || folder_recover(f, why, n) != 0)
        return -1;
    return check(f, why, n);
}

void folder_close(struct folder *f)
{
    folder_unstage(f);
    if (f->old >= 0)
        close(f->old);
    if (f->parent >= 0)
        close(f->parent);
    f->old = f->parent = -1;
}
