/* switch.h -- what folder.c and switch.c share.
 *
 * Book: chapter 20, what is promised.  Checked by: tests/cli/results.sh.
 * Next: switch.c.
 */
#ifndef KCP_SWITCH_H
#define KCP_SWITCH_H

#include "folder.h"

#define NOTE ".kcp-results"            /* in a folder that is staged: whose it is */

/* why <- a sentence; returns -1. */
int folder_error(char *why, size_t n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int folder_side(const struct folder *f, char side[FOLDER_NAME]);
/* f->old: the folder under its name, locked; -1 where there is none. */
int folder_lock(struct folder *f, char *why, size_t n);
/* What a killed run left half done: finished where the names were exchanged already,
 * else removed. f->old is locked, and may become another. */
int folder_recover(struct folder *f, char *why, size_t n);
void folder_hold_signals(int hold);            /* those that end the process */
void folder_unstage(struct folder *f);         /* async-signal-safe */

#endif
