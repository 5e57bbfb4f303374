/* record_file.h -- the file of a record: only a whole new one replaces an earlier one.
 *
 * Book: chapter 18.  Checked by: tests/cli/bench_cli.sh, with record_file_try.c.
 * Next: record_file.c.
 */
#ifndef KCP_BENCH_RECORD_FILE_H
#define KCP_BENCH_RECORD_FILE_H

#include <stdio.h>

struct record_file {
    FILE *at;
    int rows;                          /* whoever writes one counts it */
    int made;                          /* path was not there */
    char path[4096], beside[4112];     /* beside: "" when path itself is written */
};

/* 0, or not: it cannot be written. Writes beside what is there, else in its place. */
int record_file_open(struct record_file *r, const char *path);
/* is_whole: the run ended well, so a file with rows takes the earlier one's name. Else
 * the earlier one stays, and the rows beside it. A file without rows replaces nothing,
 * and stays nowhere when the run failed. Not 0: some was not taken. */
int record_file_close(struct record_file *r, int is_whole);

#endif
