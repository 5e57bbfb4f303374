/* record_file.c -- the file of a record: written beside an earlier one, then renamed.
 *
 * Book: chapter 18.  Checked by: tests/cli/bench_cli.sh, with record_file_try.c.
 * Next: record.c.
 *
 * Where nothing was, rows go to the name itself, and a run that is stopped leaves those
 * that it timed. What is no file (a pipe, /dev/stdout) is written as it is.
 */
#define _GNU_SOURCE                    /* realpath, which is of XSI */
#include "record_file.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_beside(struct record_file *r, mode_t mode)
{
    snprintf(r->beside, sizeof r->beside, "%s.XXXXXX", r->path);
    const int fd = mkstemp(r->beside);
    if (fd < 0) return 1;
    if (fchmod(fd, mode & 07777) == 0 && (r->at = fdopen(fd, "w"))) return 0;
    close(fd);
    unlink(r->beside);
    return 1;
}

int record_file_open(struct record_file *r, const char *path)
{
    struct stat st;
    memset(r, 0, sizeof *r);
    if (strlen(path) >= sizeof r->path) return 1;
    const int is_there = stat(path, &st) == 0;
    if (!is_there || !S_ISREG(st.st_mode)) {
        strcpy(r->path, path);
        r->made = !is_there;
        r->at = fopen(path, is_there ? "w" : "wx");
        return r->at == NULL;
    }
    char *real = realpath(path, NULL);             /* a link stays one */
    if (!real || strlen(real) >= sizeof r->path || access(real, W_OK)) {
        free(real);
        return 1;
    }
    strcpy(r->path, real);
    free(real);
    return open_beside(r, st.st_mode);
}

int record_file_close(struct record_file *r, int is_whole)
{
    int lost = fflush(r->at) || ferror(r->at);
    if (r->beside[0]) lost = fsync(fileno(r->at)) || lost;
    lost = fclose(r->at) || lost;
    r->at = NULL;
    if (!r->beside[0]) {
        if (r->made && r->rows == 0 && !is_whole) unlink(r->path);
        return lost;
    }
    if (r->rows == 0) {
        unlink(r->beside);
        return lost;
    }
    if (is_whole && !lost) {
        lost = rename(r->beside, r->path) != 0;
        if (!lost) return 0;
    }
    fprintf(stderr, "kcp-bench: %s is as it was; %d rows of this run are in %s\n",
            r->path, r->rows, r->beside);
    return lost;
}
