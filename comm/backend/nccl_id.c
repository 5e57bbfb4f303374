/* nccl_id.c -- NCCL's id through a file: GPUs of several processes without MPI.
 *
 * Book: chapter 20.  Checked by: tests/cli/nccl_stand_in.sh.
 * Next: comm/backend/nccl_calls.c. */
#ifdef KCP_WITH_NCCL
#include "nccl.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

/* Under another name first, then linked to path: no rank reads half of an id, and no
 * file is overwritten. */
static int write_id(const char *path, const ncclUniqueId *id, char *why, size_t n)
{
    char part[4096];
    const int length = snprintf(part, sizeof part, "%s.part", path);
    int ok = 0, fd = -1;
    if (length > 0 && (size_t)length < sizeof part)
        fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        ok = write(fd, id, sizeof *id) == (ssize_t)sizeof *id && !link(part, path);
        close(fd);
        unlink(part);
    }
    if (!ok)
        snprintf(why, n, "%.120s: cannot write NCCL's id there; give a path where no "
                 "file is, in a folder that all ranks see", path);
    return ok ? KCP_OK : KCP_BAD;
}

static int read_id(const char *path, double seconds, ncclUniqueId *id, char *why,
                   size_t n)
{
    const double until = monotonic_seconds() + seconds;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd < 0 && monotonic_seconds() < until) {
        poll(NULL, 0, 20);
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    const int ok = fd >= 0 && read(fd, id, sizeof *id) == (ssize_t)sizeof *id;
    if (fd >= 0)
        close(fd);
    if (!ok)
        snprintf(why, n, "%.120s: no id from rank 0 after %.0f s", path, seconds);
    return ok ? KCP_OK : KCP_COMM;
}

int nccl_id_by_file(const struct nccl *nccl, const char *path, int r, double seconds,
                    ncclUniqueId *id, char *why, size_t n)
{
    if (r > 0)
        return read_id(path, seconds, id, why, n);
    if (nccl->ncclGetUniqueId(id))
        return KCP_COMM;
    return write_id(path, id, why, n);
}
#endif
typedef int kcp_nccl_id_is_not_empty;
