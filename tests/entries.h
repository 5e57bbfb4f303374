/* entries.h -- how many entries a folder has: what a process holds, by /proc.
 *
 * Book: chapter 20.  Checked by: nccl_stand_in.sh, which uses it.
 * Next: tests/20_clusters/stand_in/ranks.c, which counts threads too. */
#ifndef KCP_TEST_ENTRIES_H
#define KCP_TEST_ENTRIES_H

#include <dirent.h>

/* "/proc/self/fd": open files; "/proc/self/task": threads. 0: it cannot be read. */
static inline int entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

#endif
