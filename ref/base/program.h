/* program.h -- the start and the end of every program's main.
 *
 * Book: CONTRIBUTING.md.  Checked by: tests/cli.  Next: program.c.
 */
#ifndef KCP_BASE_PROGRAM_H
#define KCP_BASE_PROGRAM_H

/* At the start of main: notices of the library become lines on stderr. */
void print_notices(void);
/* At the end of main: flushes stdout. Returns status. If stdout failed (a full disk, a
 * closed pipe): prints one line to stderr and returns 2, or status if that is not 0. */
int finish_stdout(const char *program, int status);

#endif
