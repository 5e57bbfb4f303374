/* program.h -- the start and the end of every program's main.
 *
 * Book: CONTRIBUTING.md.  Checked by: tests/cli.  Next: program.c. */
#ifndef KCP_BASE_PROGRAM_H
#define KCP_BASE_PROGRAM_H

/* Call at the start of main: prints notices of the library to stderr. */
void print_notices(void);
/* Call at the end of main: flushes stdout and returns status. If stdout failed (a full
 * disk, a closed pipe), prints one line to stderr and returns status, or 2 if status is
 * 0. */
int finish_stdout(const char *program, int status);

#endif
