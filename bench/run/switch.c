/* switch.c -- a folder of results from old to new: staged, synced, exchanged.
 *
 * Book: chapter 20, what is promised.  Checked by: tests/cli/results.sh.
 * Next: write.c, which fills the staged folder.
 *
 *     1. side/ is written: a note of whose it is and what is in it, and the results
 *     2. side/ gets a link to each file of others, "x -> ../side/x"
 *     3. folder and side/ exchange their names: all that is found by name is new
 *     4. the results are linked into the old folder too, which nobody finds by name
 *     5. they exchange their names again: the old folder, with new results, is back
 *     6. side/ goes
 *
 * A run that is killed before 3. has changed nothing; after 3. its results are there,
 * the links lead to the files of others, and the next run does what is left, by the
 * note.
 */
#define _GNU_SOURCE                    /* renameat2 is Linux's own */
#include "switch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a signal that ends the process removes what is staged */
static const int ends[] = { SIGTERM, SIGINT, SIGHUP };
enum { ENDS = sizeof ends / sizeof *ends };
static struct folder *volatile staged;

void folder_unstage(struct folder *f)
{
    staged = NULL;
    if (f->new < 0)
        return;
    for (int i = 0; i < f->n; i++)
        unlinkat(f->new, f->name[i], 0);
    unlinkat(f->new, NOTE, 0);
    unlinkat(f->parent, f->side, AT_REMOVEDIR);
    close(f->new);
    f->new = -1;
}

static void on_end(int signal_number)
{
    struct folder *f = staged;
    if (f)
        folder_unstage(f);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* A signal that was ignored, as under nohup, stays so. */
static void watch_signals(void)
{
    struct sigaction was, act = { .sa_handler = on_end };
    sigemptyset(&act.sa_mask);
    for (int i = 0; i < ENDS; i++)
        sigaddset(&act.sa_mask, ends[i]);
    for (int i = 0; i < ENDS; i++)
        if (sigaction(ends[i], NULL, &was) == 0 && was.sa_handler == SIG_DFL)
            sigaction(ends[i], &act, NULL);
}

void folder_hold_signals(int hold)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < ENDS; i++)
        sigaddset(&set, ends[i]);
    sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

/* ---- the note: the name beside which it was staged, and the files, a line each */
static int write_note(const struct folder *f)
{
    const int fd = openat(f->new, NOTE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *o = fd < 0 ? NULL : fdopen(fd, "w");
    if (!o)
        return -1;
    fprintf(o, "%s\n", f->side);
    for (int i = 0; i < f->n; i++)
        fprintf(o, "%s\n", f->name[i]);
    const int bad = fflush(o) != 0 || fsync(fd) != 0;
    return fclose(o) != 0 || bad ? -1 : 0;
}

static int is_plain(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/');
}

/* f->side and f->name from the note in a folder; -1: there is none that we wrote. */
static int read_note(struct folder *f, int dir)
{
    char line[FOLDER_NAME + 2];
    const int fd = openat(dir, NOTE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    FILE *in = fd < 0 ? NULL : fdopen(fd, "r");
    int good = in != NULL;
    f->n = 0;
    for (int i = 0; good && fgets(line, sizeof line, in); i++) {
        char *end = strchr(line, '\n');
        good = end != NULL;
        if (!good)
            break;
        *end = 0;
        if (i == 0) {
            good = strncmp(line, ".kcp-", 5) == 0 && !strchr(line, '/');
            snprintf(f->side, sizeof f->side, "%.255s", line);
        } else {
            good = f->n < FOLDER_FILES && strlen(line) < sizeof f->name[0] &&
                   is_plain(line);
            if (good)
                strcpy(f->name[f->n++], line);
        }
    }
    if (in)
        fclose(in);
    return good && f->side[0] ? 0 : -1;
}

/* ---- the entries of a folder, each handed to what is done with it */
static int for_each(int dir, int (*visit)(struct folder *, int, const char *),
                    struct folder *f)
{
    const int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int bad = d ? 0 : -1;
    for (struct dirent *e = d ? readdir(d) : NULL; e && !bad; e = readdir(d))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            bad = visit(f, dir, e->d_name);
    if (d)
        closedir(d);
    return bad;
}

static int is_ours(const struct folder *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->name[i], name) == 0)
            return 1;
    return strcmp(name, NOTE) == 0;
}

/* 2. What is not ours is found by the other name, which the old folder will have. */
static int link_others(struct folder *f, int old, const char *name)
{
    char to[2 * FOLDER_NAME + 8];
    if (is_ours(f, name))
        return 0;
    snprintf(to, sizeof to, "../%s/%s", f->side, name);
    return symlinkat(to, f->new, name);
}

/* 6. Our files and links go; what somebody made there meanwhile moves to the folder. */
static int sweep_one(struct folder *f, int side, const char *name)
{
    char to[2 * FOLDER_NAME + 8], target[2 * FOLDER_NAME + 8];
    const int n = snprintf(to, sizeof to, "../%s/%s", f->side, name);
    const ssize_t m = readlinkat(side, name, target, sizeof target);
    const int link = m == n && memcmp(to, target, (size_t)n) == 0;
    if (strcmp(name, NOTE) == 0)
        return 0;
    if (link || is_ours(f, name))
        return unlinkat(side, name, 0) != 0 && errno != ENOENT;
    return f->old < 0 || renameat2(side, name, f->old, name, RENAME_NOREPLACE) != 0;
}

/* The note goes last: until then the next run knows what this is. */
static void sweep(struct folder *f)
{
    if (for_each(f->new, sweep_one, f) == 0) {
        unlinkat(f->new, NOTE, 0);
        unlinkat(f->parent, f->side, AT_REMOVEDIR);
        fsync(f->parent);
    }
    close(f->new);
    f->new = -1;
    f->side[0] = 0;
}

/* ---- the steps */
int folder_stage(struct folder *f, const char *const *names, int count, char *why,
                 size_t n)
{
    struct stat st;
    if (f->old < 0 && folder_lock(f, why, n) != 0)
        return -1;
    if (count > FOLDER_FILES)
        return folder_error(why, n, "found %d results, expected at most %d", count,
                            FOLDER_FILES);
    for (f->n = 0; f->n < count; f->n++) {
        const char *name = names[f->n];
        snprintf(f->name[f->n], sizeof f->name[0], "%.31s", name);
        if (f->old >= 0 && fstatat(f->old, name, &st, 0) == 0 && !S_ISREG(st.st_mode))
            return folder_error(why, n, "found %s in it, %s, expected a file or none",
                                name, S_ISDIR(st.st_mode) ? "a directory"
                                : "a special file");
    }
    mode_t mode = 0777;
    if (f->old >= 0 && fstat(f->old, &st) == 0)
        mode = st.st_mode & 07777;
    folder_hold_signals(1);
    int bad = folder_side(f, f->side) || mkdirat(f->parent, f->side, 0777) != 0;
    if (!bad)
        f->new = openat(f->parent, f->side, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->new >= 0 && f->old >= 0 && fchown(f->new, (uid_t)-1, st.st_gid) != 0)
        errno = 0;                     /* not of that group: files get ours, as ever */
    bad = bad || f->new < 0 || (f->old >= 0 && fchmod(f->new, mode | 0700) != 0) ||
          flock(f->new, LOCK_EX | LOCK_NB) != 0 || write_note(f) != 0;
    const int found = errno;
    if (!bad) {
        staged = f;
        watch_signals();
    }
    folder_hold_signals(0);
    if (bad)
        folder_unstage(f);
    return bad ? folder_error(why, n, "found %s beside %.200s, expected to make a "
                              "folder there", strerror(found), f->asked) : 0;
}

/* 4. Every result into the old folder as well; under other names first, so that a
 * failure leaves the old ones as they are. */
static int link_results(struct folder *f)
{
    char temp[FOLDER_NAME + 16];
    for (int i = 0; i < f->n; i++) {
        snprintf(temp, sizeof temp, "%s.%d", f->side, i);
        unlinkat(f->old, temp, 0);
        if (linkat(f->new, f->name[i], f->old, temp, 0) != 0)
            return -1;
    }
    return 0;
}

static void unlink_results(struct folder *f)
{
    char temp[FOLDER_NAME + 16];
    for (int i = 0; i < f->n; i++) {
        snprintf(temp, sizeof temp, "%s.%d", f->side, i);
        unlinkat(f->old, temp, 0);
    }
}

static int name_results(struct folder *f)
{
    char temp[FOLDER_NAME + 16];
    for (int i = 0; i < f->n; i++) {
        snprintf(temp, sizeof temp, "%s.%d", f->side, i);
        if (renameat(f->old, temp, f->old, f->name[i]) != 0)
            return -1;
    }
    unlink_results(f);                 /* a rename onto the same file leaves its name */
    return fsync(f->old);
}

static int exchange(struct folder *f)
{
    return renameat2(f->parent, f->side, f->parent, f->base, RENAME_EXCHANGE);
}

/* 5., 6. */
static int exchange_back(struct folder *f)
{
    if (exchange(f) != 0)
        return -1;
    f->switched = 0;
    const int bad = fsync(f->parent);
    sweep(f);
    return bad;
}

static int switch_old(struct folder *f)
{
    if (for_each(f->old, link_others, f) != 0 || fsync(f->new) != 0 || exchange(f) != 0)
        return -1;
    staged = NULL;
    f->switched = 1;
    const int synced = fsync(f->parent) == 0;
    if (synced && link_results(f) == 0) {
        if (name_results(f) != 0)
            return -1;
        return exchange_back(f);
    }
    const int found = errno;           /* no result has its name in the old folder: */
    unlink_results(f);                 /* it can come back as it was */
    if (exchange(f) == 0)
        f->switched = 0;
    errno = found;
    return -1;
}

/* There is no folder yet: the staged one takes the name, or finds it taken. */
static int switch_none(struct folder *f)
{
    if (fsync(f->new) != 0 ||
        renameat(f->parent, f->side, f->parent, f->base) != 0)
        return -1;
    staged = NULL;
    unlinkat(f->new, NOTE, 0);
    close(f->new);
    f->new = -1;
    return fsync(f->parent);
}

int folder_commit(struct folder *f, char *why, size_t n)
{
    folder_hold_signals(1);
    const int bad = f->old >= 0 ? switch_old(f) : switch_none(f);
    const int found = errno;
    if (bad && f->switched) {          /* the next run does what is left */
        close(f->new);
        f->new = -1;
    } else if (bad && f->new >= 0) {
        for_each(f->new, sweep_one, f);
        folder_unstage(f);
    }
    folder_hold_signals(0);
    return bad ? folder_error(why, n, "found %s, expected to switch %.200s to the new "
                              "results", strerror(found), f->asked) : 0;
}

/* ---- what a killed run left */

/* A folder beside ours of a run that is gone, and did not exchange it: removed. */
static int remove_stale(struct folder *f, int parent, const char *name)
{
    char prefix[FOLDER_NAME];
    const int n = snprintf(prefix, sizeof prefix, ".kcp-%.200s-", f->base);
    struct folder old = *f;
    if (strncmp(name, prefix, (size_t)n) != 0 || strlen(name) != (size_t)n + 16)
        return 0;
    old.new = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (old.new < 0)
        return 0;
    if (flock(old.new, LOCK_EX | LOCK_NB) == 0) {
        if (read_note(&old, old.new) == 0 && strcmp(old.side, name) == 0) {
            sweep(&old);
            return 0;
        }
        if (f->old >= 0) {             /* killed in the note, before any other file */
            unlinkat(old.new, NOTE, 0);
            unlinkat(parent, name, AT_REMOVEDIR);
        }
    }
    close(old.new);
    return 0;
}

/* The folder under our name is a staged one: its note says where the old one is. */
static int finish_switch(struct folder *f, char *why, size_t n)
{
    struct folder half = *f;
    struct stat st;
    if (read_note(&half, f->old) != 0)
        return 0;
    half.new = f->old;
    half.old = openat(f->parent, half.side,
                      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (half.old < 0 && errno == ENOENT) {     /* it was new: only the note is left */
        unlinkat(f->old, NOTE, 0);
        return 0;
    }
    const int mine = fstat(half.old, &st) == 0 && st.st_uid == geteuid();
    half.switched = 1;
    if (!mine || flock(half.old, LOCK_EX | LOCK_NB) != 0 || link_results(&half) != 0 ||
        name_results(&half) != 0 || exchange_back(&half) != 0) {
        close(half.old);
        return folder_error(why, n, "found the rest of a run that was killed, expected "
                            "to finish it: %.100s and %.100s beside it exchange names",
                            f->asked, half.side);
    }
    f->old = half.old;
    return 0;
}

int folder_recover(struct folder *f, char *why, size_t n)
{
    folder_hold_signals(1);
    int bad = f->old >= 0 ? finish_switch(f, why, n) : 0;
    if (!bad)
        for_each(f->parent, remove_stale, f);
    folder_hold_signals(0);
    return bad;
}
