/* folder.h -- a folder of results that is switched from old to new at once.
 *
 * Book: chapter 20, what is promised.  Checked by: tests/cli/results.sh.
 * Next: folder.c.
 *
 * Files are written into a folder of their own beside the one that is asked for, and
 * synced; then the two exchange their names. So whoever opens the results by name finds
 * all of an earlier run's or all of this one's, whenever this one is killed. Files of
 * others in the folder stay, and so does the folder itself: its inode, its owner, its
 * mode.
 */
#ifndef KCP_FOLDER_H
#define KCP_FOLDER_H

#include "base/npy.h"

enum { FOLDER_FILES = 64, FOLDER_NAME = 256 };

struct folder {
    const char *asked;                 /* as the user wrote it, for messages */
    char base[FOLDER_NAME];            /* its name in its parent */
    char side[FOLDER_NAME];            /* the other folder's, beside it; "": none */
    int parent, old, new;              /* file descriptors; -1: none. old: the folder */
    int switched;                      /* the new one has the name, the old one side */
    int n;
    char name[FOLDER_FILES][32];       /* what this run writes */
};

/* Each returns 0, or -1 with "found ..., expected ..." in why[n]; nothing has changed
 * then that anybody finds by name.
 *
 * open: before any work. Can it be written and switched? Is nobody else at it? What a
 * killed run left half done is done. A folder that is not there is made by the commit.
 * stage: the new folder, for the names given (each "o.npy"); write to openat(f->new). A
 * signal that ends the process removes it. commit: sync, switch, tidy up. close: gives
 * the lock back, and removes what was staged and not committed. */
int  folder_open(struct folder *f, const char *path, char *why, size_t n);
int  folder_stage(struct folder *f, const char *const *names, int count, char *why,
                  size_t n);
int  folder_commit(struct folder *f, char *why, size_t n);
void folder_close(struct folder *f);

#endif
