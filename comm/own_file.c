/* own_file.c -- a small file that tells ranks of one job where, or what; made by us.
 *
 * Book: chapter 20.  Checked by: tests/cli/network.sh.  Next: comm/job_key.c.
 * A path in the environment may name anything: a text, a device, a link that somebody
 * laid. So a file is made only where nothing is, read and removed only when it is ours,
 * and its maker holds a lock on it, by which a living job is told from a dead one's
 * leftover. */
#define _POSIX_C_SOURCE 200809L
#include "handshake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum found { NOTHING, OURS, ANOTHERS };

/* What is at path? Only lstat, for a device may do something when it is opened. */
static enum found look_at(const char *path, struct stat *s)
{
    if (lstat(path, s))
        return errno == ENOENT ? NOTHING : ANOTHERS;
    return S_ISREG(s->st_mode) && s->st_uid == geteuid() ? OURS : ANOTHERS;
}

static int is_same_file(int fd, const char *path)
{
    struct stat a, b;
    return !fstat(fd, &a) && !lstat(path, &b) && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* 0: it is locked now. */
static int try_lock(int fd)
{
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    return fcntl(fd, F_SETLK, &all);
}

static int has_first_line(int fd, const char *first)
{
    char line[64] = "";
    const size_t want = strlen(first);
    return pread(fd, line, sizeof line - 1, 0) > (ssize_t)want &&
           !strncmp(line, first, want) && line[want] == '\n';
}

/* A file of ours that lies in the way goes if its maker is dead. */
static int remove_stale(const char *path, const char *first, char *why, size_t n)
{
    struct stat s;
    const enum found found = look_at(path, &s);
    if (found == NOTHING)
        return KCP_OK;
    const int fd = found == OURS ? open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC) : -1;
    int err = KCP_BAD;
    if (fd < 0 || !has_first_line(fd, first))
        snprintf(why, n, "%.300s is there and was not made by kcp: expected a path "
                 "where nothing is", path);
    else if (try_lock(fd))
        snprintf(why, n, "%.300s: another job of this name is meeting there (to tell "
                 "them apart: KCP_JOB=a word of its own)", path);
    else if (is_same_file(fd, path) && unlink(path))
        snprintf(why, n, "%.300s is a dead job's and cannot be removed: %s", path,
                 strerror(errno));
    else
        err = KCP_OK;
    if (fd >= 0)
        close(fd);
    return err;
}

static int write_text(int fd, const char *first, const char *text)
{
    char all[512];
    const int bytes = snprintf(all, sizeof all, "%s\n%s\nend\n", first, text);
    if (bytes < 0 || (size_t)bytes >= sizeof all)
        return -1;
    return write(fd, all, (size_t)bytes) == bytes ? 0 : -1;
}

int own_file_make(struct own_file *f, const char *path, const char *first,
                  const char *text, char *why, size_t n)
{
    f->fd = -1;
    snprintf(f->path, sizeof f->path, "%s", path);
    for (int i = 0; i < 10 && f->fd < 0; i++) {
        f->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (f->fd >= 0)
            break;
        if (errno != EEXIST && errno != ELOOP) {
            snprintf(why, n, "rank 0 cannot make %.300s: %s", path, strerror(errno));
            return KCP_BAD;
        }
        if (remove_stale(path, first, why, n))
            return KCP_BAD;
    }
    if (f->fd < 0) {
        snprintf(why, n, "rank 0 cannot make %.300s: others make it too", path);
        return KCP_BAD;
    }
    if (try_lock(f->fd) || write_text(f->fd, first, text) ||
        !is_same_file(f->fd, path)) {
        snprintf(why, n, "rank 0 cannot lock and write %.300s: %s", path,
                 strerror(errno));
        own_file_remove(f);
        return KCP_BAD;
    }
    return KCP_OK;
}

int own_file_read(const char *path, const char *first, char *text, size_t size,
                  char *why, size_t n)
{
    struct stat s;
    char all[512] = "";
    const enum found found = look_at(path, &s);
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    const int fd = found == OURS ? open(path, flags) : -1;
    if (fd >= 0) {                     /* what was looked at, not what is there now */
        struct stat now;
        const int same = !fstat(fd, &now) && now.st_dev == s.st_dev &&
                         now.st_ino == s.st_ino;
        const ssize_t got = same ? pread(fd, all, sizeof all - 1, 0) : 0;
        all[got > 0 ? got : 0] = 0;
        close(fd);
    }
    const size_t head = strlen(first);
    char *end = strstr(all, "\nend\n");
    const int begins_well = !strncmp(all, first, head) && all[head] == '\n';
    if (found == ANOTHERS || (all[0] && strncmp(all, first, strlen(all)) &&
                              !begins_well)) {
        snprintf(why, n, "%.300s is there and was not made by kcp: expected a path "
                 "where nothing is", path);
        return KCP_BAD;
    }
    if (!begins_well || !end || end <= all + head)
        return KCP_NA;
    *end = 0;
    snprintf(text, size, "%s", all + head + 1);
    return KCP_OK;
}

/* Only what we made: at the path there may be another's by now. */
void own_file_remove(struct own_file *f)
{
    if (f->fd < 0)
        return;
    if (is_same_file(f->fd, f->path))
        unlink(f->path);
    close(f->fd);
    f->fd = -1;
}
