/* program.c -- the start and the end of every program's main.
 *
 * Book: CONTRIBUTING.md.  Checked by: tests/cli.  Next: options.c. */
#include "program.h"
#include "kcp.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static void print_notice(const char *line) { fprintf(stderr, "kcp: %s\n", line); }

void print_notices(void) { kcp_notices(print_notice); }

int finish_stdout(const char *program, int status)
{
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout)) return status;
    fprintf(stderr, "%s: cannot write to stdout: %s\n", program,
            errno ? strerror(errno) : "error");
    return status ? status : 2;
}
